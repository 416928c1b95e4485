// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// shutdownUpTo is a SHUTDOWN of the peer's that acknowledges the first n chunks.
func (s *script) shutdownUpTo(n int) []byte {
	return chunk.AppendShutdown(nil, s.a.firstTSN-1+uint32(n))
}

// over checks that the association has ended as it should, and nothing is left of it.
func (s *script) over() {
	s.t.Helper()
	if _, ok := s.saw(Closed); !ok || len(s.e.byTag)+len(s.e.byPeer) > 0 || !s.e.Next().IsZero() {
		s.t.Errorf("not closed: state %d, %d associations", s.a.state, len(s.e.byTag))
	}
}

// TestShutdown ends an association from this side, when all is acknowledged (RFC 9260 section 9.2).
func TestShutdown(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(full)
	s.say(full)
	s.shutdown()
	s.expect("data is outstanding", "DATA+0", "DATA+1")
	if err := s.a.Send(Message{User: []byte("x")}, s.now, &s.out); err != ErrNotOpen {
		t.Errorf("more is taken: %v", err)
	}
	s.peer(s.sack(1, large))
	s.peer(s.data(0, "the peer goes on"))
	s.expect("not yet all", "SACK+0")
	s.run(time.Second)
	s.expect("T3", "DATA+1")
	s.peer(s.sack(2, large))
	s.expect("all", "SHUTDOWN")
	s.peer(plain(chunk.TypeShutdownComplete))
	s.expect("a SHUTDOWN COMPLETE that no one waits for")
	s.peer(plain(chunk.TypeShutdownAck))
	s.expect("the end", "SHUTDOWN-COMPLETE")
	s.over()
}

// TestImmediateBit has the last data of an association that ends ask for its SACK at once (RFC 9260 section 6.1).
func TestImmediateBit(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(5 * full)
	s.shutdown()
	s.take()
	s.peer(s.sack(4, large))
	packets := s.take()
	if _, rest, _ := chunk.Open(packets[0].Octets); len(packets) != 1 || rest[1] != 0x09 {
		t.Errorf("the flags are %#x", rest[1])
	}
}

// TestImmediateBitWhereNothingElseMayGo has one packet fill the peer's window, that of the path, or our send buffer: it asks
// for its SACK at once, for nothing else would be sent until then. Two packets are acknowledged at once anyway.
func TestImmediateBitWhereNothingElseMayGo(t *testing.T) {
	for _, tt := range []struct {
		name     string
		buffer   int
		say      int
		prepare  func(s *script)
		want     byte // flags of the first packet's data
		messages int
	}{
		{"room everywhere", 100_000, 1000, func(*script) {}, 0x03, 1},
		{"the send buffer", 1900, 1000, func(*script) {}, 0x0b, 1},
		{"the peer's window", 100_000, 1000, func(s *script) { s.a.peerWindow = 1900 }, 0x0b, 2},
		{"the path's window", 100_000, full, func(s *script) { s.a.paths[0].cwnd = full }, 0x0b, 2},
		{"two packets", 100_000, full, func(s *script) { s.a.paths[0].cwnd = 2 * full }, 0x03, 3},
	} {
		par := quiet()
		par.SendBuffer = tt.buffer
		s := accepted(t, par, 1, 1)
		tt.prepare(s)
		for range tt.messages - 1 { // they wait
			s.a.state = cookieEchoed
			s.say(tt.say)
			s.a.state = established
		}
		s.say(tt.say)
		for i, p := range s.take() {
			if _, rest, _ := chunk.Open(p.Octets); rest[1] != tt.want && (i == 0 || rest[1] != 0x03) {
				t.Errorf("%s: the flags of packet %d are %#x", tt.name, i, rest[1])
			}
		}
	}
}

// TestPeerShutdown ends it from the peer's side (RFC 9260 section 9.2).
func TestPeerShutdown(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(6 * full)
	s.take()
	s.peer(s.shutdownUpTo(2))
	if _, told := s.saw(PeerShutdown); !told || s.a.state != shutdownReceived {
		t.Errorf("state %d", s.a.state)
	}
	s.expect("data goes on", "DATA+4", "DATA+5")
	if err := s.a.Send(Message{User: []byte("x")}, s.now, &s.out); err != ErrNotOpen {
		t.Errorf("more is taken: %v", err)
	}
	s.shutdown()
	s.peer(s.data(0, "x"))
	s.expect("our user's shutdown, and data of a peer that has ended")
	if s.received() != "" || s.a.state != shutdownReceived {
		t.Errorf("state %d", s.a.state)
	}
	s.peer(s.shutdownUpTo(4))
	s.peer(s.sack(4, large, chunk.Block{First: 2, Last: 2}))
	s.run(time.Second)
	s.expect("T3", "DATA+4")
	s.peer(s.shutdownUpTo(6))
	s.expect("all", "SHUTDOWN-ACK")
	s.peer(s.shutdownUpTo(6))
	s.expect("the answer was lost", "SHUTDOWN-ACK")
	s.peer(plain(chunk.TypeShutdownComplete))
	s.expect("the end")
	s.over()
}

