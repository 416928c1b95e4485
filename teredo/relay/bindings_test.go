// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
)

// bindingKnownToTheOtherSide makes alice a peer of an IPv6 host too: being bound
// and being a peer are two things.
func (b *bench) bindingKnownToTheOtherSide() { b.ip(data(host, alice, "first")) }

// A key is good for one client, at one mapping, for one step, for 15 to 30 s.
func TestBindingKeys(t *testing.T) {
	elsewhere, otherHost := netip.MustParseAddrPort("198.51.100.7:50001"), netip.MustParseAddrPort("198.51.100.8:50000")
	for _, tt := range []struct {
		name string
		then func(b *bench, challenge, proof netip.Addr)
	}{
		{"challenge returned from elsewhere", func(b *bench, c, _ netip.Addr) { b.udp(elsewhere, step(alice, c)) }},
		{"challenge returned from another address", func(b *bench, c, _ netip.Addr) { b.udp(otherHost, step(alice, c)) }},
		{"challenge returned for another client", func(b *bench, c, _ netip.Addr) { b.udp(aliceAt, step(bob, c)) }},
		{"challenge as proof", func(b *bench, c, _ netip.Addr) {
			a := c.As16()
			_, key := teredo.BindingStepOf(&a)
			b.udp(aliceAt, step(alice, teredo.BindingAddress(teredo.BindingProof, key)))
		}},
		{"challenge returned late", func(b *bench, c, _ netip.Addr) { b.wait(30 * time.Second); b.udp(aliceAt, step(alice, c)) }},
		{"proof from elsewhere", func(b *bench, _, p netip.Addr) { b.udp(elsewhere, step(alice, p)) }},
		{"proof from another address", func(b *bench, _, p netip.Addr) { b.udp(otherHost, step(alice, p)) }},
		{"proof for another client", func(b *bench, _, p netip.Addr) { b.udp(aliceAt, step(bob, p)) }},
		{"proof late", func(b *bench, _, p netip.Addr) { b.wait(30 * time.Second); b.udp(aliceAt, step(alice, p)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, carrying)
			b.udp(aliceAt, step(alice, teredo.AllRouters))
			challenge := b.sentTo(aliceAt).IPv6.Src()
			b.udp(aliceAt, step(alice, challenge))
			tt.then(b, challenge, b.sentTo(serverPort).IPv6.Src())
			b.want("output", b.show())
			b.want("drops", b.dropped(), "bad_binding 1")
			if b.r.Sizes().Bound != 0 {
				t.Error("bound all the same")
			}
		})
	}
}

// serverOf is the server in a client's address.
func serverOf(client netip.Addr) netip.Addr {
	a := client.As16()
	return teredo.Server(&a)
}

// A client that moves takes its binding with it, and the old place is worthless.
func TestBindingMoves(t *testing.T) {
	b := bound(t)
	moved := netip.MustParseAddrPort("198.51.100.99:1234")
	b.bind(alice, moved)
	b.want("to the new place", b.udp(bobAt, data(bob, alice, "x")), "udp 198.51.100.99:1234 x hop 63")
	b.want("from the old place", b.udp(aliceAt, data(alice, bob, "x")))
	b.want("drops", b.dropped(), "not_bound 1")
	if got := b.r.Sizes().Bound; got != 2 {
		t.Errorf("%d clients are bound, want 2", got)
	}
}

// A full table takes no newcomer before someone leaves.
func TestBindingsFull(t *testing.T) {
	b := newBench(t, carrying, func(c *Config) { c.MaxPeers = 1 })
	b.bind(alice, aliceAt)
	b.challenged(bob, bobAt)
	b.udp(bobAt, step(bob, b.sentTo(serverPort).IPv6.Src()))
	b.want("output", b.show())
	b.want("drops", b.dropped(), "bindings_full 1")
	b.wait(bindingLife)
	b.bind(bob, bobAt)
}

// One IPv4 address has a part of the table, and of that what its bindings leave.
func TestBindingsOfOneAddress(t *testing.T) {
	const limit = 4 * addressShare
	b := newBench(t, carrying, func(c *Config) { c.MaxPeers = limit })
	at := func(n int) netip.AddrPort { return netip.AddrPortFrom(aliceAt.Addr(), uint16(2000+n)) }
	for n := range limit {
		c, _ := nth(n)
		b.challenged(c, at(n))
		b.udp(at(n), step(c, b.sentTo(netip.AddrPortFrom(serverOf(c), teredo.Port)).IPv6.Src()))
		b.wait(time.Second)
	}
	if got := b.r.Sizes().Bound; got != limit/addressShare {
		t.Errorf("%d clients are bound at one address", got)
	}
	b.want("drops", b.dropped(), "bindings_full 28")
	b.bind(bob, bobAt)
	first, _ := nth(0)
	b.wait(20 * time.Second)
	b.challenged(first, at(0)) // is refreshed
	if p := b.sentTo(at(0)); p.Origin != at(0) {
		t.Errorf("not refreshed: %q", b.show())
	}
	b.wait(bindingLife)
	b.bind(alice, aliceAt)
	if got := b.r.carriage.bindings.addresses; len(got) != 1 || got[aliceAt.Addr()] != 1 {
		t.Errorf("bound at addresses: %v", got)
	}
}

