// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"os"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab"
)

// What a fast path has pinned in a node goes with the run; what is another namespace's stays.
func TestPinsGoWithTheRun(t *testing.T) {
	testutil.NeedRoot(t)
	l, err := lab.New(t.Context(), lab.Options{Name: "pins"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var ours, others string
	pin := func(dir *string) func() error {
		return func() error {
			folder, err := pinned.Open("left-by-a-test")
			if err != nil {
				return err
			}
			*dir = folder.Dir()
			return folder.Close() // as a process that ends with its fast path in place
		}
	}
	other := testutil.NewNetns(t)
	if err := l.Node("a").Do(pin(&ours)); err != nil {
		t.Fatal(err)
	}
	other.Do(t, pin(&others))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ours); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", ours, err)
	}
	if _, err := os.Stat(others); err != nil {
		t.Errorf("what is another namespace's is gone: %v", err)
	}
}
