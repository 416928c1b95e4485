// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/nattest"
	"github.com/isthmus-net/isthmus/teredo/relay"
)

// otherRelay is a second relay that carries between clients.
var otherRelay = netip.MustParseAddrPort("203.0.113.4:3545")

// carrier is a relay that carries between clients and reaches no IPv6 host.
type carrier struct {
	w      *world
	at     netip.AddrPort
	engine *relay.Relay
	dead   bool
}

// carrier adds a relay that carries.
func (w *world) carrier(at netip.AddrPort, change ...func(*relay.Config)) *carrier {
	cfg := relay.Config{
		Prefixes: []netip.Prefix{teredo.Prefix}, Serve: []netip.Prefix{netip.MustParsePrefix("2000::/3")},
		Address: netip.MustParseAddr("2001:db8::beef"),
		Own:     []netip.Addr{at.Addr()}, Port: at.Port(), MTU: 1280, MaxPeers: 1000, PeerTimeout: 30 * time.Second,
		QueuePackets: 16, QueueBytes: 1 << 16, QueueTotalBytes: 1 << 20,
		CarryClients: true, CarryRate: 1000, CarryClientRate: 1000,
	}
	for _, f := range change {
		f(&cfg)
	}
	c := &carrier{w: w, at: at}
	c.restart(cfg)
	w.net.Attach(c, at.Addr())
	return c
}

// restart makes the relay anew: it knows nobody.
func (c *carrier) restart(cfg relay.Config) {
	w := c.w
	w.ids++
	engine, err := relay.New(cfg, w.net.Now(), seeded(w.ids+100))
	if err != nil {
		w.t.Fatal(err)
	}
	c.engine = engine
}

func (c *carrier) Receive(from, _ netip.AddrPort, payload []byte, now time.Time) {
	if c.dead {
		return
	}
	var out packet.Batch
	c.engine.HandleUDP(from, payload, now, &out)
	c.send(&out)
}

func (c *carrier) Tick(now time.Time) {
	var out packet.Batch
	c.engine.Tick(now, &out)
	c.send(&out)
}

func (c *carrier) Next() time.Time { return c.engine.Next() }

func (c *carrier) send(out *packet.Batch) {
	for _, d := range out.UDP {
		c.w.net.Send(c.at, d.To, d.Payload)
	}
}

func fallback(at netip.AddrPort) option {
	return func(c *client.Config) { c.Fallback = at }
}

// carryWorld is a world whose own relay is another one that carries.
func carryWorld(t testing.TB, all ...option) (*world, *carrier) {
	w := newWorld(t, all...)
	return w, w.carrier(relayAddr)
}

func (n *clientNode) bound() bool { return n.engine.Snapshot().Fallback.Until.After(n.w.net.Now()) }

func (b *bench) bound() bool { return b.c.Snapshot().Fallback.Until.After(b.now) }

// withFallback adds a client and waits until it is bound.
func (w *world) withFallback(nat *nattest.NAT, at netip.AddrPort, options ...option) *clientNode {
	w.t.Helper()
	n := w.qualified(nat, append(options, fallback(at))...)
	if !w.net.RunUntil(time.Second, n.bound) {
		w.t.Fatalf("not bound; dropped %s", n.dropped())
	}
	return n
}

// With a relay that carries every pair of NATs connects, cold and without losing
// a packet, whether both clients name the same relay or each another one.
func TestMatrixWithFallback(t *testing.T) {
	eachPath(t, func(t *testing.T, all ...option) {
		for _, names := range []struct {
			what string
			a, b netip.AddrPort
		}{
			{"one relay", relayAddr, relayAddr},
			{"two relays", relayAddr, otherRelay},
		} {
			for _, from := range nattest.AllKinds {
				for _, to := range nattest.AllKinds {
					t.Run(fmt.Sprintf("%s, %s to %s", names.what, from.Name, to.Name), func(t *testing.T) {
						w, first := carryWorld(t, all...)
						second := w.carrier(otherRelay)
						a := w.withFallback(nattest.NewNAT(from, natA), names.a)
						b := w.withFallback(nattest.NewNAT(to, natB), names.b)
						if got := pingPair(w, a, b); got != pings {
							t.Errorf("%d of %d answered; dropped %q and %q", got, pings, a.dropped(), b.dropped())
						}
						if n := first.engine.Stats().Carried + second.engine.Stats().Carried; reached(from, to) && n > 0 {
							t.Errorf("%d packets were carried although there is a direct way", n)
						}
					})
				}
			}
		}
	})
}

