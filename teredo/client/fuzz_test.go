// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// sources are whom a fuzzed datagram may come from.
var sources = []netip.AddrPort{primaryPort, secondPort, peerMapping, peerRandom, foreign, relayAddr, mapping, local}

// most is what one datagram may cause to be sent: direct bubbles to the mapped
// address, four alternate ones and a random port, and an indirect bubble or the
// three packets of a prediction.
const most = 6 + 3

// fuzzed makes a client that waits for peers, behind one of three NATs.
func fuzzed(t testing.TB, nat uint8) *bench {
	b := newQualified(t, fastPath)
	switch nat % 3 {
	case 1:
		b = newSymmetric(t, preserved, fastPath)
	case 2:
		b = newSymmetric(t, mapping, fastPath)
	}
	b.ip(data(b.address(), hostAddr, "waits for a test"))
	b.ip(data(b.address(), peerAddr, "waits for bubbles"))
	return b
}

// FuzzHandleUDP sends a qualified client anything, on its service port or a random
// one: it must not panic, must not give the host's stack what is not for its
// address, must not answer with more than the rules allow, nor send to an address
// that is neither global nor a neighbour's, and must keep its books of sockets.
func FuzzHandleUDP(f *testing.F) {
	for nat := range uint8(3) {
		b := fuzzed(f, nat)
		own := b.address()
		for _, p := range [][]byte{
			data(peerAddr, own, "hi"), bubble(peerAddr, own, 7), bubble(hostAddr, own, 0),
			throughServer(peerMapping, bubble(peerAddr, own, 7)), throughServer(relayAddr, bubble(hostAddr, own, 0)),
			icmp(hostAddr, own, packet.ICMPv6EchoReply, make([]byte, teredo.EchoNonceLen)),
			icmp(hostAddr, own, packet.ICMPv6PacketTooBig, data(own, hostAddr, "x")),
			throughServer(mapping, withTrailers(neighbour, own, alternates("192.168.1.7:4000", "192.168.1.8:4000"))),
			throughServer(peerMapping, withTrailers(peerAddr, own, teredo.Trailers{HasNonce: true, Nonce: 7, RandomPort: 50505})),
			withTrailers(peerAddr, own, teredo.Trailers{Discovery: teredo.DiscoverySolicitation}),
		} {
			for i := range sources {
				f.Add(p, uint8(i), nat, i%2 == 0)
			}
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte, from, nat uint8, service bool) {
		b := fuzzed(t, nat)
		socket := client.FirstRandomSocket
		if service {
			socket = 0
		}
		open := map[int]bool{client.FirstRandomSocket: nat%3 != 0}
		for range 2 {
			b.out.Reset()
			b.c.HandleUDPOn(socket, sources[int(from)%len(sources)], bytes.Clone(payload), b.now, &b.out)
			if len(b.out.UDP) > most || len(b.out.IP) > 1 {
				t.Fatalf("%d datagrams and %d packets for one", len(b.out.UDP), len(b.out.IP))
			}
			for _, p := range b.out.IP {
				if v, rest, ok := packet.ParseIPv6(p); !ok || len(rest) > 0 || v.Dst() != b.address() {
					t.Fatalf("given to the host: %x", p)
				}
			}
			checkSockets(t, b, open)
			checkDestinations(t, b)
			if err := b.c.CheckFast(); err != nil {
				t.Fatal(err)
			}
		}
		b.now = b.now.Add(time.Minute)
		b.out.Reset()
		b.c.Tick(b.now, &b.out)
		checkSockets(t, b, open)
	})
}

// checkSockets follows the sockets that the client opens and closes.
func checkSockets(t *testing.T, b *bench, open map[int]bool) {
	t.Helper()
	for _, s := range b.out.Sockets {
		if open[s.Socket] == (s.Port != 0) {
			t.Fatalf("socket %d opened or closed twice", s.Socket)
		}
		open[s.Socket] = s.Port != 0
	}
	for _, d := range b.out.UDP {
		if d.Socket != 0 && !open[d.Socket] {
			t.Fatalf("sent by socket %d, which is closed", d.Socket)
		}
	}
}

// checkDestinations looks at where the client sends.
func checkDestinations(t *testing.T, b *bench) {
	t.Helper()
	var global teredo.GlobalCheck
	never := teredo.GlobalCheck{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}
	for _, d := range b.out.UDP {
		ok := global.OK(d.To.Addr())
		if !ok && b.c.Stats().AlternateBubbles > 0 { // to a neighbour
			ok = never.OK(d.To.Addr()) && d.To.Addr() != local.Addr() && d.To.Port() >= 1024
		}
		if !ok || d.To.Port() == 0 {
			t.Fatalf("sent to %s", d.To)
		}
	}
}

// FuzzHandleIP gives a qualified client anything from the host's stack: nothing
// from another source and nothing malformed may leave.
func FuzzHandleIP(f *testing.F) {
	own := newQualified(f).address()
	for _, p := range [][]byte{
		data(own, peerAddr, "hi"), data(own, hostAddr, "hi"), data(own, teredo.AllNodes, "hi"),
		icmp(own, hostAddr, packet.ICMPv6EchoRequest), data(own, own, "hi"), make([]byte, 1300),
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		b := newQualified(t)
		b.trusted()
		b.out.Reset()
		b.c.HandleIP(bytes.Clone(p), b.now, &b.out)
		v, rest, ok := packet.ParseIPv6(p)
		if good := ok && len(rest) == 0 && v.Src() == own && len(p) <= teredo.MTU; !good && len(b.out.UDP) > 0 {
			t.Fatalf("sent for %x: %d datagrams", p, len(b.out.UDP))
		}
		for _, d := range b.out.UDP {
			if len(d.Payload) > teredo.MTU+teredo.MaxTrailersLen {
				t.Fatalf("sent %d bytes", len(d.Payload))
			}
		}
		b.now = b.now.Add(time.Minute)
		b.c.Tick(b.now, &b.out)
	})
}
