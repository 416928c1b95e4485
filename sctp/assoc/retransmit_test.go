// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestRTO computes it as RFC 9260 section 6.3.1 does, C1 to C7 and G1.
func TestRTO(t *testing.T) {
	const ms = time.Millisecond
	par := PathParameters{RTOInitial: 1000 * ms, RTOMin: 10 * ms, RTOMax: 60_000 * ms}
	p := &Path{Parameters: par, roundTrip: roundTrip{rto: par.RTOInitial}}
	for _, step := range []struct{ r, srtt, rttvar, rto time.Duration }{
		{100 * ms, 100 * ms, 50 * ms, 300 * ms},
		{100 * ms, 100 * ms, 37500 * time.Microsecond, 250 * ms},
		{180 * ms, 110 * ms, 48125 * time.Microsecond, 302500 * time.Microsecond},
		{30 * ms, 100 * ms, 56093750, 324375 * time.Microsecond},
	} {
		p.measure(step.r)
		if p.srtt != step.srtt || p.rttvar != step.rttvar || p.rto != step.rto {
			t.Errorf("after %v: %v, %v, %v; want %v", step.r, p.srtt, p.rttvar, p.rto, step)
		}
	}
	for range 200 {
		p.measure(ms)
	}
	if p.rttvar != granularity || p.rto != 10*ms {
		t.Errorf("rounded up: %v, %v", p.rttvar, p.rto)
	}
	p.measure(time.Hour)
	if p.rto != 60_000*ms {
		t.Errorf("rounded down: %v", p.rto)
	}
	p.rto = 50_000 * ms
	if p.backOff(); p.rto != 60_000*ms {
		t.Errorf("backed off: %v", p.rto)
	}
	p.measure(-ms)
	if p.srtt < 0 {
		t.Errorf("a clock that goes back: %v", p.srtt)
	}
}

// TestMeasurements makes one in a round trip, and none of what was sent again, or after that (RFC 9260 section 6.3.1,
// C4 and C5).
func TestMeasurements(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	p := s.a.paths[0]
	s.say(3 * full)
	s.run(100 * time.Millisecond)
	s.peer(s.sack(2, large))
	if p.srtt != 100*time.Millisecond {
		t.Errorf("the first is %v", p.srtt)
	}
	s.run(100 * time.Millisecond)
	s.peer(s.sack(3, large))
	if p.srtt != 100*time.Millisecond {
		t.Errorf("a second one in the same round trip: %v", p.srtt)
	}
	p.cwnd, s.a.par.MaxBurst = 1<<20, 100
	s.say(5 * full)
	s.peer(s.sack(4, large))
	s.say(full) // is timed
	before := p.roundTrip
	for last := uint16(2); last <= 4; last++ {
		s.peer(s.sack(4, large, chunk.Block{First: 2, Last: last}))
	}
	s.run(10 * time.Millisecond)
	s.peer(s.sack(9, large))
	if p.srtt != before.srtt || p.rto != before.rto {
		t.Errorf("measured behind a retransmission: %v", p.srtt)
	}
	s.say(full)
	s.run(p.rto)
	before = p.roundTrip
	s.run(10 * time.Millisecond)
	s.peer(s.sack(10, large))
	if p.srtt != before.srtt || p.rto != before.rto {
		t.Errorf("measured by a retransmission: %v", p.srtt)
	}
	s.say(full)
	s.run(20 * time.Millisecond)
	s.peer(s.sack(11, large))
	if p.srtt >= before.srtt || p.rto >= before.rto {
		t.Errorf("RTO does not fall back: %v, %v", p.srtt, p.rto)
	}
}