// reached tells whether two kinds find a direct way at the first attempt.
func reached(from, to nattest.Kind) bool {
	return from.Filtering != nattest.AddressAndPortDependent || to.Filtering != nattest.AddressAndPortDependent ||
		from == nattest.PortRestricted && to == nattest.PortRestricted
}

// How long the first answer takes: a pair that is known to be hopeless does not
// wait, another one waits for its second attempt.
func TestFallbackFirstAnswer(t *testing.T) {
	for _, tt := range []struct {
		from, to nattest.Kind
		most     time.Duration
	}{
		{nattest.SymmetricRandom, nattest.SymmetricRandom, 16 * delay},
		{nattest.SymmetricSequential, nattest.SymmetricRandom, 16 * delay},
		{nattest.PortRestricted, nattest.SymmetricRandom, 2*time.Second + 8*delay},
		{nattest.SymmetricRandom, nattest.PortRestricted, 2*time.Second + 8*delay},
	} {
		t.Run(tt.from.Name+" to "+tt.to.Name, func(t *testing.T) {
			w, _ := carryWorld(t)
			a := w.withFallback(nattest.NewNAT(tt.from, natA), relayAddr)
			b := w.withFallback(nattest.NewNAT(tt.to, natB), relayAddr)
			w.net.Run(3 * time.Second) // so that both know their NAT
			since := w.net.Now()
			a.say(b.address(), "ping")
			if !w.net.RunUntil(10*time.Second, func() bool { return len(a.got) > 0 }) {
				t.Fatalf("no answer; dropped %s", a.dropped())
			}
			if took := w.net.Now().Sub(since); took > tt.most {
				t.Errorf("the first answer took %v, more than %v", took, tt.most)
			}
			// Known now: a pause longer than the life of an entry costs no second.
			w.net.Run(time.Minute)
			since = w.net.Now()
			a.say(b.address(), "ping again")
			w.net.RunUntil(10*time.Second, func() bool { return len(a.got) > 1 })
			if took := w.net.Now().Sub(since); took > 10*delay {
				t.Errorf("the answer after a pause took %v", took)
			}
		})
	}
}

// When only one of two clients has a fall-back, or the relay does not carry, the
// host is told as without one.
func TestFallbackNeedsBoth(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b []option
	}{
		{"the caller alone", []option{fallback(relayAddr)}, nil},
		{"the called alone", nil, []option{fallback(relayAddr)}},
		{"a relay that is not there", []option{fallback(relayAddr)}, []option{fallback(netip.MustParseAddrPort("203.0.113.77:3545"))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, c := carryWorld(t)
			a := w.qualified(nattest.NewNAT(nattest.SymmetricRandom, natA), tt.a...)
			b := w.qualified(nattest.NewNAT(nattest.SymmetricRandom, natB), tt.b...)
			if got := pingPair(w, a, b); got != 0 || a.errors == 0 || c.engine.Stats().Carried != 0 {
				t.Errorf("%d answered, %d errors, %d carried", got, a.errors, c.engine.Stats().Carried)
			}
		})
	}
	t.Run("a relay that does not carry", func(t *testing.T) {
		w := newWorld(t)
		w.carrier(relayAddr, func(c *relay.Config) { c.CarryClients = false })
		a := w.qualified(nattest.NewNAT(nattest.SymmetricRandom, natA), fallback(relayAddr))
		w.net.Run(10 * time.Minute)
		if s := a.engine.Stats(); a.bound() || s.BindingRequests > 24 {
			t.Errorf("bound: %v; %d requests in 10 minutes", a.bound(), s.BindingRequests)
		}
	})
}

