// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// TestPeerIndex fills a table with sessions of one binding, each with another host.
func TestPeerIndex(t *testing.T) {
	b := engine(t, func(s *Settings) { s.Limits.ClientSessions = 0; s.FilterUDP = AddressDependent })
	port, other := b.openUDP(clientA, 1500, server6), b.openUDP(clientA, 1501, server6)
	bound, apart := b.binding(port), b.binding(other)
	live := func(*state.Session) bool { return true }
	host := func(i int) (a [4]byte) {
		binary.BigEndian.PutUint32(a[:], 198<<24|18<<16|uint32(i))
		return a
	}
	hosts := testSizes.Sessions - 2
	var s state.Session
	for i := range hosts {
		n := state.Fresh{Peer: host(i), PeerPort: 53, Status: state.Opened, Stamp: state.Stamp(b.now.Sub(b.epoch))}
		if o := b.table.NewSession(&bound, n, &s); o != state.Made {
			t.Fatal(o)
		}
		b.remember(n.Stamp, &s)
	}
	missing := 0
	for i := range hosts {
		if !b.met.has(b.table, &bound, host(i), live) {
			missing++
		}
		if b.met.has(b.table, &apart, host(i), live) {
			t.Errorf("host %d is one of another binding too", i)
		}
	}
	if missing > hosts/20 {
		t.Errorf("%d of %d hosts are not found", missing, hosts)
	}
	if b.met.has(b.table, &bound, host(hosts), live) {
		t.Error("a stranger is found")
	}
	if b.met.has(b.table, &bound, s.Peer, func(*state.Session) bool { return false }) {
		t.Error("a session past its lifetime counts")
	}
	if o := b.table.End(&s); o != state.Made {
		t.Fatal(o)
	}
	if b.met.has(b.table, &bound, s.Peer, live) {
		t.Error("a session that has ended counts")
	}
}

// TestPeerIndexOfOneHost: of several sessions with a host the index has one that goes on.
func TestPeerIndexOfOneHost(t *testing.T) {
	b := engine(t, func(s *Settings) { s.FilterUDP = AddressDependent })
	port := b.openUDP(clientA, 1500, server6)
	from := pkt{src: server4, dst: poolIP, proto: udpProto, payload: udpMsg(999, port, 4)}
	b.pass(b.settings.Timers.UDP / 2)
	b.in(pkt{src: clientA, dst: server6, proto: udpProto, payload: udpMsg(1500, 54, 4)})
	b.in(pkt{src: clientA, dst: other6, proto: udpProto, payload: udpMsg(1500, 54, 4)})
	b.pass(b.settings.Timers.UDP/2 + 2*sweepRound)
	bound := b.binding(port)
	if live := func(s *state.Session) bool { return b.live(state.Stamp(b.now.Sub(b.epoch)), s) }; !b.met.has(b.table, &bound, netip.MustParseAddr(server4).As4(), live) {
		t.Error("the index has the session that has ended")
	}
	b.one(b.in(from))
}

// TestPeerIndexFollowsSettings: it is there as long as a filter is, and knows what was there before.
func TestPeerIndexFollowsSettings(t *testing.T) {
	b := engine(t, nil)
	port := b.openUDP(clientA, 1500, server6)
	if b.met.buckets != nil {
		t.Error("an index without a filter")
	}
	s := testSettings(t)
	s.FilterUDP = AddressDependent
	if err := b.Reconfigure(s); err != nil {
		t.Fatal(err)
	}
	bound := b.binding(port)
	if !b.met.has(b.table, &bound, netip.MustParseAddr(server4).As4(), func(*state.Session) bool { return true }) {
		t.Error("the index does not know the session that was there before")
	}
	if err := b.Reconfigure(testSettings(t)); err != nil || b.met.buckets != nil {
		t.Errorf("the index stays without a filter; %v", err)
	}
}

// binding is that of a UDP port of the pool.
func (b *bench) binding(port uint16) (found state.Binding) {
	b.t.Helper()
	out := state.Outside{Pool: netip.MustParseAddr(poolIP).As4(), Port: port, Transport: state.UDP}
	if !b.table.FindBinding4(&out, &found) {
		b.t.Fatal("no binding")
	}
	return found
}
