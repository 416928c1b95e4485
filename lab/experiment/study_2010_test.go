// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// What experiments have found stands on one page, whether they ran side by side or not; and what one of them does alone,
// it does while none other works.
func TestOnOnePage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	e := &lab.Env{Out: &out, Dir: t.TempDir(), Runs: 1}
	var working atomic.Int32
	one := func(name string) lab.Experiment {
		return lab.Experiment{Name: name, Run: func(_ context.Context, e *lab.Env) error {
			for range 100 {
				working.Add(1)
				runtime.Gosched()
				working.Add(-1)
				err := e.Alone(func() error {
					defer working.Add(-1)
					if n := working.Add(1); n != 1 {
						return fmt.Errorf("%d work beside what %s does alone", n-1, name)
					}
					runtime.Gosched()
					return nil
				})
				if err != nil {
					return err
				}
			}
			e.Step("%s has worked", name)
			return finish(e, &report.Report{Experiment: name, Title: name})
		}}
	}
	stages := []studyStage{{0, []lab.Experiment{one("first"), one("second")}}, {0, []lab.Experiment{one("third")}}}
	if err := onOnePage(t.Context(), e, "Three", stages); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	mustSay(t, out.String(), "first: first has worked\n", "second: second has worked\n", "\nthird has worked\n")
	for name, wants := range map[string][]string{
		"index.html": {"Three", "first.html", "second.html", "third.html"},
		"first.html": {"side by side", "first, second"},
	} {
		page, err := os.ReadFile(filepath.Join(e.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
	}
}
