// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// strict are the RFCs' own parameters, with heartbeats.
func strict() Parameters {
	par := Defaults()
	par.EarlyProbe, par.MaxMTU = false, 1280
	return par
}

// answerHeartbeats answers all HEARTBEATs that were sent by some paths, and counts those that were not.
func (s *script) answerHeartbeats(by func(Pair) bool) (missed int) {
	for _, p := range s.take() {
		ack, ok := heartbeatIn(p)
		switch {
		case !ok:
		case by(p.Pair):
			s.raw(p.Pair, s.a.tag, ack)
		default:
			missed++
		}
	}
	return missed
}

// TestHeartbeatInterval sends one on an idle path each RTO and HB.interval, the RTO jittered by half of it (RFC 9260
// section 8.3).
func TestHeartbeatInterval(t *testing.T) {
	s := accepted(t, strict(), 1, 1)
	var least, most time.Duration = time.Hour, 0
	last := s.now
	for range 200 {
		for len(s.packets) == 0 {
			s.run(s.e.Next().Sub(s.now))
		}
		gap := s.now.Sub(last)
		least, most, last = min(least, gap), max(most, gap), s.now
		if s.answerHeartbeats(func(Pair) bool { return true }) > 0 {
			t.Fatal("not a heartbeat")
		}
	}
	if least < 30*time.Second+500*time.Millisecond || most > 31*time.Second+500*time.Millisecond || most-least < 900*time.Millisecond {
		t.Errorf("they come from %v to %v after another", least, most)
	}
}

// TestHeartbeatsAreForIdlePaths sends none while data is sent, which measures as well.
func TestHeartbeatsAreForIdlePaths(t *testing.T) {
	s := accepted(t, strict(), 1, 1)
	for n := range 200 {
		s.say(100)
		s.peer(s.sack(n+1, large))
		s.run(time.Second)
	}
	for _, p := range s.take() {
		if has(p, chunk.TypeHeartbeat) {
			t.Fatal("a heartbeat on a path with data")
		}
	}
	s.run(32 * time.Second)
	if packets := s.take(); len(packets) == 0 || !has(packets[0], chunk.TypeHeartbeat) {
		t.Error("no heartbeat on an idle path")
	}
}

// TestMissedHeartbeats counts each that is not answered within an RTO, which doubles; the path becomes inactive, and
// the counter stops, but not the heartbeats (RFC 9260 section 8.3). On the path in use they count for the association
// (section 8.1), on others not.
func TestMissedHeartbeats(t *testing.T) {
	par := strict()
	par.PathMaxRetrans, par.PotentiallyFailedMaxRetrans, par.AssociationMaxRetrans = 3, 3, 2
	s := accepted(t, par, 1, 2).confirmAll()
	second := s.a.path(Pair{s.local[0], s.remote[1]})
	second.heartbeatAt = s.now
	s.a.paths[0].Parameters.HeartbeatInterval = -1
	first := func(p Pair) bool { return p.Remote == s.remote[0] }
	s.run(time.Millisecond)
	for n := 1; n <= 5; n++ {
		if missed := s.answerHeartbeats(first); missed != 1 {
			t.Fatalf("%d: %d heartbeats", n, missed)
		}
		rto := second.rto
		s.run(rto - 2*time.Millisecond)
		if second.errors != min(n-1, 4) {
			t.Errorf("%d: %d errors", n, second.errors)
		}
		s.run(2 * time.Millisecond)
		if second.errors != min(n, 4) || second.rto != 2*rto || (second.state == Inactive) != (n >= 4) || s.a.errors != 0 {
			t.Errorf("%d: %d errors, RTO %v after %v, %v, %d of the association", n, second.errors, second.rto, rto, second.state, s.a.errors)
		}
		for wait := s.now; s.now.Sub(wait) < 2*time.Minute; { // the next one is later by HB.interval and RTO
			if s.run(s.e.Next().Sub(s.now)); len(s.packets) > 0 && s.packets[0].Remote == s.remote[1] {
				if gap := s.now.Sub(wait); gap < 30*time.Second+second.rto/2-100*time.Millisecond || gap > 30*time.Second+second.rto*3/2+100*time.Millisecond {
					t.Errorf("%d: the next one comes after %v, RTO %v", n, gap, second.rto)
				}
				break
			}
			s.answerHeartbeats(first)
		}
	}
	if _, down := s.saw(PathInactive); !down {
		t.Error("the user is not told")
	}
	s.answerHeartbeats(func(Pair) bool { return true })
	if _, up := s.saw(PathActive); !up || second.errors != 0 || second.rto >= 2*time.Second {
		t.Errorf("answered: %d errors, RTO %v", second.errors, second.rto)
	}
	s.a.paths[0].Parameters.HeartbeatInterval = par.HeartbeatInterval
	s.a.Probe(s.pair, s.now, &s.out)
	s.run(20 * time.Minute) // no answers any more, on the path in use
	if e, failed := s.saw(Failed); !failed || e.Reason != ReasonNoAnswer {
		t.Error("the association lives on without answers")
	}
}

