// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
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
	ahead  time.Duration // of its clock
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

// restart makes the relay again: it knows no one.
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
	c.engine.HandleUDP(from, payload, now.Add(c.ahead), &out)
	c.send(&out)
}

func (c *carrier) Tick(now time.Time) {
	var out packet.Batch
	c.engine.Tick(now.Add(c.ahead), &out)
	c.send(&out)
}

func (c *carrier) Next() time.Time {
	next := c.engine.Next()
	if next.IsZero() {
		return next
	}
	return next.Add(-c.ahead)
}

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

// reached reports whether two kinds find a direct way at the first attempt.
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

// The relay carries meanwhile, but a direct way is sought to the last attempt.
func TestDirectWayByTheThirdAttempt(t *testing.T) {
	w, c := carryWorld(t)
	a := w.withFallback(nattest.NewNAT(nattest.PortRestricted, natA), relayAddr)
	b := w.withFallback(nattest.NewNAT(nattest.PortRestricted, natB), relayAddr)
	w.server.deaf = true
	a.say(b.address(), "ping")
	w.net.Run(3 * time.Second)
	carried := c.engine.Stats().Carried
	if len(a.got) != 1 || carried == 0 {
		t.Fatalf("%d answers, %d carried", len(a.got), carried)
	}
	w.server.deaf = false
	w.net.Run(2 * time.Second)
	a.say(b.address(), "ping again")
	w.net.Run(time.Second)
	if got := c.engine.Stats().Carried; len(a.got) != 2 || got != carried {
		t.Errorf("%d answers, %d packets more were carried", len(a.got), got-carried)
	}
}
