// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// offered is the cookie of an INIT ACK with its tag.
func (s *script) offered() (tag uint32, echo []byte) {
	s.t.Helper()
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	ack := s.initAck()
	return ack.Tag, chunk.Append(nil, chunk.TypeCookieEcho, 0, ack.Cookie)
}

// TestForgedCookies changes each octet of a cookie, cuts it and makes it longer: all are dropped in silence (RFC 9260
// section 5.1.5).
func TestForgedCookies(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	empty := New(s.e.config)
	tag, echo := s.offered()
	n := uint64(0)
	try := func(e *Endpoint, forged []byte) {
		t.Helper()
		s.e = e
		before := e.Counters.BadCookie
		s.raw(s.pair, tag, forged)
		if e.Counters.BadCookie != before+1 || len(s.take()) > 0 || len(e.byTag) > 0 {
			t.Fatalf("a forged cookie: %+v", e.Counters)
		}
		n++
	}
	real := s.e
	for i := 4; i < int(binary.BigEndian.Uint16(echo[2:])); i++ { // without its padding
		forged := slices.Clone(echo)
		forged[i] ^= 0x10
		try(real, forged)
		try(real, chunk.Append(nil, chunk.TypeCookieEcho, 0, echo[4:i]))
	}
	try(real, longer(slices.Clone(echo), 0, 0, 0, 0))
	try(empty, echo) // that has drawn no secret yet
	zeros := make([]byte, 200)
	copy(zeros, mac(make([]byte, 32), zeros[32:]))
	try(empty, chunk.Append(nil, chunk.TypeCookieEcho, 0, zeros))
	s.e = real
	s.raw(s.pair, tag+1, echo)
	b := chunk.Begin(nil, chunk.Header{Source: scriptPeerPort + 1, Destination: scriptPort, Tag: tag})
	b = append(b, echo...)
	chunk.Seal(b)
	s.e.Handle(Packet{Pair: s.pair, Octets: b}, s.now, &s.out)
	s.collect()
	if len(s.take()) > 0 || s.e.Counters.BadCookie != n || len(s.e.byTag) > 0 {
		t.Errorf("a cookie with another tag or port: %+v", s.e.Counters)
	}
	s.raw(Pair{s.local[0], addresses("2001:db8:66::1")[0]}, tag, echo)
	if len(s.take()) > 0 || s.e.Counters.Stranger != 1 || len(s.e.byTag) > 0 {
		t.Errorf("a cookie from a stranger: %+v", s.e.Counters)
	}
	s.raw(s.pair, tag, echo)
	if s.a == nil || s.a.state != established {
		t.Error("the cookie itself is not taken")
	}
}

// TestStaleCookie lets a cookie's life end: the sender is told by how much (RFC 9260 sections 3.3.10.3 and 5.1.5). With
// a Cookie Preservative it lives longer, but not much.
func TestStaleCookie(t *testing.T) {
	for _, tt := range []struct {
		name           string
		preserve, wait time.Duration
		stale          time.Duration // by how much; 0 is not at all
	}{
		{"at once", 0, 0, 0},
		{"at the end of its life", 0, time.Minute, 0},
		{"a moment later", 0, time.Minute + 5*time.Microsecond, 5 * time.Microsecond},
		{"preserved", 300 * time.Millisecond, time.Minute + 300*time.Millisecond, 0},
		{"not for that long", 300 * time.Millisecond, time.Minute + 302*time.Millisecond, 2 * time.Millisecond},
		{"not for an hour", time.Hour, time.Minute + 1500*time.Millisecond, 500 * time.Millisecond},
		{"after two hours", 0, 2*time.Hour + time.Minute, 1 << 31 * time.Microsecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, quiet(), 1, 1)
			s.init.Preserve = tt.preserve
			tag, echo := s.offered()
			s.now = s.now.Add(tt.wait)
			s.raw(s.pair, tag, echo, s.data(0, "x"))
			if tt.stale == 0 {
				if s.a == nil || s.e.Counters.StaleCookie != 0 {
					t.Errorf("not taken: %+v", s.e.Counters)
				}
				return
			}
			packets := s.take()
			if len(packets) != 1 || len(s.e.byTag) > 0 || s.e.Counters.StaleCookie != 1 {
				t.Fatalf("%d packets, %+v", len(packets), s.e.Counters)
			}
			h, rest, _ := chunk.Open(packets[0].Octets)
			c, _, _ := chunk.Next(rest)
			cause, _, _ := chunk.NextCause(c.Body)
			late := time.Duration(binary.BigEndian.Uint32(cause.Value)) * time.Microsecond
			if h.Tag != scriptTag || c.Type != chunk.TypeError || cause.Code != chunk.CauseStaleCookie ||
				late != tt.stale && (tt.stale < time.Hour/2 || late < time.Hour/2) {
				t.Errorf("tag %#x, %v: %v, late by %v", h.Tag, c.Type, cause.Code, late)
			}
		})
	}
}