// TestHeartbeatAck clears the counters, and measures (RFC 9260 section 8.3).
func TestHeartbeatAck(t *testing.T) {
	s := accepted(t, strict(), 1, 1)
	p := s.a.paths[0]
	s.a.Probe(p.Pair, s.now, &s.out)
	s.collect()
	s.a.errors, p.errors = 3, 2
	s.run(70 * time.Millisecond)
	s.answerHeartbeats(func(Pair) bool { return true })
	if s.a.errors != 0 || p.errors != 0 || p.srtt != 70*time.Millisecond {
		t.Errorf("%d and %d errors, %v", s.a.errors, p.errors, p.srtt)
	}
}

// TestHeartbeatIsEchoed answers with all that is in it, whatever that is (RFC 9260 section 8.3), to where it came from.
func TestHeartbeatIsEchoed(t *testing.T) {
	s := accepted(t, quiet(), 1, 2)
	body := []byte{0, 1, 0, 7, 'a', 'b', 'c', 0, 0x77, 0x77, 0, 6, 'd', 'e'}
	for _, pair := range []Pair{s.pair, {s.local[0], s.remote[1]}} {
		s.raw(pair, s.a.tag, chunk.Append(nil, chunk.TypeHeartbeat, 0x55, body))
		packets := s.take()
		if len(packets) != 1 || packets[0].Pair != pair {
			t.Fatalf("%d answers, by %v", len(packets), packets)
		}
		_, rest, _ := chunk.Open(packets[0].Octets)
		if c, _, _ := chunk.Next(rest); c.Type != chunk.TypeHeartbeatAck || c.Flags != 0 || string(c.Body) != string(body) {
			t.Errorf("the answer is %x", rest)
		}
	}
}

// TestHeartbeatsByState sends and answers them in the states in which that is right (RFC 9260 section 8.3).
func TestHeartbeatsByState(t *testing.T) {
	for at, want := range map[int]bool{1: true, 2: true, 3: true, 4: false, 5: true, 6: false} {
		s := reachState(t, at)
		s.peer(chunk.AppendHeartbeat(nil, []byte("x")))
		answered := false
		for _, p := range s.take() {
			answered = answered || has(p, chunk.TypeHeartbeatAck)
		}
		if answered != want {
			t.Errorf("%s: answered %t", states[at].name, answered)
		}
		s.a.Probe(s.pair, s.now, &s.out)
		s.collect()
		if sent, may := len(s.take()) > 0, want && at != 1; sent != may {
			t.Errorf("%s: sent %t", states[at].name, sent)
		}
	}
}

// TestHeartbeatsJoin answers a HEARTBEAT with our own in the same packet, once that might be sent: not before HB.interval
// and half an RTO have gone by since the last one or since data, not while one is out, and not where there is no room.
func TestHeartbeatsJoin(t *testing.T) {
	beat := chunk.AppendHeartbeat(nil, []byte("x"))
	s := accepted(t, strict(), 1, 1)
	p := s.a.paths[0]
	at := func(d time.Duration) { // when ours is due late
		p.heartbeatAt = start.Add(time.Hour)
		s.run(start.Add(d).Sub(s.now))
	}
	at(30*time.Second + 499*time.Millisecond)
	s.peer(beat)
	s.expect("too soon", "HEARTBEAT-ACK")
	at(30*time.Second + 501*time.Millisecond)
	s.peer(chunk.AppendHeartbeat(nil, make([]byte, p.room()-24)))
	s.expect("no room", "HEARTBEAT-ACK")
	s.peer(beat, beat)
	joined := s.packets
	s.expect("joined", "HEARTBEAT-ACK HEARTBEAT HEARTBEAT-ACK")
	s.peer(beat)
	s.expect("one is out", "HEARTBEAT-ACK")
	if ack, ok := heartbeatIn(joined[0]); ok {
		s.run(time.Millisecond)
		s.peer(ack)
	}
	if !p.waitsFor.IsZero() || p.srtt != time.Millisecond || p.heartbeatAt.Before(s.now.Add(p.leastPause())) {
		t.Errorf("after the answer: %v, round trip %v, the next one is due at %v", p.waitsFor, p.srtt, p.heartbeatAt)
	}
	at(50 * time.Second)
	s.say(10)
	s.peer(s.sack(1, large))
	s.take()
	at(62 * time.Second)
	s.peer(beat)
	s.expect("not idle", "HEARTBEAT-ACK")
	s.a.Shutdown(s.now, &s.out)
	at(2 * time.Minute)
	s.take()
	s.peer(beat)
	s.expect("at the end")
}

