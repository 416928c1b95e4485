// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// fuzzBench knows one client, waits for another, and has given up on a third.
func fuzzBench(t *testing.T, kind uint8) *bench {
	b := newBench(t, func(c *Config) {
		c.Host = kind&1 != 0
		c.BehindNAT = kind&2 != 0
	})
	silent, _ := nth(3)
	b.ip(data(host, silent, "x"))
	for range bubbleTries {
		b.tick()
	}
	b.trust()
	b.ip(data(host, another, "waits"))
	b.ip(data(host, another, "too"))
	b.wait(time.Duration(kind) * 250 * time.Millisecond)
	return b
}

// checkOutput states what holds whatever comes in: a bounded number of packets,
// none to an address that is not global, none that is no IPv6 packet.
func (b *bench) checkOutput(most int) {
	b.t.Helper()
	if n := len(b.out.UDP) + len(b.out.IP); n > most {
		b.t.Errorf("%d packets came out, at most %d may", n, most)
	}
	for _, d := range b.out.UDP {
		if !b.r.cfg.Global.OK(d.To.Addr()) || d.To.Port() == 0 || b.r.isOwn(d.To.Addr()) {
			b.t.Errorf("sent to %s", d.To)
		}
		if p, rest, ok := packet.ParseIPv6(d.Payload); !ok || len(rest) != 0 || len(p) > b.r.cfg.MTU {
			b.t.Errorf("sent %x", d.Payload)
		}
	}
	for _, p := range b.out.IP {
		v, rest, ok := packet.ParseIPv6(p)
		if !ok || len(rest) != 0 {
			b.t.Fatalf("delivered %x", p)
		}
		if b.r.isTeredo(v.DstBytes()) || !isHost(v.DstBytes()) {
			b.t.Errorf("delivered to %s", v.Dst())
		}
	}
}

func FuzzHandleIP(f *testing.F) {
	for _, r := range toClients {
		f.Add(uint8(0), r.packet)
	}
	silent, _ := nth(3)
	for kind := range uint8(4) {
		f.Add(kind, echoReply(host, client, 0))
		f.Add(kind, echoReply(host, silent, 0))
		f.Add(kind, data(host, another, "x"))
		f.Add(kind+100, data(host, client, "x"))
	}
	f.Fuzz(func(t *testing.T, kind uint8, p []byte) {
		b := fuzzBench(t, kind)
		before := b.r.Stats()
		b.out.Reset()
		b.r.HandleIP(bytes.Clone(p), b.now, &b.out)
		// The packet itself, two bubbles, and a copy through the server.
		b.checkOutput(4)
		size := 0
		for _, d := range b.out.UDP {
			size += len(d.Payload)
		}
		if most := 2*len(p) + 2*teredo.BubbleLen; size > most {
			t.Errorf("%d bytes in made %d bytes out", len(p), size)
		}
		b.checkCounted(before)
	})
}

func FuzzHandleUDP(f *testing.F) {
	for _, r := range fromClients {
		ip := r.from.Addr().As4()
		f.Add(uint8(0), ip[:], r.from.Port(), r.packet)
		f.Add(uint8(1), ip[:], r.from.Port(), r.packet)
	}
	b := newBench(quiet{})
	f.Add(uint8(0), []byte{198, 51, 100, 8}, uint16(41000), bubble(another, b.bubbleSource(another)))
	f.Add(uint8(0), []byte{198, 51, 100, 8}, uint16(9), bubble(another, b.bubbleSource(another)))
	f.Fuzz(func(t *testing.T, kind uint8, ip []byte, port uint16, p []byte) {
		from := netip.AddrPortFrom(mapped.Addr(), port)
		if a, ok := netip.AddrFromSlice(ip); ok && a.Is4() {
			from = netip.AddrPortFrom(a, port)
		}
		b := fuzzBench(t, kind)
		b.r.cfg.MTU = 1 << 16 // what goes on may be as large as what came
		before := b.r.Stats()
		b.out.Reset()
		b.r.HandleUDP(from, bytes.Clone(p), b.now, &b.out)
		// The packet itself, and what waited.
		b.checkOutput(3)
		b.checkCounted(before)
	})
}

// checkCounted checks that a packet is counted once: as sent, waiting, ended
// here, or dropped.
func (b *bench) checkCounted(before Stats) {
	b.t.Helper()
	now := b.r.Stats()
	sum := func(s *Stats) (n uint64) {
		s.EachDropped(func(_ Reason, d uint64) { n += d })
		return n + s.ToUDP + s.ToIPv6 + s.HostMulticast + s.Queued + s.BubblesReceived - s.Flushed
	}
	if got := sum(&now) - sum(&before); got != 1 {
		b.t.Errorf("one packet was counted %d times", got)
	}
}