// TestShutdownOfWhatWasNotSent takes no TSN that was not sent.
func TestShutdownOfWhatWasNotSent(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(full)
	s.take()
	s.peer(s.shutdownUpTo(2))
	s.expect("a lie", "ABORT:13")
}

// TestShutdownCollision has both sides end at once (RFC 9260 section 9.2).
func TestShutdownCollision(t *testing.T) {
	s := reachState(t, 4)
	s.peer(s.shutdownUpTo(0))
	s.expect("both", "SHUTDOWN-ACK")
	if s.a.state != shutdownAckSent {
		t.Errorf("state %d", s.a.state)
	}
	s.peer(plain(chunk.TypeShutdownAck))
	s.expect("both again", "SHUTDOWN-COMPLETE")
	s.over()

	w := pair(t, Defaults())
	for i, h := range w.hosts {
		h.say(0, []byte{byte(i)}, false)
		h.a.Shutdown(w.now, &h.out)
		h.flush()
	}
	w.run(5 * time.Second)
	for _, h := range w.hosts {
		if !h.saw(Closed) || len(h.end.byTag) > 0 || len(h.got) != 1 {
			t.Errorf("host %d: %v, %q", h.index, h.events, h.got)
		}
	}
}

// TestLostShutdownComplete has the last chunk get lost: the answer of a peer that has forgotten the association ends it
// (RFC 9260 sections 8.4, 5, and 8.5.1, C).
func TestLostShutdownComplete(t *testing.T) {
	w := pair(t, Defaults())
	lost := 0
	w.lost = func(_ int, p Packet) bool {
		if has(p, chunk.TypeShutdownComplete) {
			lost++
		}
		return has(p, chunk.TypeShutdownComplete) && lost <= 2
	}
	w.hosts[0].a.Shutdown(w.now, &w.hosts[0].out)
	w.hosts[0].flush()
	w.run(20 * time.Second)
	if !w.hosts[1].saw(Closed) || lost != 3 {
		t.Errorf("state %d, %d were lost", w.hosts[1].a.state, lost)
	}
}

// TestLateBeforeShutdownComplete has a heartbeat come behind the SHUTDOWN ACK, by another path: an ABORT in answer might be
// there before the SHUTDOWN COMPLETE. A second later there was no association (RFC 9260 section 8.4, 8).
func TestLateBeforeShutdownComplete(t *testing.T) {
	s := ready(t, quiet(), 1, 2)
	tag, other := s.a.tag, Pair{s.local[0], s.remote[1]}
	s.shutdown()
	s.expect("shutdown", "SHUTDOWN")
	s.peer(plain(chunk.TypeShutdownAck))
	s.expect("the answer", "SHUTDOWN-COMPLETE")
	heartbeat := chunk.AppendHeartbeat(nil, []byte("x"))
	s.raw(other, tag, heartbeat)
	s.expect("late")
	s.raw(other, tag+1, heartbeat)
	s.expect("of another association", "to 1: ABORT(T)")
	s.raw(s.pair, tag, plain(chunk.TypeShutdownAck))
	s.expect("the SHUTDOWN COMPLETE was lost", "SHUTDOWN-COMPLETE(T)")
	s.run(partedTime)
	s.raw(other, tag, heartbeat)
	s.expect("a second later", "to 1: ABORT(T)")
}

// TestDataAfterShutdown has data come in SHUTDOWN-SENT: it is answered with a SHUTDOWN at once, and a SACK where there
// are gaps or duplicates, and T2 begins anew (RFC 9260 section 9.2).
func TestDataAfterShutdown(t *testing.T) {
	s := ready(t, quiet(), 1, 1)
	s.shutdown()
	s.expect("shutdown", "SHUTDOWN")
	s.run(900 * time.Millisecond)
	s.peer(s.data(1, "a"))
	packets := s.packets
	s.expect("data", "SHUTDOWN")
	if _, rest, _ := chunk.Open(packets[0].Octets); rest[7] != byte(scriptTSN+1) {
		t.Errorf("the SHUTDOWN is %x", rest)
	}
	s.run(900 * time.Millisecond)
	s.expect("T2 has begun anew")
	s.peer(s.data(3, "gap"))
	s.expect("a gap", "SHUTDOWN SACK+1,2-2")
	s.peer(s.data(2, "fill"))
	s.expect("the gap is filled", "SHUTDOWN")
	s.peer(s.data(3, "again"))
	s.expect("a duplicate", "SHUTDOWN SACK+3,twice:3")
	if got := s.received(); got != "a fill gap" && got != "a gap fill" {
		t.Errorf("received is %q", got)
	}
}

