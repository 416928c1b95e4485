// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSaved keeps a counter whatever happens, and a state from an end to the next beginning.
func TestSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "one.state")
	open := func(what string, fresh bool, counter uint8, state string) *Saved {
		t.Helper()
		s, err := OpenSaved(path)
		if err != nil {
			t.Fatal(err)
		}
		if s.Fresh != fresh || !fresh && s.Counter != counter || fresh && s.Next() != s.Counter || !fresh && s.Next() != counter+1 || s.Whole != (state != "") || string(s.State) != state {
			t.Fatalf("%s: fresh %v, counter %d, whole %v, state %q; want %v, %d, %q", what, s.Fresh, s.Counter, s.Whole, s.State, fresh, counter, state)
		}
		return s
	}
	do := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	s := open("the first time", true, 0, "")
	if _, err := OpenSaved(path); err == nil {
		t.Error("two processes could have one state")
	}
	do(s.Begin(7), s.Close())
	s = open("behind one that was killed", false, 7, "")
	do(s.Begin(8), s.End(8, []byte("a long state")), s.Close())
	s = open("behind one that ended", false, 8, "a long state")
	do(s.Begin(8))
	if s.State != nil || s.Whole {
		t.Error("the state can be used twice")
	}
	do(s.Close())
	s = open("behind one that was killed again", false, 8, "")
	do(s.End(8, []byte("short")), s.Close())
	// A bit that fell over on the disk.
	b, err := os.ReadFile(path)
	do(err)
	b[len(b)-1] ^= 1
	do(os.WriteFile(path, b, 0o600))
	do(open("of a damaged state", false, 8, "").Close())
	do(os.WriteFile(path, []byte("something else altogether, and longer"), 0o600))
	do(open("of another file", true, 0, "").Close())
}
