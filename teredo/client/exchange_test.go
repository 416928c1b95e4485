// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/nattest"
)

// recorder writes the datagrams between two clients down, with nonces and random
// ports numbered as they are announced.
type recorder struct {
	lines  []string
	raw    []string
	nonces map[uint32]int
	ports  map[uint16]int
	who    map[netip.Addr]string
}

func record(w *world, a, b *clientNode) *recorder {
	r := &recorder{nonces: map[uint32]int{}, ports: map[uint16]int{}, who: map[netip.Addr]string{
		natA: "NAT A", natB: "NAT B", primary: "server", second: "secondary", a.address(): "A", b.address(): "B",
		a.local.Addr(): "host A", b.local.Addr(): "host B",
	}}
	w.net.Trace = r.see
	return r
}

func (r *recorder) see(from, to netip.AddrPort, payload []byte, dropped bool) {
	p, err := teredo.Parse(payload)
	if err != nil {
		r.lines = append(r.lines, err.Error())
		return
	}
	line := fmt.Sprintf("%s%s -> %s%s: ", r.who[from.Addr()], r.port(from), r.who[to.Addr()], r.port(to))
	if m, ok := p.IPv6.ICMPv6(); ok && m[0] == packet.ICMPv6RouterSolicitation {
		line += "solicitation"
	} else if ok {
		line += "advertisement"
	} else {
		what := string(p.IPv6.Payload())
		if teredo.IsBubble(p.IPv6) {
			what = "bubble"
		}
		line += fmt.Sprintf("%s %s -> %s", what, r.who[p.IPv6.Src()], r.who[p.IPv6.Dst()])
	}
	t, _ := teredo.ParseTrailers(p.Trailers)
	if t.HasNonce {
		if r.nonces[t.Nonce] == 0 {
			r.nonces[t.Nonce] = len(r.nonces) + 1
		}
		line += fmt.Sprintf(" nonce %d", r.nonces[t.Nonce])
	}
	if t.RandomPort != 0 {
		if r.ports[t.RandomPort] == 0 {
			r.ports[t.RandomPort] = len(r.ports) + 1
		}
		line += fmt.Sprintf(" announces %d", r.ports[t.RandomPort])
	}
	line += [...]string{"", " solicits", " advertises"}[t.Discovery]
	if dropped {
		line += " (dropped)"
	}
	r.lines = append(r.lines, line)
	r.raw = append(r.raw, hex.EncodeToString(payload))
}

// port names the port of an endpoint if it was announced.
func (r *recorder) port(a netip.AddrPort) string {
	if n := r.ports[a.Port()]; n != 0 {
		return fmt.Sprintf(" port %d", n)
	}
	return ""
}

// The exchange of RFC 6081 section 6.1, packet by packet: A behind a symmetric
// NAT begins to talk to B behind an address-restricted one.
func TestExchangeOfRFC6081(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.SymmetricRandom, natA), withoutPorts)
	b := w.qualified(nattest.NewNAT(nattest.AddressRestricted, natB))
	r := record(w, a, b)
	a.say(b.address(), "data")
	since := w.net.Now()
	w.net.RunUntil(time.Second, func() bool { return len(b.got) > 0 })
	want := []string{
		"NAT A -> NAT B: bubble A -> B (dropped)",         // 1
		"NAT A -> server: bubble A -> B nonce 1",          // 2
		"server -> NAT B: bubble A -> B nonce 1",          //
		"NAT B -> NAT A: bubble B -> A nonce 1 (dropped)", // 3
		"NAT B -> server: bubble B -> A nonce 2",          // 4
		"server -> NAT A: bubble B -> A nonce 2",          //
		"NAT A -> NAT B: bubble A -> B nonce 2",           // 5
		"NAT B -> NAT A: bubble B -> A nonce 1",           // 7, without waiting for 6
		"NAT A -> NAT B: data A -> B",
	}
	if diff := cmp.Diff(want, r.lines); diff != "" {
		t.Errorf("exchange (-want +got):\n%s", diff)
	}
	if took := w.net.Now().Sub(since); took != 7*delay {
		t.Errorf("the data took %v, want 7 one-way delays", took)
	}
}