// TestTimer follows T3-rtx by rules R1 to R3 (RFC 9260 section 6.3.2).
func TestTimer(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	p := s.a.paths[0]
	t3 := func(what string, want time.Duration) {
		t.Helper()
		if got := p.t3.Sub(s.now); p.t3.IsZero() != (want == 0) || want != 0 && got != want {
			t.Errorf("%s: T3 in %v, want %v", what, got, want)
		}
	}
	t3("nothing is out", 0)
	s.say(full)
	t3("R1", time.Second)
	s.run(100 * time.Millisecond)
	s.say(full)
	t3("R1: it runs", 900*time.Millisecond)
	s.say(full)
	s.peer(s.sack(0, large, chunk.Block{First: 2, Last: 2}))
	t3("not the earliest", 900*time.Millisecond)
	s.peer(s.sack(1, large, chunk.Block{First: 2, Last: 2}))
	t3("R3: the earliest", p.rto)
	s.run(50 * time.Millisecond)
	s.peer(s.sack(1, large))
	t3("R4: it runs", p.rto-50*time.Millisecond)
	s.peer(s.sack(3, large))
	t3("R2", 0)
	s.say(2 * full)
	s.peer(s.sack(3, large, chunk.Block{First: 2, Last: 2}))
	t3("a gap", p.rto)
	s.peer(s.sack(4, large, chunk.Block{First: 1, Last: 1}))
	t3("R2 by gaps", 0)
}

// TestTimerOfReneged starts T3 where none runs (rule R4).
func TestTimerOfReneged(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(2 * full)
	s.peer(s.sack(1, large, chunk.Block{First: 1, Last: 1}))
	s.peer(s.sack(1, large))
	if p := s.a.paths[0]; !p.t3.Equal(s.now.Add(p.rto)) || p.flight != pmdcs {
		t.Errorf("T3 at %v, %d in flight", p.t3, p.flight)
	}
}

// TestFastRetransmitTimer restarts T3 only for the earliest chunk of the path (RFC 9260 section 7.2.4, 4).
func TestFastRetransmitTimer(t *testing.T) {
	s := lossy(t)
	p := s.a.paths[0]
	s.now = s.now.Add(300 * time.Millisecond)
	for last := uint16(2); last <= 4; last++ {
		s.peer(s.sack(0, large, chunk.Block{First: 2, Last: last}))
	}
	if !p.t3.Equal(s.now.Add(p.rto)) {
		t.Errorf("the earliest is sent again: T3 in %v", p.t3.Sub(s.now))
	}
	s = lossy(t)
	p = s.a.paths[0]
	s.now = s.now.Add(300 * time.Millisecond)
	due := p.t3
	for last := uint16(4); last <= 6; last++ { // 1 and 3 are there, 0 and 2 are not; 0 has no more reports to come
		s.a.sent.at(0).fast = true
		s.peer(s.sack(0, large, chunk.Block{First: 2, Last: 2}, chunk.Block{First: 4, Last: last}))
	}
	s.expect("another one", "DATA+2")
	if !p.t3.Equal(due) {
		t.Errorf("another one is sent again: T3 in %v", p.t3.Sub(s.now))
	}
}

// confirmAll has all paths confirmed.
func (s *script) confirmAll() *script {
	for _, p := range s.a.paths {
		if !p.confirmed {
			p.confirmed, p.heartbeatAt = true, time.Time{}
		}
	}
	return s
}

// TestRetransmitElsewhere sends what has timed out to another address, with its RTO, and what was reported missing to
// the same (RFC 9260 sections 6.3.3, E4, and 6.4).
func TestRetransmitElsewhere(t *testing.T) {
	par := quiet()
	par.PotentiallyFailedMaxRetrans = par.PathMaxRetrans
	s := accepted(t, par, 1, 2).confirmAll()
	first, second := s.a.paths[0], s.a.path(Pair{s.local[0], s.remote[1]})
	second.rto = 7 * time.Second
	s.say(full)
	s.run(time.Second)
	s.expect("new data goes to the primary address, a retransmission to the other", "DATA+0", "to 1: DATA+0")
	if first.flight != 0 || second.flight != pmdcs || first.errors != 1 || second.errors != 0 || first.rto != 2*time.Second {
		t.Errorf("%d and %d in flight, %d and %d errors", first.flight, second.flight, first.errors, second.errors)
	}
	if !first.t3.IsZero() || second.t3.Sub(s.now) != 7*time.Second {
		t.Errorf("T3 in %v", second.t3.Sub(s.now))
	}
	s.say(full)
	s.expect("new data goes to the primary address still", "DATA+1")
	s.peer(s.sack(1, large))
	if first.errors != 1 || second.errors != 0 {
		t.Errorf("an acknowledgement of what went both ways clears nothing: %d errors", first.errors)
	}
	first.cwnd, first.alone = 10*pmdcs, false
	s.say(3 * full)
	s.take()
	for last := uint16(2); last <= 4; last++ {
		s.peer(s.sack(1, large, chunk.Block{First: 2, Last: last}))
	}
	s.expect("what is missing goes the same way", "DATA+1")
	if first.errors != 0 {
		t.Errorf("an acknowledgement of what went one way: %d errors", first.errors)
	}
}

