// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// plain is a chunk without a body.
func plain(t chunk.Type) []byte { return chunk.Append(nil, t, 0, nil) }

// TestOutOfTheBlue goes through the list of RFC 9260 section 8.4.
func TestOutOfTheBlue(t *testing.T) {
	stale := chunk.AppendError(nil, chunk.TypeError, 0, chunk.Cause{Code: chunk.CauseStaleCookie, Value: make([]byte, 4)})
	other := chunk.AppendError(nil, chunk.TypeError, 0, chunk.Cause{Code: chunk.CauseOutOfResource})
	both := chunk.AppendError(nil, chunk.TypeError, 0, chunk.Cause{Code: chunk.CauseOutOfResource}, chunk.Cause{Code: chunk.CauseStaleCookie, Value: make([]byte, 4)})
	data := (&chunk.Data{TSN: 1, First: true, Last: true, User: []byte("x")}).Append(nil, false)
	for _, tt := range []struct {
		name   string
		chunks [][]byte
		want   []string
	}{
		{"DATA", [][]byte{data}, []string{"ABORT(T)"}},
		{"HEARTBEAT", [][]byte{chunk.AppendHeartbeat(nil, []byte("x"))}, []string{"ABORT(T)"}},
		{"ABORT", [][]byte{plain(chunk.TypeAbort)}, nil},
		{"ABORT behind DATA", [][]byte{data, plain(chunk.TypeAbort)}, nil},
		{"ABORT behind a SHUTDOWN ACK", [][]byte{plain(chunk.TypeShutdownAck), plain(chunk.TypeAbort)}, nil},
		{"SHUTDOWN ACK", [][]byte{plain(chunk.TypeShutdownAck)}, []string{"SHUTDOWN-COMPLETE(T)"}},
		{"SHUTDOWN ACK behind an ERROR", [][]byte{stale, plain(chunk.TypeShutdownAck)}, []string{"SHUTDOWN-COMPLETE(T)"}},
		{"SHUTDOWN COMPLETE", [][]byte{plain(chunk.TypeShutdownComplete)}, nil},
		{"SHUTDOWN", [][]byte{chunk.AppendShutdown(nil, 1)}, []string{"ABORT(T)"}},
		{"stale cookie", [][]byte{stale}, nil},
		{"stale cookie behind another cause", [][]byte{both}, nil},
		{"another error", [][]byte{other}, []string{"ABORT(T)"}},
		{"COOKIE ACK", [][]byte{plain(chunk.TypeCookieAck)}, nil},
		{"COOKIE ACK and DATA", [][]byte{plain(chunk.TypeCookieAck), data}, nil},
		{"unknown chunk", [][]byte{plain(0x3f)}, []string{"ABORT(T)"}},
		{"forged COOKIE ECHO", [][]byte{chunk.Append(nil, chunk.TypeCookieEcho, 0, make([]byte, 200))}, nil},
		{"INIT ACK", [][]byte{(&chunk.Init{Tag: 1, Window: 2000, Out: 1, In: 1}).Append(nil, chunk.TypeInitAck)}, []string{"ABORT(T)"}},
		{"INIT with a tag", [][]byte{(&chunk.Init{Tag: 1, Window: 2000, Out: 1, In: 1}).Append(nil, chunk.TypeInit)}, nil},
		{"a chunk that is cut off", [][]byte{data, {0, 3, 0, 200}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, quiet(), 1, 1)
			s.a = &Association{endpoint: s.e} // for TSNs alone
			s.raw(s.pair, 0x1234, tt.chunks...)
			for _, p := range s.packets {
				h, _, _ := chunk.Open(p.Octets)
				if h != (chunk.Header{Source: scriptPort, Destination: scriptPeerPort, Tag: 0x1234}) || p.Pair != s.pair {
					t.Errorf("the answer goes to %+v by %v", h, p.Pair)
				}
			}
			s.expect(tt.name, tt.want...)
			if len(s.e.byTag)+len(s.e.byPeer)+len(s.events) > 0 {
				t.Error("a packet of no association makes one")
			}
		})
	}
}

// TestNotUnicast drops packets from and to addresses of many hosts, or of none (RFC 9260 section 8.4, 1).
func TestNotUnicast(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	for _, one := range []string{"ff02::1", "::", "224.0.0.1", "255.255.255.255", "0.0.0.0"} {
		s.raw(Pair{s.local[0], netip.MustParseAddr(one)}, 1, plain(chunk.TypeShutdownAck))
		s.raw(Pair{netip.MustParseAddr(one), s.remote[0]}, 1, plain(chunk.TypeShutdownAck))
	}
	s.expect("addresses of many")
	if s.e.Counters.NotOurs != 10 {
		t.Errorf("%+v", s.e.Counters)
	}
}