// The same the other way round: one round trip less.
func TestExchangeToSymmetric(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.SymmetricRandom, natA), withoutPorts)
	b := w.qualified(nattest.NewNAT(nattest.AddressRestricted, natB))
	r := record(w, a, b)
	b.say(a.address(), "data")
	w.net.RunUntil(time.Second, func() bool { return len(a.got) > 0 })
	want := []string{
		"NAT B -> NAT A: bubble B -> A (dropped)",
		"NAT B -> server: bubble B -> A nonce 1",
		"server -> NAT A: bubble B -> A nonce 1",
		"NAT A -> NAT B: bubble A -> B nonce 1",
		"NAT A -> server: bubble A -> B nonce 2",
		"NAT B -> NAT A: bubble B -> A", // to the learnt mapping
		"NAT B -> NAT A: data B -> A",
	}
	if diff := cmp.Diff(want, r.lines); diff != "" {
		t.Errorf("exchange (-want +got):\n%s", diff)
	}
}

// The bytes of the bubbles: header, and trailer 01 04 with the nonce, behind a NAT
// also trailer 03 with the local address.
func TestBubbleBytes(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA))
	b := w.qualified(nattest.NewNAT(nattest.FullCone, natB))
	r := record(w, a, b)
	a.say(b.address(), "data")
	w.net.RunUntil(time.Second, func() bool { return len(r.raw) >= 2 })
	header := "60000000" + "0000" + "3b" + "ff" + hex.EncodeToString(a.address().AsSlice()) + hex.EncodeToString(b.address().AsSlice())
	if r.raw[0] != header {
		t.Errorf("direct bubble %s, want %s", r.raw[0], header)
	}
	trailer, ok := strings.CutPrefix(r.raw[1], header+"0104")
	nonce, alternates := trailer[:min(8, len(trailer))], trailer[min(8, len(trailer)):]
	if !ok || nonce == "00000000" || alternates != "0308"+"0000"+"c0a801010ddf" {
		t.Errorf("indirect bubble %s", r.raw[1])
	}
}

// plainClient is a client of RFC 4380 alone: it knows no trailers, answers an
// indirect bubble with a direct one to the origin, and trusts a peer whose outer
// source matches its address.
type plainClient struct {
	w       *world
	local   netip.AddrPort
	nonce   [8]byte
	own     netip.Addr
	trusted map[netip.Addr]netip.AddrPort
	waiting map[netip.Addr][]packet.IPv6
	got     []string
}

func (w *world) plain(nat *nattest.NAT) *plainClient {
	w.t.Helper()
	p := &plainClient{w: w, local: netip.MustParseAddrPort("192.168.9.9:3599"),
		trusted: map[netip.Addr]netip.AddrPort{}, waiting: map[netip.Addr][]packet.IPv6{}}
	w.net.AttachBehind(nat, p, p.local.Addr())
	auth := teredo.Auth{Nonce: p.nonce}
	w.net.Send(p.local, primaryPort, teredo.AppendRouterSolicitation(auth.AppendTo(nil), netip.MustParseAddr("fe80::ffff:ffff:ffff")))
	if !w.net.RunUntil(time.Second, p.own.IsValid) {
		w.net.Run(4 * delay)
	}
	if !p.own.IsValid() {
		w.t.Fatal("the plain client is not qualified")
	}
	return p
}

func (p *plainClient) Tick(time.Time)  {}
func (p *plainClient) Next() time.Time { return time.Time{} }

func (p *plainClient) Receive(from, _ netip.AddrPort, payload []byte, _ time.Time) {
	m, err := teredo.Parse(payload)
	if err != nil {
		return
	}
	src := m.IPv6.Src()
	mapped := netip.AddrPort{}
	if a, err := teredo.ParseAddr(src, teredo.Prefix); err == nil {
		mapped = a.Mapped
	}
	switch {
	case from == primaryPort && !p.own.IsValid():
		p.own = teredo.Addr{Prefix: teredo.Prefix, Server: primary, Mapped: m.Origin}.IP()
	case from == primaryPort && teredo.IsBubble(m.IPv6):
		p.w.net.Send(p.local, m.Origin, teredo.AppendBubble(nil, p.own, src))
	case from == mapped:
		p.trusted[src] = from
		p.deliver(m.IPv6)
	}
}

func (p *plainClient) deliver(m packet.IPv6) {
	for _, q := range p.waiting[m.Src()] {
		p.w.net.Send(p.local, p.trusted[m.Src()], q)
	}
	delete(p.waiting, m.Src())
	if reply := answer(m); reply != nil {
		p.send(reply)
	} else if !teredo.IsBubble(m) {
		p.got = append(p.got, string(m.Payload()))
	}
}

