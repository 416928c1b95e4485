// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// states are those of an association, and how a script comes to each.
var states = []struct {
	name  string
	state state
	reach func(t *testing.T) *script
}{
	{"COOKIE-WAIT", cookieWait, func(t *testing.T) *script { return connecting(t, quiet(), 1, 2) }},
	{"COOKIE-ECHOED", cookieEchoed, func(t *testing.T) *script {
		s := connecting(t, quiet(), 1, 2)
		s.answerInit("cookie")
		return s
	}},
	{"ESTABLISHED", established, func(t *testing.T) *script { return accepted(t, quiet(), 1, 2) }},
	{"SHUTDOWN-PENDING", shutdownPending, func(t *testing.T) *script {
		s := accepted(t, quiet(), 1, 2)
		s.say(100)
		s.shutdown()
		return s
	}},
	{"SHUTDOWN-SENT", shutdownSent, func(t *testing.T) *script {
		s := accepted(t, quiet(), 1, 2)
		s.shutdown()
		return s
	}},
	{"SHUTDOWN-RECEIVED", shutdownReceived, func(t *testing.T) *script {
		s := accepted(t, quiet(), 1, 2)
		s.say(100)
		s.peer(chunk.AppendShutdown(nil, s.a.firstTSN-1))
		return s
	}},
	{"SHUTDOWN-ACK-SENT", shutdownAckSent, func(t *testing.T) *script {
		s := accepted(t, quiet(), 1, 2)
		s.peer(chunk.AppendShutdown(nil, s.a.firstTSN-1))
		return s
	}},
}

// shutdown has the engine's user end the association.
func (s *script) shutdown() {
	s.t.Helper()
	s.a.Shutdown(s.now, &s.out)
	s.collect()
}

// reachState is a script in a state, of which nothing was sent yet.
func reachState(t *testing.T, at int) *script {
	t.Helper()
	s := states[at].reach(t)
	if s.a.state != states[at].state {
		t.Fatalf("state %d, want %s", s.a.state, states[at].name)
	}
	s.take()
	s.events = nil
	return s
}

// forge signs a cookie with tags as the test wants them: X are others, M those of the association, 0 none (RFC 9260
// section 5.2.4).
func (s *script) forge(local, peer, tie byte, made time.Time) (tag uint32, echo []byte) {
	s.e.secrets.sign(make([]byte, 100), s.now) // has a secret drawn
	c := cookie{
		made: made.UnixNano(), life: time.Minute, tag: 0x1111, tsn: 0x2222, out: 3, port: scriptPeerPort,
		random: make([]byte, chunk.RandomSize), local: s.local[0], from: s.remote[0], init: s.init,
	}
	c.init.Tag = 0x3333
	if local == 'M' {
		c.tag, c.tsn = s.a.tag, s.a.firstTSN
	}
	if peer == 'M' {
		c.init.Tag = s.a.peerTag
	}
	switch tie {
	case 'M':
		c.tie = s.a.tie
	case 'X':
		c.tie = [2]uint32{9, 9}
	}
	signed := c.append(nil)
	s.e.secrets.sign(signed, s.now)
	return c.tag, chunk.Append(nil, chunk.TypeCookieEcho, 0, signed)
}

// TestSecondCookie goes through table 12 of RFC 9260 section 5.2.4, and what it does not show, in each state.
func TestSecondCookie(t *testing.T) {
	for at := range states {
		for _, local := range []byte("XM") {
			for _, peer := range []byte("XM") {
				for _, tie := range []byte("0XM") {
					for _, stale := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s %c%c%c%c stale %t", states[at].name, local, peer, tie, tie, stale), func(t *testing.T) {
							testSecondCookie(t, at, string([]byte{local, peer, tie}), stale)
						})
					}
				}
			}
		}
	}
}