// The policy holds for carried packets too.
func TestFallbackUnsolicited(t *testing.T) {
	w, c := carryWorld(t)
	a := w.withFallback(nattest.NewNAT(nattest.SymmetricRandom, natA), relayAddr)
	b := w.withFallback(nattest.NewNAT(nattest.SymmetricRandom, natB), relayAddr, established)
	if got := pingPair(w, a, b); got != 0 || len(b.got) != 0 {
		t.Errorf("%d answered, %q came in; %d carried", got, b.got, c.engine.Stats().Carried)
	}
	b.say(a.address(), "ping 0")
	if !w.net.RunUntil(10*time.Second, func() bool { return len(b.got) > 0 }) {
		t.Errorf("the other way: no answer; dropped %s", b.dropped())
	}
}

// A binding lasts: no packet of an hour is lost, with the NAT's mappings alive by
// the refreshments alone.
func TestFallbackLasts(t *testing.T) {
	w, c := carryWorld(t)
	natOf := func(public netip.Addr) *nattest.NAT {
		n := nattest.NewNAT(nattest.SymmetricRandom, public)
		n.Timeout = time.Minute
		return n
	}
	a := w.withFallback(natOf(natA), relayAddr)
	b := w.withFallback(natOf(natB), relayAddr)
	for i := range 60 {
		a.say(b.address(), fmt.Sprintf("ping %d", i))
		w.net.Run(time.Minute)
	}
	if len(a.got) != 60 || a.errors != 0 {
		t.Errorf("%d of 60 answered, %d errors; dropped %s", len(a.got), a.errors, a.dropped())
	}
	if got := c.engine.Stats().Bindings; got != 2 {
		t.Errorf("%d bindings were made, want 2 that are refreshed", got)
	}
}

// A relay that forgets its clients has them back before the minute is over.
func TestFallbackRelayRestarts(t *testing.T) {
	w, c := carryWorld(t)
	a := w.withFallback(nattest.NewNAT(nattest.SymmetricRandom, natA), relayAddr)
	b := w.withFallback(nattest.NewNAT(nattest.SymmetricRandom, natB), relayAddr)
	pingPair(w, a, b)
	got := len(a.got)
	c.restart(relay.Config{
		Prefixes: []netip.Prefix{teredo.Prefix}, Own: []netip.Addr{relayAddr.Addr()}, Port: relayAddr.Port(),
		MTU: 1280, MaxPeers: 1000, PeerTimeout: 30 * time.Second, CarryClients: true,
	})
	w.net.Run(time.Minute)
	a.say(b.address(), "ping again")
	w.net.Run(10 * time.Second)
	if len(a.got) != got+1 {
		t.Errorf("no answer; dropped %s", a.dropped())
	}
}

// A direct way that appears is taken, and the relay is out of it.
func TestDirectWayWins(t *testing.T) {
	w, c := carryWorld(t)
	nat := nattest.NewNAT(nattest.SymmetricRandom, natB)
	a := w.withFallback(nattest.NewNAT(nattest.PortRestricted, natA), relayAddr)
	b := w.withFallback(nat, relayAddr)
	send := func(what string) {
		a.say(b.address(), "ping "+what)
		w.net.Run(10 * time.Second)
	}
	send("by relay")
	if c.engine.Stats().Carried == 0 || len(a.got) != 1 {
		t.Fatalf("%d answers, %d carried", len(a.got), c.engine.Stats().Carried)
	}
	// The NAT of the one who is called becomes a full cone, which breaks the
	// binding until it is refreshed.
	nat.Kind = nattest.FullCone
	for range 40 {
		send("still")
	}
	before, answers := c.engine.Stats().Carried, len(a.got)
	for range 5 {
		send("direct")
	}
	if got := c.engine.Stats().Carried; got != before || len(a.got) != answers+5 || answers < 36 {
		t.Errorf("%d packets more were carried; %d answers, then %d; dropped %s", got-before, answers, len(a.got)-answers, a.dropped())
	}
}