func (p *plainClient) send(m packet.IPv6) {
	dst := m.Dst()
	if to, ok := p.trusted[dst]; ok {
		p.w.net.Send(p.local, to, m)
		return
	}
	p.waiting[dst] = append(p.waiting[dst], m)
	bubble := teredo.AppendBubble(nil, p.own, dst)
	a := dst.As16()
	p.w.net.Send(p.local, teredo.Mapped(&a), bubble)
	p.w.net.Send(p.local, netip.AddrPortFrom(teredo.Server(&a), teredo.Port), bubble)
}

// With a peer of RFC 4380 alone: what that RFC can do, and beyond it a peer
// behind a symmetric NAT, which the disguised bubble reaches.
func TestPlainPeer(t *testing.T) {
	// Rows are Isthmus, columns the plain peer.
	initiates := map[string][]bool{
		nattest.FullCone.Name:            {true, true, true, true, true},
		nattest.AddressRestricted.Name:   {true, true, true, true, true},
		nattest.PortRestricted.Name:      {true, true, true, false, false},
		nattest.SymmetricRandom.Name:     {false, false, false, false, false},
		nattest.SymmetricSequential.Name: {false, false, false, false, false},
	}
	answers := map[string][]bool{
		nattest.FullCone.Name:            {true, true, true, false, false},
		nattest.AddressRestricted.Name:   {true, true, true, false, false},
		nattest.PortRestricted.Name:      {true, true, true, false, false},
		nattest.SymmetricRandom.Name:     {false, false, false, false, false},
		nattest.SymmetricSequential.Name: {false, false, false, false, false},
	}
	for _, own := range nattest.Kinds {
		for j, theirs := range nattest.Kinds {
			t.Run(own.Name+" to plain behind "+theirs.Name, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.qualified(nattest.NewNAT(own, natA)), w.plain(nattest.NewNAT(theirs, natB))
				for i := range 2 { // cold, and after a silence
					a.say(b.own, "ping")
					w.net.RunUntil(time.Second, func() bool { return len(a.got) > i }) // no timer is waited for
					if got, want := len(a.got) == i+1, initiates[own.Name][j]; got != want {
						t.Fatalf("ping %d answered: %v, want %v; dropped %s", i, got, want, a.dropped())
					}
					if !initiates[own.Name][j] {
						break
					}
					w.net.Run(40 * time.Second)
				}
			})
			t.Run(own.Name+" from plain behind "+theirs.Name, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.qualified(nattest.NewNAT(own, natA)), w.plain(nattest.NewNAT(theirs, natB))
				b.send(data(b.own, a.address(), "ping"))
				w.net.Run(10 * time.Second)
				if got, want := len(b.got) == 1, answers[own.Name][j]; got != want {
					t.Errorf("answered: %v, want %v; dropped %s", got, want, a.dropped())
				}
			})
		}
	}
}

// Two clients that cannot hear each other directly, a long way apart, must not
// answer each other's indirect bubbles for ever (RFC 4380 section 5.2.6).
func TestAnswersEnd(t *testing.T) {
	for link := 50 * time.Millisecond; link < 2*time.Second; link += 50 * time.Millisecond {
		t.Run(link.String(), func(t *testing.T) {
			w := newWorld(t)
			a := w.qualified(nattest.NewNAT(nattest.SymmetricRandom, natA))
			b := w.qualified(nattest.NewNAT(nattest.SymmetricRandom, natB))
			w.net.Delay = link
			a.say(b.address(), "data")
			w.net.Run(2 * time.Minute)
			sent := func() uint64 { return a.engine.Stats().IndirectBubbles + b.engine.Stats().IndirectBubbles }
			before := sent()
			w.net.Run(10 * time.Minute)
			if n := sent() - before; n > 0 {
				t.Errorf("%d indirect bubbles long after the host gave up", n)
			}
		})
	}
}

// Every bubble counts, those of a peer that is known too.
func TestBubblesOfKnownPeerCount(t *testing.T) {
	w := newWorld(t)
	a := w.qualified(nattest.NewNAT(nattest.FullCone, natA))
	b := w.qualified(nattest.NewNAT(nattest.FullCone, natB))
	a.say(b.address(), "ping")
	w.net.Run(time.Second)
	before := b.engine.Stats().BubblesReceived
	for range 3 {
		b.Receive(a.engine.Snapshot().Mapping, b.local, teredo.AppendBubble(nil, a.address(), b.address()), w.net.Now())
	}
	if n := b.engine.Stats().BubblesReceived - before; n != 3 {
		t.Errorf("%d of 3 bubbles counted", n)
	}
}