// TestSpuriousTimeout has acknowledgements come after T3: of what the timeout has marked, nothing is sent again that was
// sent behind a late chunk; what was sent before it is (RFC 4138 section 5).
func TestSpuriousTimeout(t *testing.T) {
	for _, tt := range []struct {
		name   string
		n      int
		blocks []chunk.Block
		again  []string
		flight int
		rest   []string // sent again when all but the first two of what is out is acknowledged
	}{
		{"all is late", 2, nil, nil, 12, nil},
		{"some is missing before", 0, []chunk.Block{{First: 6, Last: 6}}, []string{"DATA+1"}, 10, []string{"DATA+2", "DATA+3", "DATA+4"}},
		{"of what was sent again nothing is known", 1, nil, []string{"DATA+1", "DATA+2"}, 2, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := lossy(t)
			s.a.par.SpuriousTimeouts = true
			s.run(time.Second)
			s.expect("T3", "DATA+0")
			s.peer(s.sack(tt.n, large, tt.blocks...))
			s.expect("sent again", tt.again...)
			if p := s.a.paths[0]; p.flight != tt.flight*pmdcs {
				t.Errorf("%d octets in flight", p.flight)
			}
			if taken := s.e.Counters.Spurious == 1; taken != (tt.flight > 2) {
				t.Errorf("%+v", s.e.Counters)
			}
			if tt.flight <= 2 {
				return
			}
			s.expectWindow("as after a loss", window{12280, 12280, 0, tt.flight * pmdcs})
			s.peer(s.sack(2, large, chunk.Block{First: 4, Last: 12}))
			s.expect("the rest", tt.rest...)
		})
	}
}

// TestSpuriousTimeoutElsewhere has a path be late where there is another: data leaves it, whatever comes late.
func TestSpuriousTimeoutElsewhere(t *testing.T) {
	s := accepted(t, quiet(), 2, 2).confirmAll()
	s.a.paths[0].cwnd = 20 * pmdcs
	s.a.par.MaxBurst, s.a.par.SpuriousTimeouts = 100, true
	s.say(8 * full)
	s.take()
	s.run(time.Second)
	s.expect("T3", "to 1: DATA+0", "to 1: DATA+1", "to 1: DATA+2", "to 1: DATA+3")
	s.peer(s.sack(5, large))
	s.expect("the others follow", "to 1: DATA+5", "to 1: DATA+6", "to 1: DATA+7")
	if s.e.Counters.Spurious != 0 {
		t.Errorf("%+v", s.e.Counters)
	}
}

// TestMostDivergentPair retransmits by the pair that shares least with the first (RFC 9260 section 6.4.1).
func TestMostDivergentPair(t *testing.T) {
	s := accepted(t, quiet(), 2, 2).confirmAll()
	s.say(full)
	s.run(time.Second)
	packets := s.take()
	if len(packets) != 2 || packets[1].Pair != (Pair{s.local[1], s.remote[1]}) {
		t.Errorf("sent by %v", packets[len(packets)-1].Pair)
	}
}