// boundBench is a client with a fall-back, driven by hand.
func boundBench(t testing.TB) *bench {
	t.Helper()
	b := newQualified(t, fallback(relayAddr))
	b.bindStep(b.requestNonce())
	return b
}

func challengeFrom(dst netip.Addr, nonce uint32, origin netip.AddrPort) []byte {
	var p []byte
	if origin.IsValid() {
		p = teredo.AppendOrigin(p, origin)
	}
	tr := teredo.Trailers{HasNonce: true, Nonce: nonce}
	return tr.AppendTo(teredo.AppendBubble(p, teredo.BindingAddress(teredo.BindingChallenge, 7), dst))
}

// requestNonce returns the nonce of the last request to the client's own relay.
func (b *bench) requestNonce() uint32 {
	b.t.Helper()
	return b.requestNonceTo(relayAddr)
}

func (b *bench) requestNonceTo(relay netip.AddrPort) uint32 {
	b.t.Helper()
	for _, d := range b.out.UDP {
		if d.To != relay {
			continue
		}
		p, err := teredo.Parse(bytes.Clone(d.Payload))
		if err != nil || p.IPv6.Dst() != teredo.AllRouters {
			b.t.Fatalf("no request: %x", d.Payload)
		}
		tr, err := teredo.ParseTrailers(p.Trailers)
		if err != nil || tr.Nonce == 0 {
			b.t.Fatalf("request without nonce: %x", d.Payload)
		}
		return tr.Nonce
	}
	b.t.Fatalf("nothing was sent to the relay: %q", b.show())
	return 0
}

// bindStep confirms the exchange with that nonce.
func (b *bench) bindStep(nonce uint32) {
	b.t.Helper()
	b.udp(relayAddr, challengeFrom(b.address(), nonce, mapping))
	if !b.bound() {
		b.t.Fatal("not bound")
	}
}

// carriedBy is a bubble of the peer that our relay carried.
func carriedBy(dst netip.Addr, d teredo.Discovery) []byte {
	tr := teredo.Trailers{Discovery: d}
	return tr.AppendTo(teredo.AppendBubble(nil, peerAddr, dst))
}

func TestBindingRules(t *testing.T) {
	proof := func(b *bench, origin netip.AddrPort) []byte {
		src := teredo.BindingAddress(teredo.BindingProof, 9)
		return teredo.AppendBubble(teredo.AppendOrigin(nil, origin), src, b.address())
	}
	for _, tt := range []struct {
		name   string
		from   netip.AddrPort
		packet func(b *bench, nonce uint32) []byte
		sent   int // datagrams in answer
		bound  bool
		drop   string
	}{
		{"challenge", relayAddr, func(b *bench, n uint32) []byte { return challengeFrom(b.address(), n, netip.AddrPort{}) }, 1, false, ""},
		{"confirmation", relayAddr, func(b *bench, n uint32) []byte { return challengeFrom(b.address(), n, mapping) }, 0, true, ""},
		{"proof by way of the server", primaryPort, func(b *bench, _ uint32) []byte { return proof(b, relayAddr) }, 1, false, ""},
		{"wrong nonce", relayAddr, func(b *bench, n uint32) []byte { return challengeFrom(b.address(), n+1, mapping) }, 0, false, "unasked_binding 1"},
		{"from elsewhere", foreign, func(b *bench, n uint32) []byte { return challengeFrom(b.address(), n, mapping) }, 0, false, "unasked_binding 1"},
		{"no bubble", relayAddr, func(b *bench, n uint32) []byte {
			return data(teredo.BindingAddress(teredo.BindingChallenge, 7), b.address(), "x")
		}, 0, false, "bad_source 1"},
		{"proof of a relay that was not asked", primaryPort, func(b *bench, _ uint32) []byte { return proof(b, foreign) }, 0, false, "unasked_binding 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newQualified(t, fallback(relayAddr))
			b.udp(tt.from, tt.packet(b, b.requestNonce()))
			if len(b.out.UDP) != tt.sent || b.bound() != tt.bound || b.dropped() != tt.drop {
				t.Errorf("sent %q, bound %v, dropped %q", b.show(), b.bound(), b.dropped())
			}
			for _, d := range b.out.UDP {
				if d.To != relayAddr || len(d.Payload) != teredo.BubbleLen+6 {
					t.Errorf("sent %d bytes to %s", len(d.Payload), d.To)
				}
			}
		})
	}
}

