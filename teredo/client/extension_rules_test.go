// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// The cast of the tests of extensions, beside that of the other rules.
var (
	preserved  = netip.AddrPortFrom(mapping.Addr(), local.Port())
	otherPort  = netip.AddrPortFrom(mapping.Addr(), 40001)
	peerRandom = netip.AddrPortFrom(peerMapping.Addr(), 50505)
	neighbour  = teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: netip.AddrPortFrom(mapping.Addr(), 41000)}.IP()
)

// newSymmetric makes a client behind a symmetric NAT that the primary server sees
// at a mapping: preserved, or one that makes the NAT a sequential one.
func newSymmetric(t testing.TB, at netip.AddrPort, options ...option) *bench {
	t.Helper()
	b := newBench(t, options...)
	b.begin(client.Server{Primary: primary, Secondary: second})
	b.udp(primaryPort, b.answer(at))
	b.udp(secondPort, advertisement(b.solicitation(secondPort), otherPort))
	if s := b.c.Snapshot(); !s.NAT.Symmetric() || s.NAT.PortPreserved != (at == preserved) {
		t.Fatalf("NAT is %s", s.NAT)
	}
	return b
}

// withTrailers is a bubble with trailers.
func withTrailers(src, dst netip.Addr, t teredo.Trailers) []byte {
	return t.AppendTo(teredo.AppendBubble(nil, src, dst))
}

// on gives the client a payload by a socket.
func (b *bench) on(socket int, from netip.AddrPort, payload []byte) []string {
	b.out.Reset()
	b.c.HandleUDPOn(socket, from, bytes.Clone(payload), b.now, &b.out)
	return b.full()
}

// indirect gives the client an indirect bubble.
func (b *bench) indirect(src netip.Addr, t teredo.Trailers) []string {
	t.HasNonce = t.Nonce != 0
	b.udp(primaryPort, throughServer(peerMapping, withTrailers(src, b.address(), t)))
	return b.full()
}

// full is show with all that extensions add: sockets, counted from 1, and
// trailers.
func (b *bench) full() []string {
	var lines []string
	for _, s := range b.out.Sockets {
		n := s.Socket - client.FirstRandomSocket + 1
		if s.Port != 0 {
			lines = append(lines, fmt.Sprintf("open %d", n))
		} else {
			lines = append(lines, fmt.Sprintf("close %d", n))
		}
	}
	for _, d := range b.out.UDP {
		line := fmt.Sprintf("to %s: %s", b.who(d.To), b.word(d.Payload))
		if d.To == peerRandom {
			line = "to peer's port: " + b.word(d.Payload)
		}
		if d.Socket != 0 {
			line = fmt.Sprintf("%d %s", d.Socket-client.FirstRandomSocket+1, line)
		}
		p, _ := teredo.Parse(d.Payload)
		t, _ := teredo.ParseTrailers(p.Trailers)
		if t.RandomPort != 0 {
			line += ", announces"
		}
		if d.TTL != 0 {
			line += fmt.Sprintf(", ttl %d", d.TTL)
		}
		line += [...]string{"", ", solicits", ", advertises"}[t.Discovery]
		lines = append(lines, line)
	}
	for _, p := range b.out.IP {
		lines = append(lines, "host: "+b.word(p))
	}
	return lines
}

// served is tick with a server that answers.
func (b *bench) served() (lines []string) {
	b.t.Helper()
	b.tick()
	lines = b.full()
	var out client.Out
	for _, d := range b.out.UDP {
		p, err := teredo.Parse(d.Payload)
		if err == nil && d.Socket == 0 && d.To == primaryPort && teredo.CheckRouterSolicitation(p.IPv6) == nil {
			b.c.HandleUDP(primaryPort, advertisement(p, b.c.Snapshot().Mapping), b.now, &out)
		}
	}
	return lines
}

// pass lets time pass with a server that answers.
func (b *bench) pass(d time.Duration) {
	b.t.Helper()
	end := b.now.Add(d)
	for next := b.c.Next(); !next.IsZero() && !next.After(end); next = b.c.Next() {
		b.served()
	}
	b.now = end
}

// announced is the random port in the last indirect bubble, and its nonce.
func (b *bench) announced() (port uint16, nonce uint32) {
	b.t.Helper()
	for _, d := range b.out.UDP {
		if d.To.Addr() == peerServer {
			p, _ := teredo.Parse(d.Payload)
			t, _ := teredo.ParseTrailers(p.Trailers)
			return t.RandomPort, t.Nonce
		}
	}
	b.t.Fatal("no indirect bubble was sent")
	return 0, 0
}

// onPort makes a client behind a port-preserving NAT that is in touch with the
// peer by random ports.
func onPort(t testing.TB) *bench {
	t.Helper()
	b := newSymmetric(t, preserved)
	b.ip(data(b.address(), peerAddr, "one"))
	b.want("call", b.full(), "open 1", "to peer: bubble", "to peer's server: bubble with nonce, announces")
	port, nonce := b.announced()
	if port != b.out.Sockets[0].Port {
		t.Fatalf("announced %d, opened %d", port, b.out.Sockets[0].Port)
	}
	b.want("peer's answer", b.indirect(peerAddr, teredo.Trailers{Nonce: 7, RandomPort: peerRandom.Port()}),
		"to peer: bubble with nonce", "1 to peer's port: bubble with nonce, announces")
	b.want("proof", b.on(client.FirstRandomSocket, peerRandom, bubble(peerAddr, b.address(), nonce)),
		"1 to peer's port: bubble with nonce", "1 to peer's port: one")
	return b
}

