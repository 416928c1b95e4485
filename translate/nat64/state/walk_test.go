// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "testing"

// TestWalkInSlices meets each record once, whatever the slices.
func TestWalkInSlices(t *testing.T) {
	table, _ := populated(t)
	for _, n := range []int{1, 7, 64, 100, 256, 1000} {
		sessions, bindings, clients := make(map[uint32]int), make(map[uint32]int), make(map[uint32]int)
		rounds := 0
		for from, more := uint32(0), true; more; rounds++ {
			from = table.WalkSessions(from, n, func(s *Session) { sessions[s.Index]++ })
			more = from != 0
		}
		for from, more := uint32(0), true; more; {
			from = table.WalkBindings(from, n, func(b *Binding) { bindings[b.Index]++ })
			more = from != 0
		}
		for from, more := uint32(0), true; more; {
			from = table.WalkSubscribers(from, n, func(s *Subscriber) { clients[s.Index]++ })
			more = from != 0
		}
		if len(sessions) != 37 || len(bindings) != 13 || len(clients) != 3 {
			t.Errorf("slices of %d met %d sessions, %d bindings, %d clients", n, len(sessions), len(bindings), len(clients))
		}
		for _, met := range []map[uint32]int{sessions, bindings, clients} {
			for i, times := range met {
				if times != 1 {
					t.Errorf("slices of %d met record %d %d times", n, i, times)
				}
			}
		}
		if want := (256 + n - 1) / n; rounds != want {
			t.Errorf("slices of %d took %d rounds, want %d", n, rounds, want)
		}
	}
}

// TestSweep ends sessions while it walks.
func TestSweep(t *testing.T) {
	table, _ := populated(t)
	table.WalkSessions(0, 256, func(s *Session) {
		if s.PeerPort == 1 {
			table.End(s)
		}
	})
	table.check(t)
	if c := table.Counts(); c.Sessions != 24 || c.Bindings != 13 {
		t.Errorf("counts %+v", c)
	}
}

func TestHasPeer(t *testing.T) {
	table, _ := open(t, small)
	s := table.subscribe(t, 1, first4, 0)
	b := table.bind(t, &s, 1, 9)
	for i := range byte(10) {
		table.meet(t, &b, [4]byte{198, 51, 100, i}, 53)
	}
	live := func(*Session) bool { return true }
	for name, row := range map[string]struct {
		peer  [4]byte
		limit int
		live  func(*Session) bool
		want  bool
	}{
		"newest":         {[4]byte{198, 51, 100, 9}, 1, live, true},
		"oldest":         {[4]byte{198, 51, 100, 0}, 10, live, true},
		"beyond limit":   {[4]byte{198, 51, 100, 0}, 9, live, false},
		"stranger":       {[4]byte{198, 51, 100, 10}, 99, live, false},
		"no longer live": {[4]byte{198, 51, 100, 5}, 99, func(*Session) bool { return false }, false},
	} {
		if got := table.HasPeer(&b, row.peer, row.limit, row.live); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
	table.EndBinding(&b)
	if table.HasPeer(&b, [4]byte{198, 51, 100, 9}, 99, live) {
		t.Error("a binding that has ended has a peer")
	}
}
