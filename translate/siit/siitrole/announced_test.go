// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/translate"
)

// withFile makes a translator, not run, of mappings in a file.
func withFile(t *testing.T, change func(*Settings), lines ...string) *SIIT {
	t.Helper()
	c := defaults()
	c.Announce, c.EAMFile = true, filepath.Join(t.TempDir(), "mappings")
	if change != nil {
		change(&c)
	}
	if err := os.WriteFile(c.EAMFile, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantAnnounced fails unless a translator announces these.
func wantAnnounced(t *testing.T, when string, s *SIIT, want ...string) {
	t.Helper()
	if got := s.AnnouncedPrefixes(); got == nil || strings.Join(want, " ") != strings.Trim(fmt.Sprint(got), "[]") {
		t.Errorf("%s: %v are announced, want %v", when, got, want)
	}
}

// TestNothingToAnnounceYet has an empty file of mappings alone, whose list is empty, but not nil: a
// reload may give it something to announce.
func TestNothingToAnnounceYet(t *testing.T) {
	wantAnnounced(t, "an empty file", withFile(t, nil))
	if got := withFile(t, func(c *Settings) { c.Announce = false }).AnnouncedPrefixes(); got != nil {
		t.Errorf("%v without announce", got)
	}
}

// TestAnnouncesMappingsInEffect follows what is announced through changes at run time and a reload.
func TestAnnouncesMappingsInEffect(t *testing.T) {
	w, s := start(t)
	s.cfg.Announce = true
	second, err := ParseMapping("198.51.100.7 2001:db8:6::7")
	if err != nil {
		t.Fatal(err)
	}
	first := s.Mappings()[0]
	wantAnnounced(t, "at the start", s, "2001:db8:64::/96", "192.0.2.66/32")
	for _, step := range []struct {
		what string
		do   func(translate.Mapping) error
		with translate.Mapping
		want []string
	}{
		{"with one more", s.AddMapping, second, []string{"2001:db8:64::/96", "192.0.2.66/32", "198.51.100.7/32"}},
		{"without the first", s.RemoveMapping, first, []string{"2001:db8:64::/96", "198.51.100.7/32"}},
		{"without either", s.RemoveMapping, second, []string{"2001:db8:64::/96"}},
	} {
		if err := step.do(step.with); err != nil {
			t.Fatal(err)
		}
		wantAnnounced(t, step.what, s, step.want...)
	}
	next := s.cfg
	next.Pool4 = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	w.Gateway.Do(t, func() error {
		apply, err := s.Prepare(next)
		if err == nil {
			_, err = apply()
		}
		return err
	})
	wantAnnounced(t, "after a reload", s, "2001:db8:64::/96", "203.0.113.0/24")
}

// TestAnnouncesFile merges the mappings of a file to the fewest prefixes of the same addresses.
func TestAnnouncesFile(t *testing.T) {
	wantAnnounced(t, "side by side", withFile(t, nil, "192.0.2.3 2001:db8::3", "192.0.2.1 2001:db8::1", "192.0.2.0 2001:db8::", "192.0.2.2 2001:db8::2", "192.0.2.5 2001:db8::5", "192.0.2.6 2001:db8::6"),
		"192.0.2.0/30", "192.0.2.5/32", "192.0.2.6/32")
	wantAnnounced(t, "in one another", withFile(t, func(c *Settings) { c.EAMOverlap = true }, "192.0.2.1 2001:db8:1::1", "192.0.2.0/24 2001:db8::/120"),
		"192.0.2.0/24")
	wantAnnounced(t, "in pool4, too", withFile(t, func(c *Settings) { c.Pool4 = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")} }, "192.0.2.1 2001:db8::1"),
		"192.0.2.1/32")
}

// TestAnnouncesNoEndlessFile leaves a file out that would make too many routes, and nothing else.
func TestAnnouncesNoEndlessFile(t *testing.T) {
	var lines []string
	for i := range 2 * maxAnnounced {
		lines = append(lines, fmt.Sprintf("10.0.%d.%d 2001:db8::%x", i/128, i%128*2, i))
	}
	eam := func(c *Settings) {
		m, err := ParseMapping("192.0.2.1 2001:db8:1::1")
		if err != nil {
			t.Fatal(err)
		}
		c.EAM = []translate.Mapping{m}
	}
	wantAnnounced(t, "too many", withFile(t, eam, lines...), "192.0.2.1/32")
	if got := withFile(t, eam, lines[:maxAnnounced-1]...).AnnouncedPrefixes(); len(got) != maxAnnounced || !slices.Contains(got, netip.MustParsePrefix("10.0.0.2/32")) {
		t.Errorf("%d are announced, want %d", len(got), maxAnnounced)
	}
}
