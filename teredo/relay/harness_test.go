// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// The cast: a client behind a NAT, its server, an IPv6 host, and the relay.
var (
	start     = time.Unix(1_700_000_000, 0)
	server    = netip.MustParseAddr("203.0.113.1")
	mapped    = netip.MustParseAddrPort("198.51.100.7:40000")
	foreign   = netip.MustParseAddrPort("198.51.100.7:50000") // the same NAT, another port
	client    = teredoAddr(server, mapped)
	host      = netip.MustParseAddr("2001:db8::1")
	relayIPv6 = netip.MustParseAddr("2001:db8::beef")
	relayIPv4 = netip.MustParseAddr("192.0.2.3")
)

// testRand is a source of random bytes that is the same each time.
func testRand() io.Reader { return rand.NewChaCha8([32]byte{1}) }

func teredoAddr(server netip.Addr, mapped netip.AddrPort) netip.Addr {
	return teredo.Addr{Prefix: teredo.Prefix, Server: server, Mapped: mapped}.IP()
}

func testConfig() Config {
	return Config{
		Prefixes: []netip.Prefix{teredo.Prefix}, Serve: []netip.Prefix{netip.MustParsePrefix("2000::/3")},
		Address: relayIPv6, Own: []netip.Addr{relayIPv4}, Port: 3545,
		MTU: 1280, MaxPeers: 1000, PeerTimeout: 30 * time.Second,
		QueuePackets: 4, QueueBytes: 4 * 1280, QueueTotalBytes: 1 << 20,
		BubbleRate: 10_000, ICMPRate: 100, EchoThroughServer: true,
	}
}

// bench is a relay with its time and what it sent last.
type bench struct {
	t   testing.TB
	r   *Relay
	now time.Time
	out packet.Batch
}

func newBench(t testing.TB, change ...func(*Config)) *bench {
	t.Helper()
	cfg := testConfig()
	for _, f := range change {
		f(&cfg)
	}
	r, err := New(cfg, start, testRand())
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, r: r, now: start}
}

func (b *bench) wait(d time.Duration) { b.now = b.now.Add(d) }

// ip and udp hand a packet in and return what came out, in words.
func (b *bench) ip(p []byte) []string {
	b.out.Reset()
	b.r.HandleIP(bytes.Clone(p), b.now, &b.out)
	return b.show()
}

func (b *bench) udp(from netip.AddrPort, p []byte) []string {
	b.out.Reset()
	b.r.HandleUDP(from, bytes.Clone(p), b.now, &b.out)
	return b.show()
}

// tick moves the time to what is due next, lets it happen, and returns how long
// that took and what came out.
func (b *bench) tick() (time.Duration, []string) {
	b.t.Helper()
	next := b.r.Next()
	if next.IsZero() {
		b.t.Fatal("nothing is due")
	}
	d := next.Sub(b.now)
	b.now = next
	b.out.Reset()
	b.r.Tick(b.now, &b.out)
	return d, b.show()
}

// trust lets the client answer.
func (b *bench) trust() {
	b.t.Helper()
	b.ip(data(host, client, "first"))
	b.udp(mapped, bubble(client, b.bubbleSource(client)))
	if p := b.peers(1); len(p) != 1 || !p[0].Trusted {
		b.t.Fatal("the peer is not trusted")
	}
}

// bubbleSource is the address that bubbles to client come from now.
func (b *bench) bubbleSource(client netip.Addr) netip.Addr {
	a := client.As16()
	return b.r.key.source(&a, b.r.clock.At(b.now))
}

// peers lists at most limit peers.
func (b *bench) peers(limit int) []Peer {
	l := Listing{Limit: limit}
	for !b.r.List(&l, b.now) {
	}
	return l.Peers
}

func (b *bench) show() []string {
	var lines []string
	for _, d := range b.out.UDP {
		lines = append(lines, fmt.Sprintf("udp %s %s", d.To, describe(d.Payload)))
	}
	for _, p := range b.out.IP {
		lines = append(lines, "ip "+describe(p))
	}
	return lines
}

// describe puts a packet into a few words.
func describe(b []byte) string {
	p, rest, ok := packet.ParseIPv6(b)
	switch {
	case !ok:
		return fmt.Sprintf("garbage %x", b)
	case teredo.IsBubble(p) && len(rest) > 0:
		return fmt.Sprintf("bubble and %d bytes", len(rest))
	case teredo.IsBubble(p):
		return "bubble"
	case p.NextHeader() == packet.ProtoICMPv6 && p.Payload()[0] < 128:
		if _, ok := p.ICMPv6(); !ok {
			return "error with a wrong checksum"
		}
		return fmt.Sprintf("error %d/%d %s -> %s", p.Payload()[0], p.Payload()[1], p.Src(), p.Dst())
	case p.NextHeader() == packet.ProtoICMPv6:
		return fmt.Sprintf("icmp %d", p.Payload()[0])
	}
	return fmt.Sprintf("%s hop %d", p.Payload(), p.HopLimit())
}

func (b *bench) want(what string, got []string, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// dropped returns the one reason that was counted, since the relay was made.
func (b *bench) dropped() []string {
	var list []string
	stats := b.r.Stats()
	stats.EachDropped(func(r Reason, n uint64) {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s %d", r, n))
		}
	})
	return list
}

// data is a packet with hop limit 64 and next header UDP.
func data(src, dst netip.Addr, payload string) []byte {
	return append(packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, len(payload), src, dst), payload...)
}

func bubble(src, dst netip.Addr) []byte { return teredo.AppendBubble(nil, src, dst) }

// echoReply is the answer to a connectivity test with this identifier.
func echoReply(src, dst netip.Addr, id byte) []byte {
	return packet.AppendICMPv6(nil, src, dst, 64, packet.ICMPv6EchoReply, 0, []byte{0, id, 0, 0}, make([]byte, teredo.EchoNonceLen))
}