// TestVerificationTag has an association get packets with tags that are not its own (RFC 9260 sections 8.5 and
// 8.5.1).
func TestVerificationTag(t *testing.T) {
	aborted := func(flags uint8) []byte { return chunk.Append(nil, chunk.TypeAbort, flags, nil) }
	for _, tt := range []struct {
		name  string
		tag   func(a *Association) uint32
		chunk []byte
		ends  bool
	}{
		{"ABORT with our tag", func(a *Association) uint32 { return a.tag }, aborted(0), true},
		{"ABORT with the peer's tag and the T bit", func(a *Association) uint32 { return a.peerTag }, aborted(chunk.Reflected), true},
		{"ABORT with the peer's tag", func(a *Association) uint32 { return a.peerTag }, aborted(0), false},
		{"ABORT with our tag and the T bit", func(a *Association) uint32 { return a.tag }, aborted(chunk.Reflected), false},
		{"ABORT with another tag", func(*Association) uint32 { return 77 }, aborted(0), false},
		{"ABORT with another tag and the T bit", func(*Association) uint32 { return 77 }, aborted(chunk.Reflected), false},
		{"ABORT with tag 0", func(*Association) uint32 { return 0 }, aborted(chunk.Reflected), false},
		{"HEARTBEAT with another tag", func(*Association) uint32 { return 77 }, chunk.AppendHeartbeat(nil, []byte("x")), false},
		{"HEARTBEAT with tag 0", func(*Association) uint32 { return 0 }, chunk.AppendHeartbeat(nil, []byte("x")), false},
		{"SHUTDOWN with another tag", func(*Association) uint32 { return 77 }, chunk.AppendShutdown(nil, 0), false},
		{"SHUTDOWN ACK with another tag", func(*Association) uint32 { return 77 }, plain(chunk.TypeShutdownAck), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := accepted(t, quiet(), 1, 1)
			s.raw(s.pair, tt.tag(s.a), tt.chunk)
			if ended := s.a.state == closed; ended != tt.ends {
				t.Errorf("the association has ended: %t", ended)
			}
			s.expect(tt.name)
		})
	}
}

// TestStrangers has packets with the right tag come from addresses that are not the peer's: they are dropped without
// an answer, since an ABORT would end an association whose new address is merely early (RFC 5061 section 5.3, F2).
func TestStrangers(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	stranger := Pair{s.local[0], addresses("2001:db8:66::1")[0]}
	for _, c := range [][]byte{
		chunk.AppendHeartbeat(nil, []byte("x")), s.data(0, "x"), plain(chunk.TypeAbort), plain(chunk.TypeShutdownAck), chunk.AppendShutdown(nil, 0),
	} {
		s.raw(stranger, s.a.tag, c)
	}
	s.expect("packets of a stranger")
	if s.a.state != established || s.e.Counters.Stranger != 5 || len(s.a.paths) != 1 {
		t.Errorf("state %d, %d paths, %+v", s.a.state, len(s.a.paths), s.e.Counters)
	}
}

// TestOwnStrangers has packets of the peer's come to an address of this host that the association does not have: it
// gets no path to there.
func TestOwnStrangers(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.raw(Pair{addresses("2001:db8:77::1")[0], s.remote[0]}, s.a.tag, s.data(0, "x"))
	s.expect("a packet to an address that is not the association's")
	if len(s.a.paths) != 1 || s.received() != "" {
		t.Errorf("%d paths", len(s.a.paths))
	}
}

// TestSetupTagExceptions has SHUTDOWN ACKs come while an association is set up (RFC 9260 section 8.5.1, E), and
// packets that are only right later.
func TestSetupTagExceptions(t *testing.T) {
	s := connecting(t, quiet(), 1, 1)
	s.expect("set-up", "INIT")
	s.raw(s.pair, 0x4321, plain(chunk.TypeShutdownAck))
	s.expect("SHUTDOWN ACK of an association before", "SHUTDOWN-COMPLETE(T)")
	s.peer(chunk.AppendShutdown(nil, 0))
	s.peer(plain(chunk.TypeCookieAck))
	s.peer(s.data(0, "x"))
	s.expect("what comes too early")
	if s.a.state != cookieWait {
		t.Errorf("state %d", s.a.state)
	}
	s.answerInit("cookie")
	s.expect("INIT ACK", "COOKIE-ECHO")
	s.raw(s.pair, 0x4321, plain(chunk.TypeShutdownAck))
	s.expect("SHUTDOWN ACK of an association before", "SHUTDOWN-COMPLETE(T)")
	s.peer(chunk.AppendShutdown(nil, 0))
	s.peer(s.data(0, "x"))
	s.expect("what comes too early")
	s.peer(chunk.AppendHeartbeat(nil, []byte("x")))
	s.expect("HEARTBEAT in COOKIE-ECHOED", "HEARTBEAT-ACK")
	if s.a.state != cookieEchoed || s.received() != "" {
		t.Errorf("state %d", s.a.state)
	}
}

// TestReflectedStandsAlone has a packet carry the peer's own tag, as a SHUTDOWN COMPLETE with the T bit may, and data behind
// that. The data is not the association's, and but in SHUTDOWN-ACK-SENT the packet changes nothing at all (RFC 9260 sections
// 6.10, 8.5 and 8.5.1, C).
func TestReflectedStandsAlone(t *testing.T) {
	for at := range states[1:] {
		s := reachState(t, at+1)
		ends := s.a.state == shutdownAckSent
		s.now = s.now.Add(time.Millisecond)
		b := chunk.Begin(nil, chunk.Header{Source: scriptPeerPort, Destination: scriptPort, Tag: s.a.peerTag})
		b = append(chunk.Append(b, chunk.TypeShutdownComplete, chunk.Reflected, nil), s.data(0, "forged")...)
		chunk.Seal(b)
		s.e.Handle(Packet{Pair: s.pair, Port: 9, Octets: b}, s.now, &s.out)
		s.collect()
		s.expect(states[at+1].name)
		if ended := s.a.state == closed; ended != ends || s.received() != "" || s.a.paths[0].port != 0 {
			t.Errorf("%s: the association has ended: %t; packets go to port %d", states[at+1].name, ended, s.a.paths[0].port)
		}
	}
}