// TestErrorCounters follows those of a path and of the association until both have failed (RFC 9260 sections 8.1 and
// 8.2).
func TestErrorCounters(t *testing.T) {
	par := quiet()
	par.PathMaxRetrans, par.AssociationMaxRetrans, par.PotentiallyFailedMaxRetrans = 2, 4, 2
	s := accepted(t, par, 1, 1)
	p := s.a.paths[0]
	s.say(full)
	s.take()
	for n, want := range []struct {
		after time.Duration
		state PathState
	}{{1, Active}, {2, Active}, {4, Inactive}, {8, Inactive}} {
		s.run(want.after*time.Second - 1)
		s.expect("too early")
		s.run(1)
		s.expect("T3", "DATA+0")
		if s.a.errors != n+1 || p.state != want.state || p.errors < min(n+1, 3) {
			t.Errorf("%d: %d errors, the path has %d and is %v", n, s.a.errors, p.errors, p.state)
		}
	}
	s.peer(s.sack(1, large))
	if s.a.errors != 0 || p.errors != 0 || p.state != Active {
		t.Errorf("acknowledged: %d errors, the path has %d and is %v", s.a.errors, p.errors, p.state)
	}
	_, down := s.saw(PathInactive)
	if _, up := s.saw(PathActive); !down || !up {
		t.Error("the user is not told")
	}
	s.say(full)
	s.run(10 * time.Minute)
	if e, failed := s.saw(Failed); !failed || e.Reason != ReasonNoAnswer || len(s.e.byTag) > 0 {
		t.Errorf("%v %+v", failed, e)
	}
	if sent := len(s.take()); sent != 5 {
		t.Errorf("sent %d times", sent)
	}
}

// TestAssociationFailsOverAllPaths counts timeouts of all paths for the association.
func TestAssociationFailsOverAllPaths(t *testing.T) {
	par := quiet()
	par.AssociationMaxRetrans = 3
	s := accepted(t, par, 1, 2).confirmAll()
	s.say(full)
	s.run(10 * time.Minute)
	s.expect("by turns", "DATA+0", "to 1: DATA+0", "DATA+0", "to 1: DATA+0")
	if _, failed := s.saw(Failed); !failed {
		t.Errorf("state %d, %d errors", s.a.state, s.a.errors)
	}
}

// TestFailedIsLast has the timers of two paths end at once, of which the first ends the association: nothing is told of it
// behind that (RFC 9260 sections 6.3.3 and 8.1).
func TestFailedIsLast(t *testing.T) {
	par := quiet()
	par.AssociationMaxRetrans = 0
	s := accepted(t, par, 1, 2).confirmAll()
	s.say(full)
	if !s.a.SetPrimary(s.a.paths[1].Pair) {
		t.Fatal("the second path is not taken")
	}
	s.a.current = s.a.primary
	s.say(full)
	if first, second := s.a.paths[0].t3, s.a.paths[1].t3; first.IsZero() || !first.Equal(second) {
		t.Fatalf("T3 ends %v and %v", first, second)
	}
	s.events = nil
	s.run(5 * time.Second)
	if last := s.events[len(s.events)-1]; last.Kind != Failed {
		t.Errorf("the last event is %v", last.Kind)
	}
	for _, p := range s.a.paths {
		if p.flight != 0 || !p.t3.IsZero() {
			t.Errorf("%v has %d octets in flight, T3 ends %v", p.Pair, p.flight, p.t3)
		}
	}
}

// TestUnsentMessagesAreReturned gives the user what was not delivered when the association fails (RFC 9260 section
// 8.1).
func TestUnsentMessagesAreReturned(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	for i := range 8 {
		s.send(Message{Stream: uint16(i % 3), User: make([]byte, 1000+i)})
	}
	s.peer(s.sack(2, large))
	s.peer(plain(chunk.TypeAbort))
	var sizes []int
	for _, e := range s.events {
		if e.Kind == SendFailed {
			sizes = append(sizes, len(e.Data.User))
		}
	}
	if fmt.Sprint(sizes) != "[1002 1003 1004 1005 1006 1007]" {
		t.Errorf("returned are messages of %v octets", sizes)
	}
}

// TestLargeChunkOnSmallerPath has a chunk that was cut for one path be sent again by another that takes less, as after
// a path was added: it goes, whole (RFC 9260 section 6.9).
func TestLargeChunkOnSmallerPath(t *testing.T) {
	s := accepted(t, quiet(), 1, 2).confirmAll()
	s.say(full)
	s.peer(s.data(0, "x"))
	s.take()
	s.a.path(Pair{s.local[0], s.remote[1]}).mtu = 700
	s.run(time.Second)
	s.expect("on the smaller path", "to 1: DATA+0")
}