// Requests are repeated after 2 s, four in all; then the relay has a rest that
// doubles to five minutes.
func TestBindingTimers(t *testing.T) {
	b := newQualified(t, fallback(relayAddr))
	since, sent := b.now, 1
	var pauses []time.Duration
	for last := b.now; b.now.Sub(since) < time.Hour; {
		before := b.c.Stats().BindingRequests
		next := b.c.Next()
		b.out.Reset()
		b.now = next
		b.c.Tick(b.now, &b.out)
		for _, d := range b.out.UDP {
			if d.To == primaryPort {
				if p, err := teredo.Parse(bytes.Clone(d.Payload)); err == nil && teredo.CheckRouterSolicitation(p.IPv6) == nil {
					b.udp(primaryPort, b.answer(mapping))
					break
				}
			}
		}
		if b.c.Stats().BindingRequests > before {
			sent++
			if d := b.now.Sub(last); d != 2*time.Second {
				pauses = append(pauses, d)
			}
			last = b.now
		}
	}
	if len(pauses) < 3 || pauses[0] < 22*time.Second || pauses[0] > 33*time.Second || pauses[len(pauses)-1] < 225*time.Second {
		t.Errorf("pauses %v", pauses)
	}
	if sent > 4*(len(pauses)+1) {
		t.Errorf("%d requests in %d efforts", sent, len(pauses)+1)
	}
}