// TestStaleCookieOfAssociation has the cookie of an association come again after its life: the tags match, and it is
// answered (RFC 9260 section 5.2.4, 3).
func TestStaleCookieOfAssociation(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	tag, echo := s.offered()
	s.raw(s.pair, tag, echo)
	s.expect("cookie", "COOKIE-ACK")
	s.run(10 * time.Minute)
	s.raw(s.pair, tag, echo)
	s.expect("the same again", "COOKIE-ACK")
	if len(s.e.byTag) != 1 || s.e.Counters.StaleCookie != 0 {
		t.Errorf("%+v", s.e.Counters)
	}
}

// TestOldSecrets has the secret change: the one before is good for cookies that live, those before are not.
func TestOldSecrets(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	tag, echo := s.offered()
	s.now = s.now.Add(secretLife - time.Second)
	second, again := s.offered()
	s.now = s.now.Add(10 * time.Second)
	s.offered() // has the secret changed
	s.raw(s.pair, second, again)
	if s.a == nil || s.a.state != established {
		t.Error("a cookie of the secret before is not taken")
	}
	s.e.leave(s.a)
	s.take()
	s.now = s.now.Add(2 * secretLife)
	s.offered()
	s.now = s.now.Add(2 * secretLife)
	s.offered()
	s.raw(s.pair, tag, echo)
	if s.e.Counters.BadCookie != 1 || len(s.take()) > 0 {
		t.Errorf("a cookie of a secret of long ago: %+v", s.e.Counters)
	}
}

// TestReplayedCookie has a cookie come again and again: an association is made once while it lives.
func TestReplayedCookie(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	tag, echo := s.offered()
	s.raw(s.pair, tag, echo)
	first := s.a
	s.say(100)
	s.expect("cookie", "COOKIE-ACK", "DATA+0")
	for range 100 {
		s.raw(s.pair, tag, echo)
	}
	if got := s.sent(); len(got) != 100 || got[99] != "COOKIE-ACK" {
		t.Errorf("sent is %q", got)
	}
	if s.a != first || len(s.e.byTag) != 1 || s.a.sent.length != 1 {
		t.Error("a replayed cookie changes the association")
	}
}

// TestCookieAfterTheEnd has the cookie of an association come again when that has ended: it makes no second one, as long
// as it lives (RFC 9260 sections 5.1.3 and 5.1.5). The sender hears that there is none; a new INIT makes one.
func TestCookieAfterTheEnd(t *testing.T) {
	for name, end := range map[string]func(s *script){
		"aborted":   func(s *script) { s.peer(chunk.AppendError(nil, chunk.TypeAbort, 0)) },
		"shut down": func(s *script) { s.shutdown(); s.peer(plain(chunk.TypeShutdownAck)) },
		"restarted": func(s *script) {
			s.init.Tag++
			tag, echo := s.offered()
			s.raw(s.pair, tag, echo)
			s.a.Abort("", &s.out)
			s.collect()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, quiet(), 1, 1)
			tag, echo := s.offered()
			s.raw(s.pair, tag, echo)
			end(s)
			s.take()
			if len(s.e.byTag) > 0 {
				t.Fatal("the association has not ended")
			}
			s.run(time.Minute)
			s.raw(s.pair, tag, echo, s.data(0, "x"))
			if got := s.sent(); len(got) != 1 || got[0] != "ABORT(T)" || len(s.e.byTag) > 0 || s.e.Counters.OldCookie != 1 {
				t.Errorf("a cookie of an association that has ended: %q, %+v", got, s.e.Counters)
			}
			tag, echo = s.offered()
			s.raw(s.pair, tag, echo)
			s.expect("a new one", "COOKIE-ACK")
			s.a.Abort("", &s.out)
			s.run(5 * time.Minute)
			s.init.Tag++
			s.accept()
			if n := s.e.spent.queue.length; n > 0 || len(s.e.spent.tags) > 0 {
				t.Errorf("%d tags are kept for ever", n)
			}
		})
	}
}

