// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestClean removes a state that no one holds, and leaves one in use and other files.
func TestClean(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	const here, there = 4711, 4712
	for name, namespace := range map[string]uint64{"left": here, "elsewhere": there, "old": there, "held": here} {
		cfg := Config{Path: path(name + ".nat64.state"), Size: 4096, Namespace: namespace}
		f, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if name == "held" {
			defer f.Close()
			if _, err := Open(cfg); err == nil {
				t.Error("two processes could have one state")
			}
		} else if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// So long ago that no one will come.
	past := time.Now().Add(-2 * elsewhere)
	if err := os.Chtimes(path("old.nat64.state"), past, past); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("control.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path("*.nat64.state"))
	if err != nil {
		t.Fatal(err)
	}
	removed, inUse, err := cleanFiles("sessions", append(files, path("never.made")), here)
	if err != nil || len(removed) != 2 || len(inUse) != 2 {
		t.Errorf("removed %v, in use %v, error %v", removed, inUse, err)
	}
	if left, _ := filepath.Glob(path("*")); len(left) != 3 {
		t.Errorf("left: %v", left)
	}
}

// TestCleanBesideStarts removes what is left while it is opened again and again: what a process has open is never removed.
func TestCleanBesideStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.nat64.state")
	testutil.Beside(t, func() { _, _ = drop(path, 0) }) // it may not be there, or just be in use
	for name, open := range map[string]func() (*os.File, func() error, error){
		"memory": func() (*os.File, func() error, error) {
			f, err := Open(Config{Path: path, Size: 4096})
			if err != nil {
				return nil, nil, err
			}
			return f.file, f.Close, nil
		},
		"saved": func() (*os.File, func() error, error) {
			file, err := openLocked(path)
			if err != nil {
				return nil, nil, err
			}
			return file, file.Close, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for opened := 0; opened < 2000; {
				file, close, err := open()
				if err != nil {
					continue // whoever cleans holds it for a moment
				}
				opened++
				runtime.Gosched()
				if !StillThere(file) {
					t.Error("it is removed while it is held")
				}
				if err := errors.Join(os.Remove(path), close()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestOpen keeps memory that a process of the same boot has left with the same size, with its
// note, and begins again otherwise.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, tt := range []struct {
		name                   string
		size                   int
		namespace              uint64
		spoil                  func(b []byte) // what lies there before
		used, other, elsewhere bool
	}{
		{name: "fresh", size: 8192, namespace: 1},
		{name: "the same", size: 8192, namespace: 1, used: true},
		{name: "larger", size: 12288, namespace: 1, other: true},
		{name: "the larger again", size: 12288, namespace: 1, used: true},
		{name: "in another network namespace", size: 12288, namespace: 2, used: true, elsewhere: true},
		{name: "there again", size: 12288, namespace: 2, used: true},
		{name: "of another boot", size: 12288, namespace: 2, spoil: func(b []byte) { b[atBoot]++ }},
		{name: "of the same boot", size: 12288, namespace: 2, used: true},
		{name: "from before boots were noted", size: 12288, namespace: 2, spoil: func(b []byte) { clear(b[atBoot:][:16]) }, used: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.spoil != nil {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				tt.spoil(b)
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f, err := Open(Config{Path: path, Size: tt.size, Namespace: tt.namespace})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Used != tt.used || f.Other != tt.other || f.Elsewhere != tt.elsewhere {
				t.Errorf("used %t, other %t, elsewhere %t", f.Used, f.Other, f.Elsewhere)
			}
			if got := f.Note() == "noted" && f.Memory[tt.size-1] == 7; got != tt.used {
				t.Errorf("the memory is as it was left: %t", got)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			f.Memory[tt.size-1] = 7
			if err := f.SetNote("noted"); err != nil {
				t.Error(err)
			}
			if b, note := Peek(path, tt.size); note != "noted" || b[tt.size-1] != 7 {
				t.Errorf("whoever looks sees the note %q", note)
			}
		})
	}
}

// TestOpenExisting opens a file that is there, and makes none.
func TestOpenExisting(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "made")
	cfg := Config{Path: filepath.Join(folder, "state"), Size: 4096, Existing: true}
	if _, err := Open(cfg); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("its folder was made")
	}
	made := cfg
	made.Existing = false
	for _, c := range []Config{made, cfg} {
		f, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		if f.Used != c.Existing {
			t.Errorf("used %t", f.Used)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNoteInFile replaces the note of a file so that at each moment one of the two is whole.
func TestNoteInFile(t *testing.T) {
	b := make([]byte, headerSize)
	copy(b, "64:ff9b::/96") // as it was before there were two places
	if got := noteIn(b); got != "64:ff9b::/96" {
		t.Errorf("an old note is %q", got)
	}
	for _, text := range []string{"2001:db8::/96", "2001:db8:1::/96 2001:db8:2::/96", ""} {
		before := append([]byte{}, b...)
		if err := setNoteIn(b, text); err != nil || noteIn(b) != text {
			t.Errorf("the note is %q after %v, want %q", noteIn(b), err, text)
		}
		written := append([]byte{}, b...)
		written[atInUse] = before[atInUse] // killed just before
		if noteIn(written) != noteIn(before) {
			t.Errorf("who is killed leaves %q, want %q", noteIn(written), noteIn(before))
		}
	}
	if err := setNoteIn(b, string(make([]byte, noteRoom))); err == nil {
		t.Error("a note that does not fit was taken")
	}
}