func testSecondCookie(t *testing.T, at int, row string, stale bool) {
	s := reachState(t, at)
	state := s.a.state
	if row[1] == 'M' && s.a.peerTag == 0 {
		return // the peer's tag is not known yet
	}
	s.now = s.now.Add(2 * time.Millisecond)
	s.take()
	made := s.now
	if stale {
		made = made.Add(-2 * time.Minute)
	}
	tag, echo := s.forge(row[0], row[1], row[2], made)
	before := *s.a
	s.raw(s.pair, tag, echo)
	got := s.sent()
	_, restarted := s.saw(Restarted)
	up := slices.ContainsFunc(s.events, func(e Event) bool { return e.Kind == Connected })
	unchanged := func() {
		t.Helper()
		if s.a.state != before.state || s.a.tag != before.tag || s.a.peerTag != before.peerTag || s.a.nextTSN != before.nextTSN || restarted || up {
			t.Errorf("the association has changed: state %d", s.a.state)
		}
	}
	switch {
	case stale && row[:2] != "MM":
		unchanged()
		if !slices.Equal(got, []string{"ERROR:3"}) {
			t.Errorf("a stale cookie is answered with %q", got)
		}
	case row == "XXM" && state == shutdownAckSent: // A
		unchanged()
		if !slices.Equal(got, []string{"SHUTDOWN-ACK ERROR:10"}) {
			t.Errorf("sent is %q", got)
		}
	case row == "XXM": // A
		if !restarted || s.a.state != established || s.a.tag != 0x1111 || s.a.peerTag != 0x3333 || s.a.firstTSN != 0x2222 {
			t.Errorf("restarted: %t, state %d, tags %#x %#x", restarted, s.a.state, s.a.tag, s.a.peerTag)
		}
		if !slices.Equal(got, []string{"COOKIE-ACK"}) || s.e.byTag[0x1111] != s.a || len(s.e.byTag) != 1 {
			t.Errorf("sent is %q", got)
		}
		for _, p := range s.a.paths {
			if p.cwnd != 4344 || p.ssthresh != unlimited || p.measured || p.flight != 0 {
				t.Errorf("%v is not as new", p.Pair)
			}
		}
	case row[:2] == "MX": // B
		want := state
		if state == cookieWait || state == cookieEchoed {
			want = established
		}
		if s.a.state != want || s.a.peerTag != 0x3333 || s.a.tag != before.tag || len(got) == 0 || got[0] != "COOKIE-ACK" || up != (want != state) {
			t.Errorf("state %d, tags %#x %#x, sent %q", s.a.state, s.a.tag, s.a.peerTag, got)
		}
		if !s.a.setup.IsZero() {
			t.Error("T1 runs on")
		}
	case row[:2] == "MM": // D
		want := state
		if state == cookieEchoed {
			want = established
		}
		if s.a.state != want || s.a.peerTag != before.peerTag || s.a.tag != before.tag || len(got) == 0 || got[0] != "COOKIE-ACK" || up != (want != state) {
			t.Errorf("state %d, sent %q", s.a.state, got)
		}
	default: // C, and what is not in the table
		unchanged()
		if len(got) > 0 || s.e.Counters.OldCookie != 1 {
			t.Errorf("sent is %q", got)
		}
	}
}

// TestSecondInit has INITs come in each state (RFC 9260 sections 5.2.1, 5.2.2 and 9.2): none changes anything.
func TestSecondInit(t *testing.T) {
	for at := range states {
		for _, row := range []struct {
			name string
			from Pair
			list int // addresses: the peer's, and one of a stranger
		}{
			{"of the same addresses", Pair{scriptLocal[0], scriptRemote[0]}, 2},
			{"of fewer", Pair{scriptLocal[0], scriptRemote[1]}, 0},
			{"with a new one", Pair{scriptLocal[0], scriptRemote[0]}, 3},
			{"from a new one that lists the others", Pair{scriptLocal[0], addresses("2001:db8:66::1")[0]}, 2},
		} {
			t.Run(states[at].name+" "+row.name, func(t *testing.T) {
				s := reachState(t, at)
				before := *s.a
				s.remote = scriptRemote
				init := s.init
				init.Addresses = append(slices.Clone(scriptRemote), addresses("2001:db8:66::1")...)[:row.list]
				init.Tag = 0x7777
				s.raw(row.from, 0, init.Append(nil, chunk.TypeInit))
				packets := s.packets
				got := s.sent()
				fresh := row.list == 3 || !slices.Contains(scriptRemote, row.from.Remote)
				switch state := s.a.state; {
				case state == shutdownAckSent:
					if !slices.Equal(got, []string{"SHUTDOWN-ACK"}) && !slices.Equal(got, []string{"to 1: SHUTDOWN-ACK"}) {
						t.Errorf("sent is %q", got)
					}
				case fresh && state != cookieWait:
					if len(got) != 1 || got[0] != "ABORT:11" && got[0] != "to -1: ABORT:11" {
						t.Fatalf("sent is %q", got)
					}
					h, rest, _ := chunk.Open(packets[0].Octets)
					c, _, _ := chunk.Next(rest)
					cause, _, _ := chunk.NextCause(c.Body)
					p, more, err := chunk.NextParameter(cause.Value)
					if address, ok := p.Address(); h.Tag != 0x7777 || err != nil || !ok || address != addresses("2001:db8:66::1")[0] || len(more) > 0 {
						t.Errorf("the ABORT names %v", address)
					}
				default:
					s.packets = packets
					ack := s.initAck()
					same := state == cookieWait || state == cookieEchoed
					if (ack.Tag == before.tag) != same || (ack.TSN == before.firstTSN) != same {
						t.Errorf("the INIT ACK has tag %#x, TSN %#x", ack.Tag, ack.TSN)
					}
					c, err := parseCookie(ack.Cookie)
					if err != nil || (c.tie == [2]uint32{}) != (state == cookieWait) {
						t.Errorf("the cookie has tie-tags %x, %v", c.tie, err)
					}
				}
				if s.a.state != before.state || s.a.tag != before.tag || s.a.peerTag != before.peerTag || s.a.setup != before.setup || len(s.a.paths) != len(before.paths) {
					t.Error("an INIT changes the association")
				}
			})
		}
	}
}