// TestShutdownTimer sends SHUTDOWN and SHUTDOWN ACK again, RTO doubled, by another path if there is one, until
// Association.Max.Retrans are not answered (RFC 9260 section 9.2).
func TestShutdownTimer(t *testing.T) {
	for at, word := range map[int]string{4: "SHUTDOWN", 6: "SHUTDOWN-ACK"} {
		s := reachState(t, at)
		s.confirmAll()
		s.a.par.AssociationMaxRetrans = 3
		for n, step := range []struct {
			after time.Duration
			to    string
		}{{1, "to 1: "}, {1, ""}, {2, "to 1: "}} {
			s.run(step.after*time.Second - 1)
			s.expect("too early")
			s.run(1)
			s.expect(word, step.to+word)
			if s.a.errors != n+1 {
				t.Errorf("%d errors", s.a.errors)
			}
		}
		s.run(time.Minute)
		if e, failed := s.saw(Failed); !failed || e.Reason != ReasonNoAnswer || len(s.e.byTag) > 0 {
			t.Errorf("%s: %v %+v", word, failed, e)
		}
	}
}

// TestShutdownCountIsCleared has any packet of the peer's clear the count of the sender of a SHUTDOWN, and begin T2 anew
// (RFC 9260 section 9.2).
func TestShutdownCountIsCleared(t *testing.T) {
	s := reachState(t, 4)
	s.run(3 * time.Second)
	s.take()
	if s.a.errors == 0 {
		t.Fatal("no errors yet")
	}
	s.peer(chunk.AppendHeartbeat(nil, []byte("x")))
	if rto := s.a.destination().rto; s.a.errors != 0 || !s.a.shutdownAt.Equal(s.now.Add(rto)) {
		t.Errorf("%d errors, T2 in %v", s.a.errors, s.a.shutdownAt.Sub(s.now))
	}
}

// TestShutdownGuard bounds all of it by five times RTO.Max: a peer that always has something to say does not keep the
// association (RFC 9260 section 9.2, T5).
func TestShutdownGuard(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.shutdown()
	for n := 0; s.a.state != closed && n < 1000; n++ {
		s.peer(s.data(n, "more"))
		s.run(time.Second / 2)
	}
	if e, failed := s.saw(Failed); !failed || e.Reason != ReasonNoAnswer || s.now.Sub(start) != 5*time.Minute {
		t.Errorf("%+v after %v", e, s.now.Sub(start))
	}
	got := s.sent()
	if got[len(got)-1] != "ABORT:13" {
		t.Errorf("the last is %q", got[len(got)-1])
	}
}

// TestShutdownByState has SHUTDOWNs come in states in which they are not taken.
func TestShutdownByState(t *testing.T) {
	for at := range 2 {
		s := reachState(t, at)
		s.peer(s.shutdownUpTo(0))
		s.expect(states[at].name)
		if s.a.state != states[at].state {
			t.Errorf("state %d", s.a.state)
		}
	}
	s := accepted(t, quiet(), 1, 1)
	s.peer(plain(chunk.TypeShutdownAck))
	s.peer(plain(chunk.TypeShutdownComplete))
	s.peer(chunk.Append(nil, chunk.TypeShutdown, 0, []byte{1, 2, 3}))
	s.expect("in ESTABLISHED")
	if s.a.state != established {
		t.Errorf("state %d", s.a.state)
	}
}

// TestShutdownOfSetup ends a set-up.
func TestShutdownOfSetup(t *testing.T) {
	for at, want := range []string{"", "ABORT:12"} {
		s := reachState(t, at)
		s.shutdown()
		if want == "" {
			s.expect(states[at].name)
		} else {
			s.expect(states[at].name, want)
		}
		if _, failed := s.saw(Failed); !failed || len(s.e.byTag) > 0 {
			t.Errorf("state %d", s.a.state)
		}
	}
}

// TestShutdownAfterExpiry goes on when the last message was not sent at all, since its time was over.
func TestShutdownAfterExpiry(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.a.peerWindow = 0
	s.send(Message{User: []byte("x"), Lifetime: 100 * time.Millisecond})
	s.shutdown()
	s.expect("it waits")
	s.run(1500 * time.Millisecond)
	s.expect("it is over", "SHUTDOWN")
}

