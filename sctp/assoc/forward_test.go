// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// forwarding is a script whose peer lets messages be given up.
func forwarding(t *testing.T, interleaved bool) *script {
	par := quiet()
	par.MaxBurst, par.Interleaving = 100, interleaved
	s := newScript(t, par, 1, 1)
	s.init.ForwardTSN = true
	if interleaved {
		s.init.Extensions = []chunk.Type{chunk.TypeIData, chunk.TypeForwardTSN, chunk.TypeIForwardTSN}
	}
	s.accept()
	s.a.paths[0].cwnd = 1 << 20
	return s
}

// forwardIn is the FORWARD TSN of a packet.
func (s *script) forwardIn(p Packet) (skips []chunk.Skip) {
	s.t.Helper()
	_, rest, err := chunk.Open(p.Octets)
	for len(rest) > 0 && err == nil {
		var c chunk.Chunk
		if c, rest, err = chunk.Next(rest); c.Type == chunk.TypeForwardTSN || c.Type == chunk.TypeIForwardTSN {
			f, err := chunk.ParseForwardTSN(c)
			if err != nil {
				s.t.Fatal(err)
			}
			return slices.Collect(f.Skips())
		}
	}
	s.t.Fatalf("no FORWARD TSN in %q", s.describe(p))
	return nil
}

// TestAbandon has the second of four messages expire, of which each is two chunks (RFC 3758 section 3.5): all of it is
// given up, the peer is told when all before it is acknowledged, and again until it says so.
func TestAbandon(t *testing.T) {
	s := forwarding(t, false)
	for i := range 4 {
		m := Message{Stream: 3, User: make([]byte, 2*full)}
		if i == 1 {
			m.Lifetime = 500 * time.Millisecond
		}
		s.send(m)
	}
	s.expect("begin", several(0, 8)...)
	p := s.a.paths[0]
	s.run(time.Second)
	s.expect("T3: 2 and 3 have expired, but 0 and 1 are before them", "DATA+0")
	if e, failed := s.saw(SendFailed); !failed || e.Reason != ReasonExpired || len(e.Data.User) != 2*full || e.Data.Stream != 3 {
		t.Errorf("the user is told %v %+v", failed, e)
	}
	if c := s.a.sent.at(3); !c.abandoned || c.marked || p.cwnd != pmdcs || p.ssthresh != 1<<19 {
		t.Errorf("the rest of the message is not given up, or the window is not cut (F5): %+v, %+v", c, p.congestion)
	}
	s.peer(s.sack(1, large))
	s.expect("the first is there", "DATA+1", "DATA+4")
	before := p.congestion
	s.peer(s.sack(2, large))
	packets := slices.Clone(s.packets)
	if got := s.sent(); len(got) == 0 || got[0] != "FORWARD-TSN+3" {
		t.Errorf("C3: sent is %q", got)
	}
	if skips := s.forwardIn(packets[0]); !slices.Equal(skips, []chunk.Skip{{Stream: 3, Message: 1}}) {
		t.Errorf("C4: skipped are %v", skips)
	}
	if p.cwnd != before.cwnd+pmdcs {
		t.Errorf("A2: the window has grown by more than was acknowledged: %d after %d", p.cwnd, before.cwnd)
	}
	s.peer(s.sack(2, large, chunk.Block{First: 3, Last: 3}))
	if got := s.sent(); slices.ContainsFunc(got, func(one string) bool { return strings.Contains(one, "FORWARD") }) {
		t.Errorf("F2: told again for each SACK: %q", got)
	}
	s.run(p.rto)
	if got := s.sent(); !slices.ContainsFunc(got, func(one string) bool { return strings.Contains(one, "FORWARD-TSN+3") }) {
		t.Errorf("C5: sent is %q", got)
	}
	s.peer(s.sack(8, large))
	s.run(time.Minute)
	s.take()
	if s.a.sent.length != 0 || !s.e.Next().IsZero() || s.e.Counters.Abandoned != 1 {
		t.Errorf("%d chunks are left, %+v", s.a.sent.length, s.e.Counters)
	}
}

// TestAbandonWithoutPartner keeps all messages where the peer does not know FORWARD TSN (RFC 3758 section 3.3.3).
func TestAbandonWithoutPartner(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.send(Message{User: make([]byte, 100), Lifetime: time.Millisecond, Tries: 1})
	s.run(3 * time.Second)
	s.expect("sent again", "DATA+0", "DATA+0", "DATA+0")
	s.peer(chunk.AppendForwardTSN(nil, scriptTSN+5, nil, false))
	s.expect("a FORWARD TSN that was not agreed upon", "ERROR:6")
	if s.a.got.cumulative != scriptTSN-1 {
		t.Error("it is taken")
	}
}

