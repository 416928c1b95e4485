// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// TestClean removes a state that nobody holds, and leaves one in use and other files.
func TestClean(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	z := state.Sizes{Sessions: 64, Subscribers: 4, Addresses: 1, BlockWords: 1, SubscriberLength: 64}
	for _, name := range []string{"left.nat64.state", "held.nat64.state"} {
		m, err := fileMemory(path(name), z)
		if err != nil {
			t.Fatal(err)
		}
		if name == "held.nat64.state" {
			defer m.free()
			if _, err := fileMemory(path(name), z); err == nil {
				t.Error("two processes could have one state")
			}
		} else if err := m.free(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path("control.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	removed, inUse, err := cleanFolder(dir)
	if err != nil || len(removed) != 1 || len(inUse) != 1 {
		t.Errorf("removed %v, in use %v, error %v", removed, inUse, err)
	}
	if left, _ := filepath.Glob(path("*")); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

// TestMemorySizes clears a state of other sizes, and keeps one of the same with its note.
func TestMemorySizes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	z := state.Sizes{Sessions: 64, Subscribers: 4, Addresses: 1, BlockWords: 1, SubscriberLength: 64}
	for _, tt := range []struct {
		name     string
		sessions int
		adopted  bool
	}{
		{"fresh", 64, false},
		{"the same", 64, true},
		{"larger", 128, false},
		{"the larger again", 128, true},
	} {
		z.Sessions = tt.sessions
		m, err := fileMemory(path, z)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.note() == "2001:db8:64::/96"; got != tt.adopted {
			t.Errorf("%s: note %q", tt.name, m.note())
		}
		_, adopted, err := openTable(z, m)
		if err != nil || adopted != tt.adopted {
			t.Errorf("%s: adopted %t, error %v", tt.name, adopted, err)
		}
		if err := m.setNote("2001:db8:64::/96"); err != nil {
			t.Error(err)
		}
		if err := m.free(); err != nil {
			t.Error(err)
		}
	}
}
