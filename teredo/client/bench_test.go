// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// The cast of the tests of single rules.
var (
	primaryPort = netip.AddrPortFrom(primary, teredo.Port)
	secondPort  = netip.AddrPortFrom(second, teredo.Port)
	local       = netip.MustParseAddrPort("192.168.1.2:3551")
	mapping     = netip.MustParseAddrPort("198.51.100.10:40000")

	peerMapping = netip.MustParseAddrPort("192.0.2.20:8192")
	foreign     = netip.MustParseAddrPort("192.0.2.20:9999")
	peerServer  = netip.MustParseAddr("198.51.100.118")
	peerAddr    = teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: peerMapping}.IP()
)

// bench is one client that is driven by hand, with its time and what it sent
// last.
type bench struct {
	t   testing.TB
	c   *client.Client
	now time.Time
	out client.Out
}

func newBench(t testing.TB, options ...option) *bench {
	t.Helper()
	cfg := client.Config{Rand: seeded(1)}
	for _, o := range options {
		o(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, c: c, now: start}
}

// begin starts the client with servers and a local address.
func (b *bench) begin(servers ...client.Server) {
	b.out.Reset()
	b.c.Start(b.now, &b.out)
	b.c.LocalChanged(local, nil, b.now, &b.out)
	b.c.SetServers(servers, b.now, &b.out)
}

// newQualified makes a client that has its address, by a server without
// secondary address.
func newQualified(t testing.TB, options ...option) *bench {
	t.Helper()
	b := newBench(t, options...)
	b.begin(client.Server{Primary: primary})
	b.udp(primaryPort, b.answer(mapping))
	if b.c.Snapshot().State != client.Qualified {
		t.Fatal("not qualified")
	}
	return b
}

func (b *bench) address() netip.Addr { return b.c.Snapshot().Address }

// solicitation returns the last solicitation sent to a server.
func (b *bench) solicitation(to netip.AddrPort) teredo.Packet {
	b.t.Helper()
	for i := len(b.out.UDP) - 1; i >= 0; i-- {
		if d := b.out.UDP[i]; d.To == to {
			p, err := teredo.Parse(bytes.Clone(d.Payload))
			if err != nil || teredo.CheckRouterSolicitation(p.IPv6) != nil {
				b.t.Fatalf("no solicitation: %x", d.Payload)
			}
			return p
		}
	}
	b.t.Fatalf("nothing was sent to %s", to)
	return teredo.Packet{}
}

// answer is a good advertisement for the last solicitation to the primary.
func (b *bench) answer(mapped netip.AddrPort) []byte {
	b.t.Helper()
	return advertisement(b.solicitation(primaryPort), mapped)
}

// advertisement answers a solicitation; change may spoil it.
func advertisement(rs teredo.Packet, mapped netip.AddrPort, change ...func(*teredo.Auth, *teredo.RouterAdvertisement)) []byte {
	auth := teredo.Auth{Nonce: rs.Auth.Nonce}
	ra := teredo.RouterAdvertisement{
		Src: teredo.LinkLocal(teredo.FlagCone, primaryPort), Dst: rs.IPv6.Src(), MTU: 1280,
		Prefix: netip.MustParsePrefix("2001:0:cb00:7101::/64"),
	}
	for _, f := range change {
		f(&auth, &ra)
	}
	return ra.AppendTo(teredo.AppendOrigin(auth.AppendTo(nil), mapped))
}

func (b *bench) udp(from netip.AddrPort, payload []byte) []string {
	b.out.Reset()
	b.c.HandleUDP(from, bytes.Clone(payload), b.now, &b.out)
	return b.show()
}

func (b *bench) ip(p packet.IPv6) []string {
	b.out.Reset()
	b.c.HandleIP(bytes.Clone(p), b.now, &b.out)
	return b.show()
}

// tick moves to what is due next and returns how long that took.
func (b *bench) tick() (time.Duration, []string) {
	b.t.Helper()
	next := b.c.Next()
	if next.IsZero() {
		b.t.Fatal("nothing is due")
	}
	d := next.Sub(b.now)
	b.now = next
	b.out.Reset()
	b.c.Tick(b.now, &b.out)
	return d, b.show()
}

// show puts the output in words.
func (b *bench) show() []string {
	var lines []string
	for _, d := range b.out.UDP {
		lines = append(lines, fmt.Sprintf("to %s: %s", b.who(d.To), b.word(d.Payload)))
	}
	for _, p := range b.out.IP {
		lines = append(lines, "host: "+b.word(p))
	}
	for _, e := range b.out.Events {
		lines = append(lines, "event: "+describe(e))
	}
	return lines
}

var names = map[netip.AddrPort]string{
	primaryPort: "primary", secondPort: "secondary", peerMapping: "peer", foreign: "foreign",
	netip.AddrPortFrom(peerServer, teredo.Port): "peer's server", relayAddr: "relay",
}

func (b *bench) who(a netip.AddrPort) string {
	if name, ok := names[a]; ok {
		return name
	}
	return a.String()
}

// word puts a packet in a few words.
func (b *bench) word(payload []byte) string {
	p, err := teredo.Parse(payload)
	if err != nil {
		return err.Error()
	}
	trailers, _ := teredo.ParseTrailers(p.Trailers)
	m, isICMP := p.IPv6.ICMPv6()
	switch {
	case teredo.IsBubble(p.IPv6):
		s := "bubble"
		if p.IPv6.Src().IsLinkLocalUnicast() {
			s = "disguised bubble"
		}
		if trailers.HasNonce {
			s += " with nonce"
		}
		return s
	case isICMP:
		return map[byte]string{
			packet.ICMPv6RouterSolicitation: "solicitation", packet.ICMPv6EchoRequest: "echo request",
			packet.ICMPv6PacketTooBig: "too big", packet.ICMPv6Unreachable: "unreachable",
		}[m[0]]
	}
	return string(p.IPv6.Payload())
}

func (b *bench) want(what string, got []string, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// dropped lists what was dropped, by reason.
func (b *bench) dropped() string {
	var list []string
	for r, n := range b.c.Stats().Dropped {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s %d", client.Reason(r), n))
		}
	}
	return strings.Join(list, ", ")
}

// bubble is a bubble with a nonce, or without one if it is 0.
func bubble(src, dst netip.Addr, nonce uint32) []byte {
	t := teredo.Trailers{HasNonce: nonce != 0, Nonce: nonce}
	return t.AppendTo(teredo.AppendBubble(nil, src, dst))
}

// throughServer puts an origin indication before a packet.
func throughServer(origin netip.AddrPort, p []byte) []byte {
	return append(teredo.AppendOrigin(nil, origin), p...)
}

// sentNonce returns the nonce of the last indirect bubble sent to the peer.
func (b *bench) sentNonce() uint32 {
	b.t.Helper()
	for _, d := range b.out.UDP {
		if d.To.Addr() == peerServer {
			p, _ := teredo.Parse(d.Payload)
			t, _ := teredo.ParseTrailers(p.Trailers)
			if t.HasNonce {
				return t.Nonce
			}
		}
	}
	b.t.Fatal("no indirect bubble was sent")
	return 0
}

// sentEcho returns the reply to the echo test sent last.
func (b *bench) echoReply() []byte {
	b.t.Helper()
	for _, d := range b.out.UDP {
		if p, err := teredo.Parse(d.Payload); err == nil && d.To == primaryPort {
			if reply := answer(p.IPv6); reply != nil {
				return reply
			}
		}
	}
	b.t.Fatal("no echo test was sent")
	return nil
}
