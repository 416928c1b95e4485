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
	// The peer is heard and the host sends: the count begins anew.
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
	b.want("anew", b.ip(data(b.address(), peerAddr, "three"))[:1], "to peer: bubble with nonce")
}

// A random port that nothing comes to closes with the attempt that it was for,
// or when the peer has had the time for its own.
func TestUnprovedPortCloses(t *testing.T) {
	b := newSymmetric(t, preserved)
	b.ip(data(b.address(), peerAddr, "one"))
	for b.c.Snapshot().RandomPorts > 0 {
		b.tick()
	}
	if d := b.now.Sub(start); d != 8*time.Second {
		t.Errorf("the port of a call closed after %v", d)
	}
	b = newSymmetric(t, preserved)
	b.want("answer", b.indirect(peerAddr, teredo.Trailers{Nonce: 7}),
		"open 1", "to peer: bubble with nonce", "1 to peer: bubble with nonce, announces", "to peer's server: bubble with nonce, announces")
	for b.c.Snapshot().RandomPorts > 0 {
		b.tick()
	}
	if d := b.now.Sub(start); d != 10*time.Second {
		t.Errorf("the port of an answer closed after %v", d)
	}
}

// The echo test of RFC 6081 section 5.5: fail-over after one and after two more
// seconds, then an indirect bubble that announces nothing.
func TestPredictionTimers(t *testing.T) {
	b := newSymmetric(t, mapping)
	b.ip(data(b.address(), peerAddr, "one"))
	test := []string{"1 to primary: solicitation", "1 to peer: bubble", "1 to secondary: solicitation"}
	b.want("first test", b.full(), append([]string{"open 1", "to peer: bubble"}, test...)...)
	late := b.solicitation(primaryPort)
	step := func(wait time.Duration, want ...string) {
		t.Helper()
		d, _ := b.tick()
		b.want(fmt.Sprintf("after %v", b.now.Sub(start)), b.full(), want...)
		if d != wait {
			t.Errorf("after %v, want %v", d, wait)
		}
	}
	step(time.Second, test...)
	b.on(client.FirstRandomSocket, primaryPort, advertisement(late, mapping))
	step(time.Second, "to peer: bubble", "to peer's server: disguised bubble") // the attempt goes on; no third test
	step(time.Second, "to peer's server: bubble with nonce")
	step(time.Second, "to peer: bubble", "to peer's server: bubble with nonce", "to peer's server: disguised bubble")
	if got := b.dropped(); got != "wrong_nonce 1" {
		t.Errorf("dropped %q", got)
	}
}

// The port between the two that the servers saw is announced, rounded down; only
// good answers count.
func TestPrediction(t *testing.T) {
	b := newSymmetric(t, mapping)
	b.ip(data(b.address(), peerAddr, "one"))
	lower, upper := b.solicitation(primaryPort), b.solicitation(secondPort)
	seen := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(mapping.Addr(), port) }
	socket := client.FirstRandomSocket
	forged := lower
	forged.Auth.Nonce[0]++
	b.want("foreign nonce", b.on(socket, primaryPort, advertisement(forged, seen(20000))))
	b.want("from a stranger", b.on(socket, foreign, advertisement(lower, seen(20000))))
	b.want("on the service port", b.udp(primaryPort, advertisement(lower, seen(20000))))
	b.want("on a closed socket", b.on(socket+1, primaryPort, advertisement(lower, seen(20000))))
	b.want("lower", b.on(socket, primaryPort, advertisement(lower, seen(65530))))
	b.want("lower again", b.on(socket, primaryPort, advertisement(lower, seen(20000))))
	b.want("upper", b.on(socket, secondPort, advertisement(upper, seen(65533))), "to peer's server: bubble with nonce, announces")
	if port, _ := b.announced(); port != 65531 {
		t.Errorf("announced %d", port)
	}
	if got := b.dropped(); got != "unasked_advertisement 4, wrong_nonce 1" {
		t.Errorf("dropped %q", got)
	}
	// A direct bubble on the service port makes all that needless.
	b.want("on the service port", b.udp(peerMapping, bubble(peerAddr, b.address(), 0)), "to peer: one")
	b.want("", b.full(), "close 1", "to peer: one")
}

// A peer that the host wants to talk to again behind a silence: when it is asked
// directly, and when not.
func TestLoadReduction(t *testing.T) {
	for _, tt := range []struct {
		name    string
		nonce   uint32 // 0: the peer does not speak RFC 6081
		silence time.Duration
		option  option
		ask     bool
	}{
		{"just silent", 7, 30 * time.Second, func(*client.Config) {}, true},
		{"silent for long", 7, 300*time.Second - 1, func(*client.Config) {}, true},
		{"mapping surely gone", 7, 300 * time.Second, func(*client.Config) {}, false},
		{"peer of RFC 4380 alone", 0, 30 * time.Second, func(*client.Config) {}, false},
		{"switched off", 7, 30 * time.Second, func(c *client.Config) { c.NoLoadReduction = true }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t, tt.option)
			b.udp(peerMapping, bubble(peerAddr, b.address(), tt.nonce))
			b.pass(tt.silence)
			b.ip(data(b.address(), peerAddr, "one"))
			if !tt.ask {
				b.want("anew", b.full(), "to peer: bubble", "to peer's server: bubble with nonce")
				return
			}
			b.want("asked", b.full(), "to peer: bubble, solicits")
			b.want("another packet", b.ip(data(b.address(), peerAddr, "two")))
			for i := range 2 {
				from := b.now
				var got []string
				for b.c.Stats().PeerSolicitations < uint64(i+2) && b.now.Sub(from) < time.Minute {
					got = b.served()
				}
				d := b.now.Sub(from)
				want := []string{"to peer: bubble, solicits"}
				if i == 1 {
					want = append(want, "to peer: bubble", "to peer's server: bubble with nonce")
				}
				b.want("asked again", got, want...)
				if d != 2*time.Second {
					t.Errorf("asked again after %v", d)
				}
			}
			b.want("answer", b.udp(peerMapping, withTrailers(peerAddr, b.address(), teredo.Trailers{Discovery: teredo.DiscoveryAdvertisement})),
				"to peer: one", "to peer: two")
		})
	}
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