func TestCarriedRules(t *testing.T) {
	solicitation := func(b *bench) []byte { return carriedBy(b.address(), teredo.DiscoverySolicitation) }
	words := func(b *bench) []byte { return data(peerAddr, b.address(), "x") }
	for _, tt := range []struct {
		name   string
		set    func(b *bench)
		from   netip.AddrPort
		packet func(b *bench) []byte
		sent   []string
		drop   string
	}{
		{name: "solicitation is answered by the relay", from: relayAddr, packet: solicitation, sent: []string{"to relay: bubble"}},
		{name: "advertisement is not", from: relayAddr, packet: func(b *bench) []byte { return carriedBy(b.address(), teredo.DiscoveryAdvertisement) }},
		{name: "data is delivered", from: relayAddr, packet: words, sent: []string{"host: x"}},
		{name: "data from another relay is not", from: foreign, packet: words, drop: "foreign_mapping 1"},
		{name: "data before we are bound is not", set: func(b *bench) { b.now = b.now.Add(time.Minute) }, from: relayAddr, packet: words, drop: "foreign_mapping 1"},
		{name: "from a client at a private address", from: relayAddr, drop: "not_global 1", packet: func(b *bench) []byte {
			return data(teredo.Addr{Prefix: teredo.Prefix, Server: primary, Mapped: netip.MustParseAddrPort("10.0.0.1:9")}.IP(), b.address(), "x")
		}},
		{name: "Neighbor Discovery is not for the host", from: relayAddr, drop: "neighbor_discovery 1", packet: func(b *bench) []byte {
			return icmp(peerAddr, b.address(), packet.ICMPv6Redirect)
		}},
		{name: "data without end", from: relayAddr, packet: words, sent: []string{"host: x"}, set: func(b *bench) {
			for range 1000 {
				b.udp(relayAddr, words(b))
			}
		}},
		{name: "solicitations without end", from: relayAddr, packet: solicitation, drop: "rate_limited 1", set: func(b *bench) {
			for range 8 {
				b.udp(relayAddr, solicitation(b))
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := boundBench(t)
			if tt.set != nil {
				tt.set(b)
			}
			got := b.udp(tt.from, tt.packet(b))
			if fmt.Sprint(got) != fmt.Sprint(tt.sent) || b.dropped() != tt.drop {
				t.Errorf("output %q, want %q; dropped %q, want %q", got, tt.sent, b.dropped(), tt.drop)
			}
		})
	}
}

// A peer that is reached directly is not moved to the relay, whatever comes by it.
func TestCarriedPacketLeavesDirectWay(t *testing.T) {
	b := boundBench(t)
	b.udp(peerMapping, data(peerAddr, b.address(), "direct"))
	b.udp(relayAddr, data(peerAddr, b.address(), "carried"))
	if got := b.ip(data(b.address(), peerAddr, "x")); len(got) != 1 || b.out.UDP[0].To != peerMapping {
		t.Errorf("sent %q", got)
	}
}

// A peer that is asked whether its direct way is still open may answer by the
// relay: then it is reached there, until it speaks directly.
func TestCarriedAnswerToSolicitation(t *testing.T) {
	b := boundBench(t)
	to := func(what string, want netip.AddrPort) {
		t.Helper()
		b.ip(data(b.address(), peerAddr, "x"))
		if len(b.out.UDP) != 1 || b.out.UDP[0].To != want {
			t.Errorf("%s: sent %q", what, b.show())
		}
	}
	b.udp(peerMapping, bubble(peerAddr, b.address(), 7)) // a client with RFC 6081
	to("direct", peerMapping)
	b.now = b.now.Add(40 * time.Second)
	b.out.Reset()
	b.c.Tick(b.now, &b.out) // refreshes the binding
	b.bindStep(b.requestNonce())
	b.ip(data(b.address(), peerAddr, "waits")) // asks directly
	b.udp(relayAddr, data(peerAddr, b.address(), "carried"))
	to("carried", relayAddr)
	b.udp(relayAddr, data(peerAddr, b.address(), "carried again"))
	to("carried again", relayAddr)
	b.udp(peerMapping, data(peerAddr, b.address(), "direct"))
	to("direct again", peerMapping)
	b.udp(relayAddr, data(peerAddr, b.address(), "late"))
	to("still direct", peerMapping)
}

// A peer may name any relay: few are bound to at a time, none that is not global,
// none but for a peer that the host wants to reach.
func TestForeignRelaysAreBounded(t *testing.T) {
	b := boundBench(t)
	told := func(i byte, relay netip.AddrPort) []byte {
		peer := teredo.Addr{Prefix: teredo.Prefix, Server: primary, Mapped: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 4000)}
		tr := teredo.Trailers{HasNonce: true, Nonce: 5, Fallback: teredo.Fallback{Relay: relay}}
		return tr.AppendTo(teredo.AppendBubble(teredo.AppendOrigin(nil, peer.Mapped), peer.IP(), b.address()))
	}
	asked := map[netip.AddrPort]bool{}
	look := func() {
		for _, d := range b.out.UDP {
			if p, err := teredo.Parse(d.Payload); err == nil && p.IPv6.Dst() == teredo.AllRouters {
				asked[d.To] = true
			}
		}
	}
	for i := range byte(20) {
		b.now = b.now.Add(100 * time.Millisecond)
		peer := teredo.Addr{Prefix: teredo.Prefix, Server: primary, Mapped: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 4000)}.IP()
		relay := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, 100 + i}), 3545)
		if i == 3 {
			relay = netip.MustParseAddrPort("10.0.0.1:3545")
		}
		if i != 4 {
			b.ip(data(b.address(), peer, "x"))
		}
		b.udp(primaryPort, told(i, relay))
		look()
	}
	for range 8 {
		b.tick()
		look()
	}
	delete(asked, relayAddr)
	for a := range asked {
		if a.Addr().IsPrivate() || a.Addr() == netip.AddrFrom4([4]byte{198, 51, 100, 104}) {
			t.Errorf("asked %s", a)
		}
	}
	if len(asked) == 0 || len(asked) > 7 {
		t.Errorf("%d relays of peers were asked, want 1 to 7", len(asked))
	}
}