// TestTries gives a message up when it was sent so often.
func TestTries(t *testing.T) {
	for tries := 1; tries <= 3; tries++ {
		s := forwarding(t, false)
		s.send(Message{User: make([]byte, 100), Tries: tries})
		s.run(10 * time.Second)
		sent := 0
		for _, one := range s.sent() {
			if one == "DATA+0" {
				sent++
			}
		}
		if sent != tries {
			t.Errorf("sent %d times of %d", sent, tries)
		}
	}
}

// TestForwardFitsIntoAPacket tells of as many streams as a packet takes, and of the rest when those are acknowledged.
func TestForwardFitsIntoAPacket(t *testing.T) {
	for _, interleaved := range []bool{false, true} {
		s := forwarding(t, interleaved)
		s.a.streams = 400
		for i := range 400 {
			s.send(Message{Stream: uint16(i), User: []byte("x"), Tries: 1})
		}
		s.run(time.Second)
		for _, p := range s.packets {
			if len(p.Octets) > 1240 {
				t.Errorf("a packet of %d octets", len(p.Octets))
			}
		}
		for range 5 {
			packets := s.take()
			if len(packets) == 0 {
				break
			}
			n := len(s.forwardIn(packets[len(packets)-1]))
			s.peer(s.sack(int(s.a.acked-s.a.firstTSN+1)+n, large))
		}
		if s.a.sent.length != 0 {
			t.Errorf("%d chunks are left", s.a.sent.length)
		}
	}
}

// TestMeasureAfterAbandon measures round trips again after the chunk that was timed has been given up.
func TestMeasureAfterAbandon(t *testing.T) {
	s := forwarding(t, false)
	s.send(Message{User: []byte("x"), Tries: 1})
	s.run(time.Second)
	s.peer(s.sack(1, large))
	s.say(10)
	s.run(30 * time.Millisecond)
	s.peer(s.sack(2, large))
	if p := s.a.paths[0]; p.srtt != 30*time.Millisecond {
		t.Errorf("the round trip time is %v", p.srtt)
	}
}

// TestExpiryOfABegunMessage has the time of a message be over when half of it is sent, and the window closed: the rest is
// not sent, the peer is told not to wait for it, and others have their turn (RFC 3758 section 4.1).
func TestExpiryOfABegunMessage(t *testing.T) {
	s := forwarding(t, false)
	s.a.peerWindow = 2*full + 100
	s.send(Message{User: make([]byte, 6*full), Lifetime: 100 * time.Millisecond})
	s.say(50)
	s.expect("half", "DATA+0", "DATA+1")
	s.peer(s.sack(2, 0))
	s.run(200 * time.Millisecond)
	s.expect("the window is closed")
	s.peer(s.sack(2, large))
	s.expect("the window opens", "FORWARD-TSN+2", "DATA+3")
	if e, failed := s.saw(SendFailed); !failed || e.Reason != ReasonExpired || s.a.queued != 50 {
		t.Errorf("told %t of %+v, %d octets are in the buffer", failed, e, s.a.queued)
	}
	s.peer(s.sack(4, large))
	if s.a.queued != 0 || s.a.sent.length != 0 {
		t.Errorf("%d octets and %d chunks are left", s.a.queued, s.a.sent.length)
	}
}