// TestShutdownAckToStranger has the cookie of a restart come from an address that the association does not have while
// it ends.
func TestShutdownAckToStranger(t *testing.T) {
	s := reachState(t, len(states)-1)
	tag, echo := s.forge('X', 'X', 'M', s.now)
	s.raw(Pair{s.local[0], addresses("2001:db8:66::1")[0]}, tag, echo)
	s.expect("cookie of a stranger", "SHUTDOWN-ACK ERROR:10")
}

// TestRestart has the peer crash and come back: the user is told, what was under way has failed, and data passes again
// (RFC 9260 section 5.2.4.1).
func TestRestart(t *testing.T) {
	w := pair(t, Defaults())
	old := w.hosts[0]
	w.lost = func(from int, _ Packet) bool { return from == 0 }
	w.hosts[1].say(3, []byte("lost"), false)
	w.run(100 * time.Millisecond)
	w.flies, w.lost = nil, nil
	again := newWorld(t, dual(), Defaults())
	w.hosts[0] = again.hosts[0]
	w.hosts[0].w = w
	w.hosts[0].end.random(100) // other numbers than before
	w.connect(w.hosts[1].end.config.Addresses...)
	peer := w.hosts[1]
	if !peer.saw(SendFailed) || !peer.saw(Restarted) || len(peer.end.byTag) != 1 || peer.a.tag != w.hosts[0].a.peerTag || old.a.tag == peer.a.peerTag {
		t.Errorf("not restarted: %v", peer.events)
	}
	w.hosts[0].say(0, []byte("a"), false)
	peer.say(0, []byte("b"), false)
	w.run(time.Second)
	w.expect(1, []string{"0:a"})
	w.expect(0, []string{"0:b"})
}

// TestRestartBehindShutdown has a peer begin anew that has said before that it sends nothing more, while our data was out.
func TestRestartBehindShutdown(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(100)
	s.peer(chunk.AppendShutdown(nil, s.init.TSN-1))
	if _, ok := s.saw(PeerShutdown); !ok || s.a.state != shutdownReceived {
		t.Fatalf("state %d", s.a.state)
	}
	s.take()
	s.init.Tag++
	s.accept()
	if _, ok := s.saw(Restarted); !ok {
		t.Error("the user is not told")
	}
	s.say(100)
	s.expect("a message", "DATA+0")
}

// TestRestartsOfWhoIsNotRead has a peer fill the receive buffer, and begin anew, again and again: what the user has not read
// counts on, for it is still there.
func TestRestartsOfWhoIsNotRead(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	taken := 0
	for range 5 {
		for n := range 400 {
			s.peer(s.data(n, string(make([]byte, 1000))))
		}
		for _, e := range s.events {
			if e.Kind == Received {
				taken += e.Data.Cost()
			}
		}
		s.events, s.packets, s.message = nil, nil, 0
		s.init.Tag++
		s.accept()
	}
	if most := s.a.par.ReceiveBuffer + 1000 + PieceCost; taken > most || s.a.unread != taken {
		t.Errorf("the user has %d octets to read, %d are in the books, and the buffer has %d", taken, s.a.unread, s.a.par.ReceiveBuffer)
	}
	s.a.Read(taken, s.now, &s.out)
	s.collect()
	if s.a.window() != s.a.par.ReceiveBuffer {
		t.Errorf("all is read, and the window is %d", s.a.window())
	}
}

// TestRestartUnblocks has a peer begin anew while our user waits for room: what filled the send buffer is gone, and nothing
// else would say so.
func TestRestartUnblocks(t *testing.T) {
	par := quiet()
	par.SendBuffer = 2000
	s := accepted(t, par, 1, 1)
	s.say(2000)
	if err := s.a.Send(Message{User: []byte("x")}, s.now, &s.out); err != ErrBlocked {
		t.Fatalf("the buffer takes more: %v", err)
	}
	s.take()
	s.init.Tag++
	s.accept()
	if _, ok := s.saw(Writable); !ok {
		t.Error("the user is not told of the room")
	}
}
