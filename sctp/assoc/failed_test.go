// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// twoPaths is a script with two confirmed paths and heartbeats.
func twoPaths(t *testing.T, change func(*Parameters)) (s *script, first, second *Path) {
	par := strict()
	change(&par)
	s = accepted(t, par, 1, 2).confirmAll()
	return s, s.a.paths[0], s.a.path(Pair{s.local[0], s.remote[1]})
}

// TestPotentiallyFailed avoids a path after one timeout, asks it once an RTO, and takes it for inactive after
// Path.Max.Retrans more (RFC 7829 section 3.2, 1 to 8).
func TestPotentiallyFailed(t *testing.T) {
	s, first, second := twoPaths(t, func(par *Parameters) { par.PathMaxRetrans = 3 })
	s.say(full)
	s.run(time.Second)
	s.expect("a timeout", "DATA+0", "to 1: DATA+0", "HEARTBEAT")
	if _, failing := s.saw(PathFailing); !failing || first.state != Failing || first.errors != 1 {
		t.Errorf("%v, %d errors", first.state, first.errors)
	}
	s.say(full)
	s.expect("new data avoids it", "to 1: DATA+1")
	s.peer(s.sack(2, large))
	if first.state != Failing || first.errors != 1 {
		t.Error("an acknowledgement by another path clears it")
	}
	for n := 2; n <= 4; n++ {
		rto := first.rto
		s.run(rto)
		if first.errors != n || first.rto != 2*rto || (first.state == Inactive) != (n == 4) {
			t.Errorf("%d errors, RTO %v, %v", first.errors, first.rto, first.state)
		}
		if n < 4 {
			s.expect("once an RTO", "HEARTBEAT")
		}
	}
	if _, down := s.saw(PathInactive); !down {
		t.Error("the user is not told")
	}
	if second.state != Active || second.errors != 0 || s.a.errors != 0 {
		t.Errorf("%v, %d and %d errors", second.state, second.errors, s.a.errors)
	}
	s.answerHeartbeats(func(Pair) bool { return true })
	s.run(time.Minute)
	s.answerHeartbeats(func(Pair) bool { return true })
	if first.state != Active || s.a.choose(&s.out) != first {
		t.Error("it does not come back")
	}
	// On return it begins anew (7 and RFC 9260 section 7.2).
	if first.cwnd != pmdcs && first.cwnd != 4*pmdcs && first.cwnd != 4344 {
		t.Errorf("cwnd is %d", first.cwnd)
	}
}

// TestFailingHidden has a user who knows the states of RFC 9260 alone see none of RFC 7829, and all that it says of the others
// (section 3.2, 12). What is sent is the same.
func TestFailingHidden(t *testing.T) {
	s, first, _ := twoPaths(t, func(par *Parameters) { par.PathMaxRetrans, par.HideFailing = 2, true })
	sees := func(what string, state PathState, events ...EventKind) {
		t.Helper()
		var kinds []EventKind
		for _, e := range s.events {
			kinds = append(kinds, e.Kind)
		}
		s.events = nil
		if shown := s.a.Status().Paths[0].State; shown != state || !slices.Equal(kinds, events) {
			t.Errorf("%s: %v is shown, and %v told", what, shown, kinds)
		}
	}
	s.events = nil
	s.say(full)
	s.run(time.Second)
	s.expect("a timeout", "DATA+0", "to 1: DATA+0", "HEARTBEAT")
	if first.state != Failing {
		t.Fatal("not failing")
	}
	sees("failing", Active)
	s.answerHeartbeats(func(Pair) bool { return true })
	sees("back", Active)
	first.state, first.errors = Failing, 2
	s.a.strike(first, false, s.now, &s.out)
	s.collect()
	sees("inactive", Inactive, PathInactive)
	s.a.answer(first, &s.out)
	s.collect()
	sees("active", Active, PathActive)
}

// TestHideFailingChanges has what the user is told of a path be what is shown again, after HideFailing has changed while it was
// failing.
func TestHideFailingChanges(t *testing.T) {
	for name, c := range map[string]struct {
		hidden        bool // before
		failing, back []EventKind
	}{
		"hidden from then on": {false, []EventKind{PathFailing}, []EventKind{PathActive}},
		"shown from then on":  {true, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, first, _ := twoPaths(t, func(par *Parameters) { par.HideFailing = c.hidden })
			told := func(what string, want []EventKind) {
				t.Helper()
				s.collect()
				var kinds []EventKind
				for _, e := range s.events {
					kinds = append(kinds, e.Kind)
				}
				if s.events = nil; !slices.Equal(kinds, want) {
					t.Errorf("%s: %v is told", what, kinds)
				}
			}
			s.events = nil
			s.a.strike(first, false, s.now, &s.out)
			told("failing", c.failing)
			par := s.a.Parameters()
			par.HideFailing = !c.hidden
			if err := s.a.SetParameters(par, s.now); err != nil {
				t.Fatal(err)
			}
			s.a.answer(first, &s.out)
			told("back", c.back)
		})
	}
}