// TestForwardTSN has the peer give up messages (RFC 3758 section 3.6).
func TestForwardTSN(t *testing.T) {
	forward := func(n int, skips ...chunk.Skip) []byte {
		return chunk.AppendForwardTSN(nil, scriptTSN+uint32(n), skips, false)
	}
	ordered := func(n int, stream uint16, message uint32, flags, user string) []byte {
		return (&chunk.Data{TSN: scriptTSN + uint32(n), Stream: stream, Message: message, Unordered: strings.Contains(flags, "U"),
			First: strings.Contains(flags, "B"), Last: strings.Contains(flags, "E"), User: []byte(user)}).Append(nil, false)
	}
	for _, tt := range []struct {
		name   string
		before [][]byte
		tsn    []byte
		sack   string
		got    string
		held   int
	}{
		{"the next", nil, forward(3), "SACK+3", "", 0},
		{"beyond what has come", [][]byte{ordered(5, 0, 1, "BE", "b")}, forward(3, chunk.Skip{Message: 0}), "SACK+3,2-2", "b", 0},
		{"up to what has come", [][]byte{ordered(2, 0, 1, "BE", "b"), ordered(3, 0, 2, "BE", "c")}, forward(1, chunk.Skip{Message: 0}), "SACK+3", "b c", 0},
		{"messages before the skipped one are delivered", [][]byte{ordered(2, 0, 1, "BE", "b"), ordered(4, 0, 3, "BE", "d")}, forward(3, chunk.Skip{Message: 2}), "SACK+4", "b d", 0},
		{"another stream waits on", [][]byte{ordered(3, 1, 1, "BE", "b")}, forward(1, chunk.Skip{Message: 0}), "SACK+1,2-2", "", 1 + PieceCost},
		{"half a message", [][]byte{ordered(1, 0, 0, "B", "a1"), ordered(4, 0, 1, "BE", "b")}, forward(3, chunk.Skip{Message: 0}), "SACK+4", "b", 0},
		{"half an unordered message", [][]byte{ordered(1, 0, 0, "UB", "a1"), ordered(5, 0, 0, "UB", "b1")}, forward(2), "SACK+2,3-3", "", 2 + PieceCost},
		{"out of date", [][]byte{ordered(0, 0, 0, "BE", "a"), ordered(1, 0, 1, "BE", "b")}, forward(0), "SACK+1", "", 0},
		{"a stream that there is none of", nil, forward(1, chunk.Skip{Stream: 4000, Message: 9}), "SACK+1", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := forwarding(t, false)
			for _, c := range tt.before {
				s.peer(c)
			}
			s.events, s.packets = nil, nil
			s.a.first = true
			s.peer(tt.tsn)
			s.run(200 * time.Millisecond) // delayed as that of data
			s.expect(tt.name, tt.sack)
			if got := s.received(); got != tt.got || s.a.held != tt.held {
				t.Errorf("received is %q, %d octets are held", got, s.a.held)
			}
		})
	}
	s := forwarding(t, false)
	s.peer(forward(1, chunk.Skip{Message: 0}))
	s.take()
	s.peer(ordered(1, 0, 0, "BE", "late"))
	s.expect("a skipped TSN that comes after all", "SACK+1,twice:1")
	for _, far := range []int{1 << 20, 1<<31 - 20} {
		s.peer(forward(far, chunk.Skip{Message: 7}))
		if s.a.got.cumulative != scriptTSN+uint32(far) {
			t.Errorf("far ahead: %d", s.a.got.cumulative-scriptTSN)
		}
	}
}

// TestTruncated tells the user that no more of a message will come of which he has the beginning.
func TestTruncated(t *testing.T) {
	s := forwarding(t, false)
	s.a.par.ReceiveBuffer = 4000
	for n := range 3 {
		s.peer((&chunk.Data{TSN: scriptTSN + uint32(n), First: n == 0, User: make([]byte, 1000)}).Append(nil, false))
	}
	if _, begun := s.saw(Received); !begun {
		t.Fatal("nothing of it is delivered")
	}
	s.peer(chunk.AppendForwardTSN(nil, scriptTSN+4, []chunk.Skip{{Message: 0}}, false))
	if _, told := s.saw(Truncated); !told || s.a.held != 0 {
		t.Errorf("%d octets are held", s.a.held)
	}
}

// TestWrongKindOfForward ends the association (RFC 8260 section 2.3.1).
func TestWrongKindOfForward(t *testing.T) {
	for _, interleaved := range []bool{false, true} {
		s := forwarding(t, interleaved)
		s.peer(chunk.AppendForwardTSN(nil, scriptTSN, nil, !interleaved))
		s.expect(fmt.Sprint(interleaved), "ABORT:13")
	}
}

// TestAbandonUnsentRest gives up a message whose first half has come although its sender does not know: the peer does not
// wait for the other.
func TestAbandonUnsentRest(t *testing.T) {
	for _, interleaved := range []bool{false, true} {
		par := quiet()
		par.Interleaving = interleaved
		w := pair(t, par)
		h := w.hosts[0]
		if err := h.a.Send(Message{User: make([]byte, 100_000), Tries: 1}, w.now, &h.out); err != nil {
			t.Fatal(err)
		}
		h.flush()
		w.lost = func(from int, _ Packet) bool { return from == 1 }
		w.run(1500 * time.Millisecond)
		w.lost = nil
		h.say(0, []byte("next"), false)
		w.run(10 * time.Second)
		w.expect(1, []string{"0:next"})
		if a := w.hosts[1].a; a.held != 0 || h.a.sent.length != 0 {
			t.Errorf("%d octets are held, %d chunks are left", a.held, h.a.sent.length)
		}
	}
}

// TestForwardTakesAWorkingPath tells by another path when the one in use fails while nothing else is sent.
func TestForwardTakesAWorkingPath(t *testing.T) {
	par := quiet()
	s := newScript(t, par, 1, 2)
	s.init.ForwardTSN = true
	s.accept()
	s.confirmAll()
	s.send(Message{User: []byte("x"), Tries: 1})
	s.run(time.Second)
	s.take()
	s.run(5 * time.Second)
	if got := s.sent(); len(got) == 0 || got[0] != "to 1: FORWARD-TSN+0" {
		t.Errorf("sent is %q", got)
	}
}
