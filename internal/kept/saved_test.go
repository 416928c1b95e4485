// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// TestSavedDamaged tells what cannot be read from what is not there, or was never left.
func TestSavedDamaged(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		spoil   func(path string) error
		damaged bool
	}{
		"as it was left": {func(string) error { return nil }, false},
		"removed":        {os.Remove, false},
		"emptied":        {func(path string) error { return os.Truncate(path, 0) }, true},
		"cut short":      {func(path string) error { return os.Truncate(path, savedHeader+1) }, true},
		"of other text":  {func(path string) error { return os.WriteFile(path, []byte("something else"), 0o600) }, true},
	} {
		path := filepath.Join(dir, name)
		s, err := OpenSaved(path)
		if err != nil {
			t.Fatal(err)
		}
		if s.Damaged {
			t.Errorf("%s: damaged from the beginning", name)
		}
		if err := errors.Join(s.Begin(7), s.End(7, []byte("state")), s.Close(), tt.spoil(path)); err != nil {
			t.Fatal(err)
		}
		if s, err = OpenSaved(path); err != nil || s.Damaged != tt.damaged {
			t.Errorf("%s: damaged %v, %v; want %v", name, s.Damaged, err, tt.damaged)
		}
		if err := errors.Join(s.Begin(8), s.Close()); err != nil {
			t.Fatal(err)
		}
		if s, err = OpenSaved(path); err != nil || s.Damaged || s.Whole {
			t.Errorf("%s: behind one that was killed: damaged %v, whole %v, %v", name, s.Damaged, s.Whole, err)
		}
		_ = s.Close()
	}
}

// TestSavedRemoved: what is left reaches the successor although the file was removed meanwhile.
func TestSavedRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "one.state")
	s, err := OpenSaved(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Begin(7), os.RemoveAll(filepath.Dir(path)), s.End(7, []byte("state")), s.Close()); err != nil {
		t.Fatal(err)
	}
	s, err = OpenSaved(path)
	if err != nil || !s.Whole || string(s.State) != "state" || s.Counter != 7 {
		t.Fatalf("%v, whole %v, %q", err, s.Whole, s.State)
	}
	_ = s.Close()
}

// TestCheckSaved says what is in the way of a file, and makes none.
func TestCheckSaved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "one.state")
	if err := CheckSaved(path); err != nil {
		t.Errorf("of no file: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was made")
	}
	if err := CheckSaved(dir); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("of a folder: %v", err)
	}
	s, err := OpenSaved(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckSaved(path); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("of one that is in use: %v", err)
	}
	_ = s.Close()
	if err := CheckSaved(path); err != nil {
		t.Errorf("of one that is free: %v", err)
	}
}
