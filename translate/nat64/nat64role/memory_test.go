// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"path/filepath"
	"testing"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

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
		m, err := fileMemory(path, z, false)
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