// The peer refresh timer of RFC 6081 section 5.4.2.1: 30 s, 20 bubbles since the
// last data, and then the port goes.
func TestPeerRefreshTimer(t *testing.T) {
	b := onPort(t)
	opened := b.now
	refreshes := func() (n int) {
		t.Helper()
		since := b.now
		for b.c.Snapshot().RandomPorts > 0 && b.now.Sub(since) < time.Hour {
			for _, s := range b.served() {
				switch {
				case s == "1 to peer's port: bubble with nonce", s == "1 to peer's port: bubble":
					n++
					if at := b.now.Sub(opened); at%(30*time.Second) != 0 {
						t.Errorf("refreshed after %v", at)
					}
					if n == 15 && since == opened {
						return n
					}
				case strings.HasPrefix(s, "1 ") || strings.Contains(s, "peer"):
					t.Errorf("unexpected: %s", s)
				}
			}
		}
		return n
	}
	if n := refreshes(); n != 15 {
		t.Fatalf("%d refreshes", n)
	}
	// The peer is heard and the host sends: the count begins again.
	b.on(client.FirstRandomSocket, peerRandom, data(peerAddr, b.address(), "hello"))
	b.ip(data(b.address(), peerAddr, "two"))
	b.want("data", b.full(), "1 to peer's port: two")
	sent := b.now
	if n := refreshes(); n != 20 {
		t.Errorf("%d refreshes behind the last data, want 20", n)
	}
	if took := b.now.Sub(sent); took != 22*30*time.Second {
		t.Errorf("the port went after %v", took)
	}
	b.want("again", b.ip(data(b.address(), peerAddr, "three"))[:1], "to peer: bubble with nonce")
}

// Solicitations are answered, by direct bubbles of peers that are proved only,
// and not without limit.
func TestSolicitationsAreAnswered(t *testing.T) {
	asks := teredo.Trailers{Discovery: teredo.DiscoverySolicitation}
	b := newQualified(t)
	b.udp(foreign, withTrailers(peerAddr, b.address(), asks))
	b.want("at a foreign mapping", b.full())
	b.udp(peerMapping, withTrailers(peerAddr, b.address(), asks))
	b.want("at its mapping", b.full(), "to peer: bubble, advertises")
	b.want("indirect", b.indirect(peerAddr, teredo.Trailers{Nonce: 7, Discovery: teredo.DiscoverySolicitation}),
		"to peer: bubble with nonce, advertises")
	b.now = b.now.Add(time.Minute)
	answers := 0
	for range 100 {
		b.udp(peerMapping, withTrailers(peerAddr, b.address(), asks))
		answers += len(b.full())
	}
	if answers != 8 {
		t.Errorf("%d answers to 100 solicitations at once", answers)
	}
}

// The first bubble on each new way has the low time to live: it opens our NAT. All
// later ones are to arrive.
func TestOpeningTTL(t *testing.T) {
	low := func(c *client.Config) { c.OpeningTTL = 3 }
	b := newSymmetric(t, mapping, low)
	b.ip(data(b.address(), peerAddr, "one"))
	b.want("call", b.full(), "open 1", "to peer: bubble, ttl 3",
		"1 to primary: solicitation", "1 to peer: bubble, ttl 3", "1 to secondary: solicitation")
	b.now = b.now.Add(2 * time.Second)
	b.out.Reset()
	b.c.Tick(b.now, &b.out)
	if got := b.full(); !slices.Contains(got, "to peer: bubble") {
		t.Errorf("repeat: %q", got)
	}

	b = newQualified(t, low)
	announces := teredo.Trailers{Nonce: 7, RandomPort: peerRandom.Port()}
	b.want("answer", b.indirect(peerAddr, announces), "to peer: bubble with nonce",
		"to peer's port: bubble with nonce, ttl 3", "to peer's server: bubble with nonce")
	b.want("answer to the repeat", b.indirect(peerAddr, announces), "to peer: bubble with nonce",
		"to peer's port: bubble with nonce")
}

// A socket that the system refuses costs its attempt the prediction, no more.
func TestSocketFailed(t *testing.T) {
	b := newSymmetric(t, preserved)
	b.ip(data(b.address(), peerAddr, "one"))
	s := b.out.Sockets[0]
	b.c.SocketFailed(s.Socket, s.Port+1) // of a socket before
	if b.c.Snapshot().RandomPorts != 1 {
		t.Fatal("another port's failure closed it")
	}
	b.c.SocketFailed(s.Socket, s.Port)
	if b.c.Snapshot().RandomPorts != 0 {
		t.Fatal("a port without socket counts as open")
	}
	b.tick()
	b.want("repeat", b.full(), "open 1", "to peer: bubble", "to peer's server: bubble with nonce, announces", "to peer's server: disguised bubble")
	if s := b.c.Stats(); s.RandomPorts != 2 || s.RandomPortsRefused != 1 {
		t.Errorf("%d opened, %d refused", s.RandomPorts, s.RandomPortsRefused)
	}
}

// All ports close when the address goes, one way or another.
func TestPortsCloseWithTheAddress(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(b *bench)
	}{
		{"stopped", func(b *bench) { b.c.Stop(&b.out) }},
		{"native IPv6", func(b *bench) { b.c.NativeChanged(true, b.now, &b.out) }},
		{"no IPv4", func(b *bench) { b.c.LocalChanged(netip.AddrPort{}, nil, b.now, &b.out) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := onPort(t)
			b.out.Reset()
			tt.lose(b)
			b.c.Tick(b.now, &b.out)
			b.want("lost", b.full(), "close 1")
			if b.c.Snapshot().RandomPorts != 0 {
				t.Error("a port is open")
			}
		})
	}
}
