// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// sources are whom a fuzzed datagram may come from.
var sources = []netip.AddrPort{primaryPort, secondPort, peerMapping, foreign, relayAddr, mapping, local}

// FuzzHandleUDP sends a qualified client anything: it must not panic, must not
// give the host's stack what is not for its address, must not answer with more
// than three packets, nor send to an address that is not global.
func FuzzHandleUDP(f *testing.F) {
	own := newQualified(f).address()
	for _, p := range [][]byte{
		data(peerAddr, own, "hi"), bubble(peerAddr, own, 7), bubble(hostAddr, own, 0),
		throughServer(peerMapping, bubble(peerAddr, own, 7)), throughServer(relayAddr, bubble(hostAddr, own, 0)),
		icmp(hostAddr, own, packet.ICMPv6EchoReply, make([]byte, teredo.EchoNonceLen)),
		icmp(hostAddr, own, packet.ICMPv6PacketTooBig, data(own, hostAddr, "x")),
		append(bubble(peerAddr, own, 7), 3, 8, 0, 0, 192, 0, 2, 1, 0, 7),
	} {
		for i := range sources {
			f.Add(p, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte, from uint8) {
		b := newQualified(t)
		b.ip(data(own, hostAddr, "waits for a test"))
		b.ip(data(own, peerAddr, "waits for bubbles"))
		for range 2 {
			b.out.Reset()
			b.c.HandleUDP(sources[int(from)%len(sources)], bytes.Clone(payload), b.now, &b.out)
			if len(b.out.UDP) > 3 || len(b.out.IP) > 1 {
				t.Fatalf("%d datagrams and %d packets for one", len(b.out.UDP), len(b.out.IP))
			}
			for _, p := range b.out.IP {
				if v, rest, ok := packet.ParseIPv6(p); !ok || len(rest) > 0 || v.Dst() != b.address() {
					t.Fatalf("given to the host: %x", p)
				}
			}
			var check teredo.GlobalCheck
			for _, d := range b.out.UDP {
				if d.To.Port() == 0 || !check.OK(d.To.Addr()) {
					t.Fatalf("sent to %s", d.To)
				}
			}
		}
		b.now = b.now.Add(time.Minute)
		b.c.Tick(b.now, &b.out)
	})
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