// A client that returns the challenge again and again stays bound, whoever else ends.
func TestBindingIsRefreshed(t *testing.T) {
	b := bound(t)
	for range 4 {
		b.wait(bindingLife - time.Second)
		b.challenged(alice, aliceAt)
		if p := b.sentTo(aliceAt); p.Origin != aliceAt {
			t.Fatalf("not refreshed: %q", b.show())
		}
	}
	b.want("to one who has ended", b.udp(aliceAt, bubble(alice, bob)))
	b.want("drops", b.dropped(), "no_binding 1")
}

// Permission that is taken back and given again finds no one bound.
func TestBindingsEndWithThePermission(t *testing.T) {
	b := bound(t)
	for _, carry := range []bool{false, true} {
		cfg := b.r.cfg
		cfg.CarryClients = carry
		if err := b.r.Reconfigure(cfg); err != nil {
			t.Fatal(err)
		}
	}
	b.want("data", b.udp(aliceAt, data(alice, bob, "x")))
	b.want("drops", b.dropped(), "not_bound 1")
	b.bind(alice, aliceAt)
}

// Bindings end by themselves, and the relay has nothing to do then.
func TestBindingsEnd(t *testing.T) {
	b := bound(t)
	d, out := b.tick()
	if d != bindingLife || len(out) > 0 || b.r.Sizes().Bound != 0 {
		t.Errorf("after %v: %q, %d bound", d, out, b.r.Sizes().Bound)
	}
	if next := b.r.Next(); !next.IsZero() {
		t.Errorf("something is due at %v", next)
	}
}

// One that was refreshed between others outlives both.
func TestOthersEndBesideARefreshedBinding(t *testing.T) {
	b := bound(t)
	carolAt := netip.MustParseAddrPort("198.51.100.71:41000")
	b.bind(clientAt(carolAt.String()), carolAt)
	b.wait(bindingLife / 2)
	b.challenged(bob, bobAt)
	b.tick()
	if got := b.r.Sizes().Bound; got != 1 {
		t.Errorf("%d are bound, want the one that was refreshed", got)
	}
	b.want("what comes from it", b.udp(bobAt, bubble(bob, alice)))
	b.want("drops", b.dropped(), "no_binding 1")
}

// A flood of requests with forged sources stops newcomers, but no one who is bound.
func TestFloodOfRequests(t *testing.T) {
	b := bound(t)
	b.wait(20 * time.Second)
	for i := range uint32(20_000) {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 20, byte(i >> 8), byte(i)}), 4000)
		b.udp(from, step(clientAt(from.String()), teredo.AllRouters))
	}
	if got := b.r.Sizes().Bound; got != 2 || !slices.Contains(b.dropped(), "binding_rate 10000") {
		t.Errorf("%d are bound; dropped %q", got, b.dropped())
	}
	for range 2 * requestsPerAddressBurst {
		b.udp(bobAt, step(alice, teredo.AllRouters)) // in the name of one who is bound elsewhere
	}
	b.udp(aliceAt, step(alice, teredo.AllRouters))
	b.udp(aliceAt, step(alice, b.sentTo(aliceAt).IPv6.Src()))
	if p := b.sentTo(aliceAt); p.Origin != aliceAt {
		t.Errorf("not refreshed: %q", b.show())
	}
}

// One challenge that is returned again and again does not spend the bubbles of all.
func TestChallengesPerAddress(t *testing.T) {
	b := newBench(t, carrying)
	b.udp(aliceAt, step(alice, teredo.AllRouters))
	challenge := b.sentTo(aliceAt).IPv6.Src()
	for range 1000 {
		b.udp(aliceAt, step(alice, challenge))
	}
	if sent := b.r.Stats().BubblesSent; sent != requestsPerAddressBurst-1 {
		t.Errorf("%d bubbles for one client", sent)
	}
}

// Proofs by way of a server share its budget of bubbles.
func TestProofsPerServer(t *testing.T) {
	b := newBench(t, carrying, func(c *Config) { c.BubbleRate = 8 }) // a quarter: 2 for one server
	sent := 0
	for i := range byte(4) {
		c := clientAt(netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, 20 + i}), 4000).String())
		b.now = b.now.Add(time.Millisecond)
		b.r.carriage.replies = ratelimit.Bucket{} // not this limit
		b.challenged(c, netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, 20 + i}), 5000))
		sent += len(b.out.UDP)
	}
	if sent != 2 || !slices.Contains(b.dropped(), "server_rate 2") {
		t.Errorf("%d proofs went to one server; dropped %q", sent, b.dropped())
	}
}

func TestBindingBubbleRate(t *testing.T) {
	b := newBench(t, carrying)
	b.udp(aliceAt, step(alice, teredo.AllRouters))
	challenge := b.sentTo(aliceAt).IPv6.Src()
	spendBubbles(b)
	b.want("output", b.udp(aliceAt, step(alice, challenge)))
	b.want("drops", b.dropped(), "bubble_rate 1")
}
