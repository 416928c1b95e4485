// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

// Entries of strangers go after a while.
func TestSweep(t *testing.T) {
	b := newQualified(t)
	b.trusted()
	for b.now.Sub(start) < 400*time.Second {
		b.tick()
		if len(b.out.UDP) == 1 {
			b.udp(primaryPort, b.answer(mapping))
		}
	}
	if n := b.c.Snapshot().Peers; n != 0 {
		t.Errorf("%d peers after 400 s of silence", n)
	}
}

// A queue keeps the first packets, in order, and counts the others.
func TestQueueBounds(t *testing.T) {
	b := newQualified(t, func(c *client.Config) { c.QueuePackets = 2 })
	b.ip(data(b.address(), hostAddr, "one"))
	reply := b.echoReply()
	b.ip(data(b.address(), hostAddr, "two"))
	b.ip(data(b.address(), hostAddr, "three"))
	b.want("reply", b.udp(relayAddr, reply), "to relay: one", "to relay: two")
	if got := b.dropped(); got != "queue_full 1" {
		t.Errorf("dropped %q", got)
	}
	if n := b.c.Snapshot().Queued; n != 0 {
		t.Errorf("%d bytes are queued still", n)
	}
}

// A flood of strangers cannot push trusted peers out, and the table stays
// bounded.
func TestTableBounds(t *testing.T) {
	b := newQualified(t, func(c *client.Config) { c.MaxPeers = 40 })
	b.trusted()
	for i := range 1000 {
		a := hostAddr.As16()
		a[14], a[15] = byte(i>>8), byte(i)
		b.ip(data(b.address(), netip.AddrFrom16(a), "x"))
	}
	s := b.c.Snapshot()
	if s.Peers != 11 || s.Trusted != 1 {
		t.Errorf("%d peers, %d trusted", s.Peers, s.Trusted)
	}
	if got := b.dropped(); got != "peer_evicted 990" {
		t.Errorf("dropped %q", got)
	}
	if n := b.c.Stats().Evictions; n != 990 {
		t.Errorf("%d evictions", n)
	}
}

// ICMPv6 errors to the host are limited to 100 at once.
func TestErrorLimit(t *testing.T) {
	b := newQualified(t)
	n := 0
	for range 300 {
		n += len(b.ip(data(b.address(), hostAddr, strings.Repeat("x", 2000))))
	}
	if n != 100 {
		t.Errorf("%d errors for 300 packets", n)
	}
}

func TestPeers(t *testing.T) {
	b := newQualified(t)
	b.trusted()
	b.ip(data(b.address(), hostAddr, "waits"))
	got := map[netip.Addr]client.Peer{}
	if total := b.c.Peers(10, func(p client.Peer) { got[p.Address] = p }); total != 2 || len(got) != 2 {
		t.Fatalf("%d of %d peers", len(got), total)
	}
	if p := got[peerAddr]; !p.Trusted || p.Mapped != peerMapping || p.Received != b.now || !p.Sent.IsZero() {
		t.Errorf("trusted peer %+v", p)
	}
	if p := got[hostAddr]; p.Trusted || p.Mapped.IsValid() || p.Queued != 1 || p.Sent != b.now || !p.Received.IsZero() {
		t.Errorf("waiting peer %+v", p)
	}
	n := 0
	if total := b.c.Peers(1, func(client.Peer) { n++ }); total != 2 || n != 1 {
		t.Errorf("limit 1: %d of %d", n, total)
	}
}

// One socket can have any number of Teredo addresses, since server and flags are
// free: it must not take the whole list of peers, or the host could reach no one.
func TestStrangerCannotTakeThePeerTable(t *testing.T) {
	w := newWorld(t)
	n := w.qualified(nattest.NewNAT(nattest.FullCone, natA), func(c *client.Config) { c.MaxPeers = 1000 })
	quiet := netip.MustParseAddr("2001:db8::dead")
	n.say(quiet, "waits")
	stranger := netip.MustParseAddrPort("198.51.100.99:666")
	for i := range 2000 {
		a := teredo.Addr{Prefix: teredo.Prefix, Server: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), Mapped: stranger}
		n.Receive(stranger, n.local, bubble(a.IP(), n.address(), 0), w.net.Now())
	}
	s := n.engine.Snapshot()
	if s.Peers > 100 {
		t.Errorf("one stranger took %d places", s.Peers)
	}
	if s.Queued == 0 {
		t.Error("what waits for another peer was evicted")
	}
}
