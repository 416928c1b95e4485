// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestNothingToAnnounceYet has a translator with a file of mappings alone, whose list is
// empty, but not nil: a reload may give it something to announce.
func TestNothingToAnnounceYet(t *testing.T) {
	for _, announce := range []bool{false, true} {
		c := defaults()
		c.Announce, c.EAMFile = announce, filepath.Join(t.TempDir(), "mappings")
		if err := os.WriteFile(c.EAMFile, []byte("192.0.2.1 2001:db8::1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := New(c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.AnnouncedPrefixes(); len(got) > 0 || (got != nil) != announce {
			t.Errorf("with announce = %v: %#v", announce, got)
		}
	}
}