// TestAbortText tells the user what the peer has said, and what we said: as much as is told of it, and without the octet 0
// that some put at its end.
func TestAbortText(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	for _, tt := range []struct {
		cause chunk.CauseCode
		said  string
		told  string
	}{
		{chunk.CauseUserAbort, "bye", "bye"}, {chunk.CauseProtocolViolation, "no \x00chunk\x00", "no \x00chunk"}, {chunk.CauseUserAbort, "", ""},
		{chunk.CauseUserAbort, long[:1000], long[:256]}, {chunk.CauseStaleCookie, "\x00\x00\x00\x01", ""},
	} {
		s := accepted(t, quiet(), 1, 1)
		s.peer(chunk.AppendError(nil, chunk.TypeAbort, 0, chunk.Cause{Code: tt.cause, Value: []byte(tt.said)}))
		if e, failed := s.saw(Failed); !failed || e.Cause != tt.cause || e.Text != tt.told {
			t.Errorf("%v %.20q: told %t, %q", tt.cause, tt.said, failed, e.Text)
		}
	}
	s := accepted(t, quiet(), 1, 1)
	s.a.Abort(long, &s.out)
	s.collect()
	if e, _ := s.saw(Failed); e.Text != long[:256] || len(s.packets) != 1 || len(s.packets[0].Octets) > 300 {
		t.Errorf("%d octets are told", len(e.Text))
	}
}

// TestAbort ends it at once, in each state (RFC 9260 section 9.1): no DATA stands with the ABORT, and one that comes is
// not answered.
func TestAbort(t *testing.T) {
	for at := range states {
		s := reachState(t, at)
		s.a.Abort("enough", &s.out)
		s.collect()
		if at == 0 {
			s.expect(states[at].name)
		} else {
			s.expect(states[at].name, "ABORT:12")
		}
		if _, failed := s.saw(Failed); !failed || len(s.e.byTag)+len(s.e.byPeer) > 0 || !s.e.Next().IsZero() {
			t.Errorf("%s: state %d", states[at].name, s.a.state)
		}
		s = reachState(t, at)
		s.peer(chunk.AppendError(nil, chunk.TypeAbort, 0, chunk.Cause{Code: chunk.CauseUserAbort, Value: []byte("bye")}), s.data(0, "x"))
		s.expect(states[at].name)
		if e, failed := s.saw(Failed); !failed || e.Reason != ReasonAborted || e.Cause != chunk.CauseUserAbort || len(s.e.byTag) > 0 {
			t.Errorf("%s: %+v", states[at].name, e)
		}
	}
}

// TestExpiryMakesRoom tells a user that waits for room when messages leave the queue since their time is over.
func TestExpiryMakesRoom(t *testing.T) {
	par := quiet()
	par.SendBuffer = 1000
	s := accepted(t, par, 1, 1)
	s.a.peerWindow = 0
	s.send(Message{User: make([]byte, 900), Lifetime: 100 * time.Millisecond})
	if err := s.a.Send(Message{User: make([]byte, 900)}, s.now, &s.out); err != ErrBlocked {
		t.Fatal(err)
	}
	s.run(100 * time.Millisecond)
	if _, writable := s.saw(Writable); !writable {
		t.Error("the user waits on")
	}
}

// TestExpiryBehindOthers has messages be over that wait behind one that is not, in its stream and in others: the user has
// the room that they took, at once or when they are over.
func TestExpiryBehindOthers(t *testing.T) {
	par := quiet()
	par.SendBuffer = 1000
	s := accepted(t, par, 1, 1)
	s.a.peerWindow = 0
	s.say(300)
	s.send(Message{User: make([]byte, 200), Lifetime: 100 * time.Millisecond})
	s.send(Message{User: make([]byte, 200), Lifetime: 150 * time.Millisecond, Stream: 1})
	s.send(Message{User: []byte("last"), Stream: 2})
	more := func() error {
		defer s.collect()
		return s.a.Send(Message{User: make([]byte, 500), Stream: 1}, s.now, &s.out)
	}
	if err := more(); err != ErrBlocked {
		t.Fatal(err)
	}
	s.run(99 * time.Millisecond)
	if _, writable := s.saw(Writable); writable {
		t.Error("there is room too soon")
	}
	s.run(51 * time.Millisecond)
	if _, writable := s.saw(Writable); !writable || s.a.queued != 304 {
		t.Errorf("writable %t, %d octets are in the buffer", writable, s.a.queued)
	}
	if err := more(); err != nil {
		t.Error(err)
	}
	s.peer(s.sack(0, large))
	if s.expect("the others", "DATA+0 DATA+1 DATA+2"); s.a.queued != 804 {
		t.Errorf("%d octets are in the buffer", s.a.queued)
	}
}
