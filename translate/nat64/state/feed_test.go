// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// follow keeps a copy of the sessions by what the feed tells, a few at a time.
func follow(t *testing.T, f *Feed, kept map[uint32]Session) (changes int) {
	t.Helper()
	buf := make([]Change, 3)
	for {
		n := f.Changes(buf)
		for _, c := range buf[:n] {
			changes++
			if delete(kept, c.Index); !c.Gone {
				kept[c.Index] = c.Session
			}
		}
		if n < len(buf) {
			return changes
		}
	}
}

func (t *Table) all() map[uint32]Session {
	m := make(map[uint32]Session)
	t.WalkSessions(0, len(t.sessions), func(s *Session) { m[s.Index] = *s })
	return m
}

func TestFeed(t *testing.T) {
	table, _ := populated(t)
	kept := make(map[uint32]Session)
	if n := follow(t, table.Feed(), kept); n != 37 {
		t.Errorf("%d changes, want 37", n)
	}
	if diff := cmp.Diff(table.all(), kept); diff != "" {
		t.Error(diff)
	}
	var s, ended Session
	table.View(5, &s)
	table.View(6, &ended)
	table.Step(&s, Established, 0, 300)
	table.Step(&s, V4Fin, 0, 300)
	table.End(&ended)
	if n := follow(t, table.Feed(), kept); n != 2 {
		t.Errorf("%d changes, want 2", n)
	}
	if diff := cmp.Diff(table.all(), kept); diff != "" {
		t.Error(diff)
	}
	table.Touch(&s, 400)
	if n := follow(t, table.Feed(), kept); n != 0 {
		t.Errorf("a new stamp makes %d changes", n)
	}
	clear(kept)
	table.Feed().Resync()
	if n := follow(t, table.Feed(), kept); n != 36 {
		t.Errorf("%d changes after a resync, want 36", n)
	}
	if diff := cmp.Diff(table.all(), kept); diff != "" {
		t.Error(diff)
	}
	if n := table.Feed().Changes(nil); n != 0 {
		t.Errorf("%d changes in no room", n)
	}
}