// TestSpentCookiesAreBounded has more associations end than are remembered: cookies as old as the oldest of them count
// as spent, newer ones are taken.
func TestSpentCookiesAreBounded(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	tag, echo := s.offered()
	s.raw(s.pair, tag, echo)
	s.a.Abort("", &s.out)
	s.collect()
	s.run(time.Second)
	second, fresh := s.offered()
	for i := range maxSpent {
		s.e.spent.add(spentTag{uint32(i), s.now})
	}
	s.take()
	s.raw(s.pair, tag, echo)
	s.expect("a cookie that is not remembered", "ABORT(T)")
	s.raw(s.pair, second, fresh)
	s.expect("a cookie made since", "COOKIE-ACK")
	if n := s.e.spent.queue.length; n != maxSpent || len(s.e.spent.tags) != maxSpent {
		t.Errorf("%d and %d tags are kept", n, len(s.e.spent.tags))
	}
}

// TestStaleCookieError has our cookie be stale: a new INIT asks for a longer life, once (RFC 9260 section 5.2.6).
func TestStaleCookieError(t *testing.T) {
	stale := chunk.AppendError(nil, chunk.TypeError, 0, chunk.Cause{Code: chunk.CauseOutOfResource},
		chunk.Cause{Code: chunk.CauseStaleCookie, Value: binary.BigEndian.AppendUint32(nil, 250_000)})
	s := connecting(t, quiet(), 1, 1)
	s.peer(stale)
	s.expect("a stale cookie before there is one", "INIT")
	s.now = s.now.Add(40 * time.Millisecond)
	s.answerInit("one")
	s.expect("INIT ACK", "COOKIE-ECHO")
	s.peer(stale)
	packets := s.packets
	s.expect("stale", "INIT")
	_, rest, _ := chunk.Open(packets[0].Octets)
	c, _, _ := chunk.Next(rest)
	if init, err := chunk.ParseInit(c.Body); err != nil || init.Preserve != 290*time.Millisecond || init.Tag != s.a.tag {
		t.Errorf("the INIT asks for %v more, %v", init.Preserve, err)
	}
	s.answerInit("two")
	packets = s.packets
	s.expect("INIT ACK", "COOKIE-ECHO")
	if _, rest, _ := chunk.Open(packets[0].Octets); string(rest[4:7]) != "two" {
		t.Errorf("the cookie is %q", rest)
	}
	s.peer(stale)
	s.expect("stale again")
	if e, failed := s.saw(Failed); !failed || e.Reason != ReasonStale || len(s.e.byTag) > 0 {
		t.Errorf("%v %+v", failed, e)
	}
	s = accepted(t, quiet(), 1, 1)
	s.peer(stale)
	s.expect("stale in an association")
	if s.a.state != established {
		t.Errorf("state %d", s.a.state)
	}
}

// TestOldCookieAck drops COOKIE ACKs and INIT ACKs that no one waits for (RFC 9260 sections 5.2.3 and 5.2.5).
func TestOldCookieAck(t *testing.T) {
	s := connected(t, quiet(), 1, 1)
	s.peer(plain(chunk.TypeCookieAck))
	s.answerInit("again")
	s.expect("old answers")
	if s.a.state != established || s.e.Counters.Unexpected != 2 {
		t.Errorf("state %d, %+v", s.a.state, s.e.Counters)
	}
}
