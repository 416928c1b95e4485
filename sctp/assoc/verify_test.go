// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// heartbeatIn is the HEARTBEAT of a packet, as its answer.
func heartbeatIn(p Packet) (ack []byte, ok bool) {
	_, rest, err := chunk.Open(p.Octets)
	for len(rest) > 0 && err == nil {
		var c chunk.Chunk
		if c, rest, err = chunk.Next(rest); err == nil && c.Type == chunk.TypeHeartbeat {
			return chunk.Append(nil, chunk.TypeHeartbeatAck, 0, c.Body), true
		}
	}
	return nil, false
}

// TestUnconfirmedAddresses has a peer name an address that never answers, while its own one fails: nothing but
// HEARTBEATs goes to the other, and nothing from there is answered there but HEARTBEATs (RFC 9260 section 5.4).
func TestUnconfirmedAddresses(t *testing.T) {
	s := accepted(t, Defaults(), 1, 2)
	victim := Pair{s.local[0], scriptRemote[1]}
	s.say(100)
	s.say(5000)
	s.run(30 * time.Second)
	s.raw(victim, s.a.tag, s.data(0, "x"))
	s.raw(victim, s.a.tag, s.data(1, "x"), s.data(1, "x"))
	s.raw(victim, s.a.tag, chunk.Append(nil, 0xfe, 0, nil))
	s.raw(victim, s.a.tag, chunk.AppendShutdown(nil, s.a.firstTSN-1))
	s.run(time.Minute)
	to := 0
	for _, p := range s.take() {
		if p.Remote == victim.Remote {
			to++
			if got := s.describe(p); got != "to 1: HEARTBEAT" {
				t.Errorf("sent is %q", got)
			}
		}
	}
	if to < 5 {
		t.Errorf("%d heartbeats", to)
	}
	s.raw(victim, s.a.tag, chunk.AppendHeartbeat(nil, []byte("abc")), chunk.Append(nil, 0xfe, 0, nil), chunk.AppendHeartbeat(nil, []byte("d")))
	if got := s.sent(); len(got) == 0 || got[0] != "to 1: HEARTBEAT-ACK HEARTBEAT-ACK" || len(got) > 1 && !strings.HasPrefix(got[1], "ERROR:6") {
		t.Errorf("HEARTBEATs are answered with %q", got)
	}
	s.raw(victim, s.a.tag, s.a.wrongCumulative())
	for _, p := range s.take() {
		if p.Remote == victim.Remote {
			t.Errorf("sent is %q", s.describe(p))
		}
	}
}

// wrongCumulative acknowledges what was not sent, which has the association aborted.
func (a *Association) wrongCumulative() []byte {
	return chunk.AppendSACK(nil, a.nextTSN+100, 1000, nil, nil)
}

// TestProbesAreLimited has a peer name as many addresses as may be: all of them together get no more than
// HB.Max.Burst HEARTBEATs in an RTO (RFC 9260 section 5.4), the errors do not count for the association, and an
// address that does not answer gets fewer.
func TestProbesAreLimited(t *testing.T) {
	for _, burst := range []int{1, 3} {
		par := Defaults()
		par.HeartbeatMaxBurst, par.AssociationMaxRetrans = burst, 1
		s := newScript(t, par, 2, 1)
		for i := range 40 {
			s.init.Addresses = append(s.init.Addresses, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0x66, 15: byte(i + 1)}))
		}
		s.accept()
		last, n := 0, 0
		for second := range 300 {
			s.run(time.Second)
			got := 0
			for _, p := range s.take() {
				if p.Remote == scriptRemote[0] {
					if ack, ok := heartbeatIn(p); ok { // by the one that is the peer's, all is answered
						s.raw(p.Pair, s.a.tag, ack)
					}
					continue
				}
				if got++; s.describe(p) != "to -1: HEARTBEAT" {
					t.Errorf("sent is %q", s.describe(p))
				}
			}
			if n += got; got > 2*burst || last+got > 3*burst { // an RTO may lie across two seconds
				t.Fatalf("second %d: %d probes", second, got)
			}
			last = got
		}
		if n < 30 {
			t.Errorf("%d probes in all", n)
		}
		if s.a.state != established {
			t.Error("unconfirmed addresses have ended the association")
		}
	}
}