// TestFailingReturns has a path come back by what proves that it works, and by nothing else (RFC 7829 section 3.2, 7, 9
// and 10).
func TestFailingReturns(t *testing.T) {
	for _, tt := range []struct {
		name    string
		event   func(s *script, first *Path)
		returns bool
	}{
		{"an answer to a heartbeat", func(s *script, _ *Path) {
			s.run(3 * time.Second)
			s.answerHeartbeats(func(p Pair) bool { return p.Remote == s.remote[0] })
		}, true},
		{"an acknowledgement of what went by another path, too", func(s *script, _ *Path) { s.peer(s.sack(1, large)) }, false},
		{"an acknowledgement of what went there alone", func(s *script, first *Path) {
			s.peer(s.sack(1, large))
			s.a.primary, s.a.current = first, first
			for _, p := range s.a.paths {
				p.state, p.errors = Failing, p.errors+2 // else nothing is sent there
			}
			if first.errors = 1; s.a.choose(&s.out) != first {
				s.t.Fatal("not the path")
			}
			s.say(full)
			s.peer(s.sack(2, large))
		}, true},
		{"a packet of the peer's", func(s *script, _ *Path) { s.peer(chunk.AppendHeartbeat(nil, []byte("x"))) }, false},
		{"being primary", func(s *script, first *Path) { s.a.SetPrimary(first.Pair) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, first, _ := twoPaths(t, func(*Parameters) {})
			s.say(full)
			s.run(time.Second)
			if first.state != Failing {
				t.Fatal("not failing")
			}
			s.take()
			tt.event(s, first)
			if back := first.state == Active && first.errors == 0; back != tt.returns {
				t.Errorf("%v, %d errors", first.state, first.errors)
			}
		})
	}
}

// TestAllFailing sends by the path with the fewest errors, and changes neither state nor counter by that (RFC 7829
// section 3.2, 4).
func TestAllFailing(t *testing.T) {
	s, first, second := twoPaths(t, func(*Parameters) {})
	first.state, first.errors, second.state, second.errors = Failing, 3, Failing, 1
	s.say(full)
	s.expect("the one with fewer errors", "to 1: DATA+0")
	second.state, second.errors = Inactive, 7
	s.say(full)
	s.expect("the one that is not inactive", "DATA+1")
	if first.state != Failing || first.errors != 3 || second.state != Inactive || second.errors != 7 {
		t.Error("states or counters have changed")
	}
}

// TestDormant sends on while all paths are inactive, by the one with the fewest errors, and counts on (RFC 7829 section
// 4.1).
func TestDormant(t *testing.T) {
	s, first, second := twoPaths(t, func(par *Parameters) {
		par.PathMaxRetrans, par.AssociationMaxRetrans, par.HeartbeatInterval, par.RTOMax = 1, 20, -1, time.Second
	})
	s.say(full)
	s.run(4*time.Second + time.Millisecond)
	if first.state != Inactive || second.state != Inactive {
		t.Fatalf("%v and %v", first.state, second.state)
	}
	s.take()
	s.run(8 * time.Second)
	s.expect("by turns", "to 1: DATA+0", "DATA+0", "to 1: DATA+0", "DATA+0", "to 1: DATA+0", "DATA+0", "to 1: DATA+0", "DATA+0")
	if first.errors != 6 || second.errors != 6 || first.state != Inactive {
		t.Errorf("%d and %d errors", first.errors, second.errors)
	}
	first.errors = 3
	s.say(full)
	if s.a.current != first {
		t.Error("new data does not go by the one with the fewest errors")
	}
	s.run(time.Minute)
	if _, failed := s.saw(Failed); !failed {
		t.Error("the association lives on")
	}
}

// TestFailingSwitchedOff has a threshold as high as Path.Max.Retrans: new data stays on the path until it is inactive
// (RFC 7829 section 3.2, 1).
func TestFailingSwitchedOff(t *testing.T) {
	s, first, _ := twoPaths(t, func(par *Parameters) { par.PathMaxRetrans, par.PotentiallyFailedMaxRetrans = 2, 2 })
	for n := range 3 {
		if first.state != Active || s.a.choose(&s.out) != first {
			t.Errorf("after %d timeouts: %v", n, first.state)
		}
		s.say(full)
		s.run(first.rto)
		s.peer(s.sack(n+1, large))
	}
	if first.state != Inactive {
		t.Errorf("%v, %d errors", first.state, first.errors)
	}
}