// TestHeartbeatOfReturn asks by a path that has failed as soon as the peer asks by it, also while the answer to the last
// heartbeat is awaited, but not again and again, and takes it when it answers.
func TestHeartbeatOfReturn(t *testing.T) {
	beat := chunk.AppendHeartbeat(nil, []byte("x"))
	s, _, second := twoPaths(t, func(par *Parameters) { par.PathMaxRetrans = 2 })
	s.a.par.EarlyProbe = true
	for _, state := range []PathState{Failing, Inactive} {
		second.state, second.errors = state, 3
		second.heartbeatAt, second.waitsFor, second.askedAt = s.now.Add(time.Hour), time.Time{}, s.now
		if state == Failing { // one is out
			second.heartbeatAt, second.waitsFor = time.Time{}, s.now.Add(time.Hour)
		}
		due := second.waitsFor
		s.raw(second.Pair, s.a.tag, beat)
		s.expect("too soon after ours", "to 1: HEARTBEAT-ACK")
		s.run(returnPause)
		s.raw(second.Pair, s.a.tag, beat)
		asked := s.packets
		s.expect("it may be back", "to 1: HEARTBEAT-ACK HEARTBEAT")
		if state == Failing && second.waitsFor != due {
			t.Error("the answer to the last one is awaited for longer")
		}
		if ack, ok := heartbeatIn(asked[0]); !ok {
			t.Fatal("no heartbeat")
		} else {
			s.raw(second.Pair, s.a.tag, ack)
		}
		if second.state != Active || second.errors != 0 {
			t.Errorf("%v, %d errors", second.state, second.errors)
		}
		s.take()
	}
}

// TestHeartbeatsOfOneWay cuts a path in one direction: ours do not come, while the peer's do, each of which has us ask. The
// path is inactive as soon as if nothing came.
func TestHeartbeatsOfOneWay(t *testing.T) {
	for name, chunks := range map[string][]byte{
		"heartbeats": chunk.AppendHeartbeat(nil, []byte("x")), "errors": chunk.Append(nil, chunk.TypeError, 0, nil),
	} {
		t.Run(name, func(t *testing.T) {
			s, _, second := twoPaths(t, func(par *Parameters) { par.PathMaxRetrans = 3 })
			s.a.par.EarlyProbe = true
			begin, asked := s.now, 0
			s.a.Probe(second.Pair, s.now, &s.out)
			for s.collect(); second.state != Inactive && s.now.Sub(begin) < time.Minute; s.run(returnPause) {
				s.raw(second.Pair, s.a.tag, chunks)
				asked += s.answerHeartbeats(func(p Pair) bool { return p.Remote == s.remote[0] })
			}
			if down, law := s.now.Sub(begin), (1+2+4+8)*time.Second; down < law || down > law+2*returnPause || asked <= 4 {
				t.Errorf("the path is %v after %v, the law says %v; asked %d times", second.state, down, law, asked)
			}
		})
	}
}

// TestHeartbeatsStayTogether has two ends at rest for hours: three packets do where each for itself would take four, and
// each path is still asked in its time.
func TestHeartbeatsStayTogether(t *testing.T) {
	w := pair(t, Defaults())
	w.run(time.Minute)
	packets, beats := 0, map[Pair][]time.Time{}
	w.trace = func(_ int, p Packet) {
		packets++
		if has(p, chunk.TypeHeartbeat) && !has(p, chunk.TypePad) {
			beats[p.Pair] = append(beats[p.Pair], w.now)
		}
	}
	w.run(3 * time.Hour)
	heartbeats := 0
	for pair, list := range beats {
		heartbeats += len(list)
		for i := 1; i < len(list); i++ {
			if gap := list[i].Sub(list[i-1]); gap < 30*time.Second+500*time.Millisecond || gap > 31*time.Second+550*time.Millisecond {
				t.Fatalf("%v: a heartbeat %v after the one before", pair, gap)
			}
		}
	}
	if len(beats) != 8 || heartbeats < 8*3*3600/32 || packets > heartbeats*8/5 {
		t.Errorf("%d packets, %d heartbeats by %d paths", packets, heartbeats, len(beats))
	}
}

// TestManyHeartbeats has a packet bring hundreds: the answer is no larger than they were.
func TestManyHeartbeats(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	one := chunk.AppendHeartbeat(nil, nil)
	var many [][]byte
	for range 150 {
		many = append(many, one)
	}
	s.peer(many...)
	if packets := s.take(); len(packets) != 1 || len(packets[0].Octets) > 12+150*len(one) {
		t.Errorf("%d packets, the first of %d octets", len(packets), len(packets[0].Octets))
	}
}

// TestHeartbeatsSwitchedOff sends none on a path that has them switched off, not even when an answer to one that the
// user has asked for is missed (RFC 9260 section 8.3, A; RFC 7829 section 3.2, 5).
func TestHeartbeatsSwitchedOff(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.run(time.Hour)
	s.expect("idle")
	s.a.Probe(s.pair, s.now, &s.out)
	s.collect()
	s.expect("asked for", "HEARTBEAT")
	s.run(time.Hour)
	s.expect("missed")
	if p := s.a.paths[0]; p.errors != 1 || p.state != Failing {
		t.Errorf("%d errors, %v", p.errors, p.state)
	}
}