// TestLostProbe asks by an unconfirmed path again when the answer is an RTO late, and twice that and so on, until the path
// is inactive, from when on it is asked each HB.interval (RFC 9260 sections 5.4 and 8.2). The next answer confirms it.
func TestLostProbe(t *testing.T) {
	par := strict()
	par.PathMaxRetrans = 3
	s := accepted(t, par, 1, 2)
	second := s.a.path(Pair{s.local[0], s.remote[1]})
	probe := func() (ack []byte, after time.Duration) {
		for began := s.now; s.now.Sub(began) < 3*time.Minute; s.run(s.e.Next().Sub(s.now)) {
			for _, p := range s.take() {
				ack, _ := heartbeatIn(p)
				if p.Remote == second.Remote {
					return ack, s.now.Sub(began)
				}
				s.raw(p.Pair, s.a.tag, ack)
			}
		}
		t.Fatal("no probe")
		return nil, 0
	}
	want := []time.Duration{0, par.RTOInitial, 2 * par.RTOInitial, 4 * par.RTOInitial}
	for n, want := range want {
		if _, after := probe(); after != want || second.errors != n || second.state != Active {
			t.Errorf("probe %d comes after %v, not %v: %d errors, %v", n+1, after, want, second.errors, second.state)
		}
	}
	ack, after := probe()
	if after < par.HeartbeatInterval || second.state != Inactive || s.a.errors != 0 {
		t.Errorf("an inactive path is asked after %v: %v, %d errors of the association", after, second.state, s.a.errors)
	}
	s.raw(second.Pair, s.a.tag, ack)
	if !second.confirmed || second.state != Active || second.errors != 0 {
		t.Errorf("not confirmed by the answer: %v, %d errors", second.state, second.errors)
	}
}

// TestVerification confirms an address by the right nonce alone.
func TestVerification(t *testing.T) {
	s := accepted(t, Defaults(), 1, 2)
	second := s.a.path(Pair{s.local[0], scriptRemote[1]})
	s.run(time.Second)
	packets := s.take()
	if len(packets) == 0 || packets[0].Remote != scriptRemote[1] {
		t.Fatal("no probe")
	}
	ack, _ := heartbeatIn(packets[0])
	for i := range 8 { // each octet of the nonce
		forged := append([]byte{}, ack...)
		forged[8+i] ^= 1
		s.raw(s.pair, s.a.tag, forged)
	}
	later := append([]byte{}, ack...)
	later[16] = 0x7f // sent in the future
	s.raw(s.pair, s.a.tag, later)
	before := append([]byte{}, ack...)
	before[16] = 0xff // before the association
	s.raw(s.pair, s.a.tag, before)
	s.peer(plain(chunk.TypeHeartbeatAck))
	s.peer(chunk.AppendHeartbeat(nil, nil))
	if second.confirmed || second.measured || s.e.Counters.BadHeartbeat != 11 {
		t.Errorf("confirmed by a wrong nonce: %+v", s.e.Counters)
	}
	s.raw(s.pair, s.a.tag, ack)
	e, ok := s.saw(PathConfirmed)
	if !second.confirmed || !ok || e.Pair != second.Pair || second.srtt <= 0 || second.srtt > time.Second {
		t.Errorf("not confirmed by the right nonce: %v %+v", ok, e)
	}
}

// TestUnnamedSource has the answer to our INIT come from an address that our user has not named (RFC 9260 section 5.4):
// it is not confirmed. If the one that he has named is not the peer's after all, the COOKIE ECHO goes there with a
// HEARTBEAT, and no data before that is answered.
func TestUnnamedSource(t *testing.T) {
	other := Pair{scriptLocal[0], scriptRemote[1]}
	s := connecting(t, quiet(), 1, 1)
	s.take()
	s.init.Addresses = scriptRemote
	ack := s.edited(chunk.TypeInitAck, func(*chunk.Init) {})
	s.raw(other, s.a.tag, ack)
	s.remote = scriptRemote
	s.expect("INIT ACK from another address", "COOKIE-ECHO")
	if s.a.path(other).confirmed {
		t.Error("the other address is confirmed")
	}

	s = connecting(t, quiet(), 1, 1)
	s.take()
	s.raw(other, s.a.tag, ack[:20]) // without a list
	if len(s.take()) > 0 {
		t.Fatal("an INIT ACK of a wrong length")
	}
	s.init.Addresses = nil
	s.raw(other, s.a.tag, s.edited(chunk.TypeInitAck, func(*chunk.Init) {}))
	s.remote = scriptRemote
	packets := s.packets
	s.expect("INIT ACK from another address alone", "to 1: COOKIE-ECHO HEARTBEAT")
	s.raw(other, s.a.tag, plain(chunk.TypeCookieAck), s.data(0, "x"))
	s.say(100)
	for _, got := range s.sent() {
		if got != "to 1: HEARTBEAT" {
			t.Errorf("sent is %q", got)
		}
	}
	answer, _ := heartbeatIn(packets[0])
	s.raw(other, s.a.tag, answer)
	s.expect("confirmed", "to 1: SACK+0 DATA+0")
}

// TestCookieFromUnconfirmed has the COOKIE ECHO come from an address that the INIT ACK was not sent to: the answer goes
// to the one that is confirmed.
func TestCookieFromUnconfirmed(t *testing.T) {
	s := newScript(t, quiet(), 1, 2)
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	ack := s.initAck()
	s.raw(Pair{s.local[0], scriptRemote[1]}, ack.Tag, chunk.Append(nil, chunk.TypeCookieEcho, 0, ack.Cookie))
	s.expect("cookie", "COOKIE-ACK")
}