// Few peers wait for one binding; the others repeat their bubbles by themselves.
func TestWaitingForARelayIsBounded(t *testing.T) {
	const peers, room = 6, 4
	b := boundBench(t)
	for i := range uint16(peers) {
		mapped := netip.AddrPortFrom(peerMapping.Addr(), 5000+i)
		peer := teredo.Addr{Prefix: teredo.Prefix, Server: peerServer, Mapped: mapped}.IP()
		b.ip(data(b.address(), peer, "x"))
		tr := teredo.Trailers{HasNonce: true, Nonce: 5, Fallback: teredo.Fallback{Relay: otherRelay}}
		b.udp(primaryPort, throughServer(mapped, withTrailers(peer, b.address(), tr)))
	}
	b.now = b.now.Add(2 * time.Second) // the second attempt of all
	b.out.Reset()
	b.c.Tick(b.now, &b.out)
	asked := func() (n int) {
		for _, s := range b.show() {
			if s == "to "+otherRelay.String()+": bubble" {
				n++
			}
		}
		return n
	}
	nonce := b.requestNonceTo(otherRelay)
	if n := asked(); n != 0 {
		t.Errorf("%d peers were asked before the client is bound", n)
	}
	b.udp(otherRelay, challengeFrom(b.address(), nonce, mapping))
	if n := asked(); n != room {
		t.Errorf("%d peers had waited, want %d", n, room)
	}
	b.now = b.now.Add(2 * time.Second)
	b.out.Reset()
	b.c.Tick(b.now, &b.out)
	if n := asked(); n != peers {
		t.Errorf("%d peers were asked by the next attempt, want %d", n, peers)
	}
}

// FuzzFallback sends a client with a fall-back anything, by all who may send: it
// must not panic, send to addresses that are not global, or answer one packet with
// many.
func FuzzFallback(f *testing.F) {
	own := newQualified(f, fallback(relayAddr)).address()
	tr := teredo.Trailers{HasNonce: true, Nonce: 7, Fallback: teredo.Fallback{Relay: otherRelay, Symmetric: true}}
	for _, p := range [][]byte{
		challengeFrom(own, 7, netip.AddrPort{}), challengeFrom(own, 7, mapping), carriedBy(own, teredo.DiscoverySolicitation),
		carriedBy(own, teredo.DiscoveryAdvertisement), data(peerAddr, own, "x"),
		tr.AppendTo(teredo.AppendBubble(teredo.AppendOrigin(nil, peerMapping), peerAddr, own)),
		teredo.AppendBubble(teredo.AppendOrigin(nil, relayAddr), teredo.BindingAddress(teredo.BindingProof, 1), own),
	} {
		for i := range sources {
			f.Add(p, uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte, from uint8) {
		b := boundBench(t)
		b.ip(data(own, peerAddr, "waits"))
		for range 3 {
			b.out.Reset()
			b.c.HandleUDP(sources[int(from)%len(sources)], bytes.Clone(payload), b.now, &b.out)
			if len(b.out.UDP) > 4 || len(b.out.IP) > 1 {
				t.Fatalf("%q for one packet", b.show())
			}
			var check teredo.GlobalCheck
			for _, d := range b.out.UDP {
				if d.To.Port() == 0 || !check.OK(d.To.Addr()) {
					t.Fatalf("sent to %s", d.To)
				}
			}
			b.now = b.now.Add(2 * time.Second)
			b.c.Tick(b.now, &b.out)
		}
	})
}
