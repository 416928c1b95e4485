// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"bytes"
	"crypto/rand"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/server"
)

// settingsOf are the settings of a section with these lines, and one server.
func settingsOf(t *testing.T, lines string) Settings {
	t.Helper()
	return *configtest.One(t, Role.Section, "[[teredo_client]]\nserver = \"203.0.113.1\"\n"+lines).(*Settings)
}

// bench is the engine of a client of lines of a file, behind a NAT, with the engine of its
// server, in virtual time. What it sends to others is lost and kept.
type bench struct {
	*client.Client
	t         *testing.T
	server    *server.Engine
	now       time.Time
	secondary netip.Addr // of the server, as the client has it
	deaf      bool       // the server does not answer
	symmetric bool       // the NAT
	asked     int        // solicitations
	sent      []packet.Datagram
	ip        [][]byte
	sockets   int // opened beside the first
	silent    int // how often the server was found so
}

var (
	benchServer = [2]netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.9")}
	benchLocal  = netip.MustParseAddrPort("192.168.1.2:3550")
	benchNAT    = netip.MustParseAddrPort("198.51.100.10:40000")
	benchHost   = netip.MustParseAddr("2001:db8::1")
	benchRelay  = netip.MustParseAddrPort("203.0.113.3:3545")
	// benchPeer is a client of another server, and benchPeerAt where it is.
	benchPeerAt = netip.MustParseAddrPort("192.0.2.20:41000")
	benchPeer   = clientOf("192.0.2.1", benchPeerAt)
)

func clientOf(server string, at netip.AddrPort) netip.Addr {
	return teredo.Addr{Prefix: teredo.Prefix, Server: netip.MustParseAddr(server), Mapped: at}.IP()
}

func benchOf(t *testing.T, lines string) *bench {
	t.Helper()
	cfg := settingsOf(t, lines)
	b := &bench{t: t, now: time.Unix(1_700_000_000, 0), secondary: secondaryOf(benchServer[0], cfg.Secondary)}
	var err error
	if b.Client, err = client.New(engineConfig(&cfg)); err != nil {
		t.Fatal(err)
	}
	b.server, err = server.New(server.Config{Primary: benchServer[0], Secondary: benchServer[1], Prefixes: cfg.Prefixes, Rand: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// start begins to qualify.
func (b *bench) start() {
	b.do(b.Start)
	b.do(func(now time.Time, out *client.Out) { b.LocalChanged(benchLocal, nil, now, out) })
	b.do(func(now time.Time, out *client.Out) {
		b.SetServers([]client.Server{{Primary: benchServer[0], Secondary: b.secondary}}, now, out)
	})
}

// qualified is start that goes on until the kind of NAT is known.
func (b *bench) qualified() *bench {
	b.t.Helper()
	b.start()
	b.pass(5 * time.Second)
	if !b.Snapshot().Address.IsValid() {
		b.t.Fatalf("not qualified: %+v", b.Snapshot())
	}
	b.sent, b.asked = nil, 0
	return b
}

// do calls the engine, and has its server answer.
func (b *bench) do(f func(now time.Time, out *client.Out)) {
	var out client.Out
	f(b.now, &out)
	for _, s := range out.Sockets {
		if s.Port != 0 {
			b.sockets++
		}
	}
	for _, e := range out.Events {
		if e.Kind == client.ServerSilent {
			b.silent++
		}
	}
	for _, p := range out.IP {
		b.ip = append(b.ip, bytes.Clone(p))
	}
	for _, d := range out.UDP {
		d.Payload = bytes.Clone(d.Payload)
		b.transmit(d)
	}
}

func (b *bench) transmit(d packet.Datagram) {
	for local, a := range benchServer {
		if d.To.Addr() != a {
			continue
		}
		if p, err := teredo.Parse(d.Payload); err == nil && teredo.CheckRouterSolicitation(p.IPv6) == nil {
			b.asked++
		}
		mapped := benchNAT
		if b.symmetric && local == server.Secondary {
			mapped = netip.AddrPortFrom(mapped.Addr(), mapped.Port()+1)
		}
		var out packet.Batch
		if !b.deaf {
			b.server.HandleUDP(mapped, local, d.Payload, b.now, &out)
		}
		for _, answer := range out.UDP {
			from := netip.AddrPortFrom(benchServer[answer.Socket], teredo.Port)
			b.do(func(now time.Time, out *client.Out) {
				b.HandleUDPOn(d.Socket, from, bytes.Clone(answer.Payload), now, out)
			})
		}
		return
	}
	b.sent = append(b.sent, d)
}

// pass lets time go by.
func (b *bench) pass(d time.Duration) {
	for end := b.now.Add(d); ; b.do(b.Tick) {
		next := b.Next()
		if next.IsZero() || next.After(end) {
			b.now = end
			return
		}
		if next.After(b.now) {
			b.now = next
		}
	}
}

// say has the host send a packet with so many octets of data.
func (b *bench) say(to netip.Addr, size int) {
	p := append(packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, size, b.Snapshot().Address, to), make([]byte, size)...)
	b.do(func(now time.Time, out *client.Out) { b.HandleIP(p, now, out) })
}

// hear has a packet of someone come in.
func (b *bench) hear(from netip.AddrPort, payload []byte) {
	b.do(func(now time.Time, out *client.Out) { b.HandleUDP(from, payload, now, out) })
}

// met has the peer answer what opens the way to it.
func (b *bench) met() {
	t := teredo.Trailers{HasNonce: true, Nonce: 7} // it speaks RFC 6081
	b.hear(benchPeerAt, t.AppendTo(teredo.AppendBubble(nil, benchPeer, b.Snapshot().Address)))
}

// to counts what was sent there and fits.
func (b *bench) to(at netip.AddrPort, fits func(packet.Datagram) bool) (n int) {
	for _, d := range b.sent {
		if d.To == at && (fits == nil || fits(d)) {
			n++
		}
	}
	return n
}

// big are packets of the host, and not bubbles.
func big(d packet.Datagram) bool { return len(d.Payload) > 500 }

// wants compares a count.
func (b *bench) wants(what string, got, want int) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%d %s, want %d", got, what, want)
	}
}
