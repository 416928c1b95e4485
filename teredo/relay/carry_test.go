// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
)

// The cast of these tests: two clients behind symmetric NATs, which the relay
// sees at other ports than their addresses name.
var (
	alice, aliceAt = clientAt("198.51.100.7:40000"), netip.MustParseAddrPort("198.51.100.7:50000")
	bob, bobAt     = clientAt("192.0.2.9:41000"), netip.MustParseAddrPort("192.0.2.9:51000")
	serverPort     = netip.AddrPortFrom(server, teredo.Port)
)

const testNonce = 0x11223344

func carrying(c *Config) { c.CarryClients, c.CarryRate, c.CarryClientRate = true, 1000, 100 }

// step is a bubble of a binding, with a nonce.
func step(client, dst netip.Addr) []byte {
	t := teredo.Trailers{HasNonce: true, Nonce: testNonce}
	return t.AppendTo(bubble(client, dst))
}

// sentTo returns the one datagram that the last call sent to an address.
func (b *bench) sentTo(to netip.AddrPort) teredo.Packet {
	b.t.Helper()
	for _, d := range b.out.UDP {
		if d.To == to {
			p, err := teredo.Parse(bytes.Clone(d.Payload))
			if err != nil {
				b.t.Fatal(err)
			}
			return p
		}
	}
	b.t.Fatalf("nothing was sent to %s; dropped %q", to, b.dropped())
	return teredo.Packet{}
}

// challenged takes a client to the point where it has returned the challenge.
func (b *bench) challenged(client netip.Addr, at netip.AddrPort) {
	b.t.Helper()
	b.udp(at, step(client, teredo.AllRouters))
	b.udp(at, step(client, b.sentTo(at).IPv6.Src()))
}

// bind takes a client through all steps.
func (b *bench) bind(client netip.Addr, at netip.AddrPort) {
	b.t.Helper()
	b.challenged(client, at)
	b.udp(at, step(client, b.sentTo(serverPort).IPv6.Src()))
	if p := b.sentTo(at); p.Origin != at {
		b.t.Fatalf("not bound: %+v", p)
	}
}

func bound(t *testing.T) *bench {
	b := newBench(t, carrying)
	b.bind(alice, aliceAt)
	b.bind(bob, bobAt)
	return b
}

func TestBindingSteps(t *testing.T) {
	b := newBench(t, carrying)
	trailers := func(p teredo.Packet) uint32 {
		tr, err := teredo.ParseTrailers(p.Trailers)
		if err != nil {
			t.Fatal(err)
		}
		return tr.Nonce
	}
	request := step(alice, teredo.AllRouters)
	b.want("request", b.udp(aliceAt, request), "udp 198.51.100.7:50000 bubble and 6 bytes")
	if n := len(b.out.UDP[0].Payload); n > len(request) {
		t.Errorf("%d bytes in made %d bytes out", len(request), n)
	}
	challenge := b.sentTo(aliceAt)
	if challenge.Origin.IsValid() || trailers(challenge) != testNonce {
		t.Errorf("challenge with origin %v, nonce %x", challenge.Origin, trailers(challenge))
	}
	if got := b.r.Sizes().Bound; got != 0 || len(b.r.carriage.bindings.table) != 0 {
		t.Errorf("a request made %d bindings", got)
	}
	b.want("challenge returned", b.udp(aliceAt, step(alice, challenge.IPv6.Src())), "udp 203.0.113.1:3544 bubble")
	proof := b.sentTo(serverPort)
	if got := b.r.Sizes().Bound; got != 0 {
		t.Errorf("a returned challenge made %d bindings", got)
	}
	b.udp(aliceAt, step(alice, proof.IPv6.Src()))
	if done := b.sentTo(aliceAt); done.Origin != aliceAt || trailers(done) != testNonce {
		t.Errorf("confirmed with origin %v, nonce %x", done.Origin, trailers(done))
	}
	// A refresh needs no server.
	b.wait(25 * time.Second)
	b.udp(aliceAt, step(alice, teredo.AllRouters))
	b.udp(aliceAt, step(alice, b.sentTo(aliceAt).IPv6.Src()))
	if len(b.out.UDP) != 1 || b.sentTo(aliceAt).Origin != aliceAt {
		t.Errorf("refreshing gave %q", b.show())
	}
	b.want("drops", b.dropped())
}

// What carries from one to the other, hop taken; and the way back.
func TestCarry(t *testing.T) {
	b := bound(t)
	ourPort := netip.MustParseAddrPort("198.51.100.70:3545") // the number of our port, not our address
	b.bind(clientAt(ourPort.String()), ourPort)
	b.want("there", b.udp(aliceAt, data(alice, bob, "hello")), "udp 192.0.2.9:51000 hello hop 63")
	b.want("back", b.udp(bobAt, data(bob, alice, "hello")), "udp 198.51.100.7:50000 hello hop 63")
	solicit := teredo.Trailers{Discovery: teredo.DiscoverySolicitation}
	b.udp(aliceAt, solicit.AppendTo(bubble(alice, bob)))
	if got := b.sentTo(bobAt); !bytes.Equal(got.Trailers, solicit.AppendTo(nil)) {
		t.Errorf("a bubble lost its trailers: %x", got.Trailers)
	}
	b.udp(aliceAt, append(data(alice, bob, "hello"), "pad"...))
	if got := b.sentTo(bobAt); len(got.Trailers) > 0 {
		t.Errorf("data kept %x behind it", got.Trailers)
	}
	b.want("drops", b.dropped())
	if got := b.r.Stats().Carried; got != 4 {
		t.Errorf("%d packets carried, want 4", got)
	}
}

func TestCarryRefusals(t *testing.T) {
	stranger, strangerAt := clientAt("198.51.100.8:41000"), netip.MustParseAddrPort("198.51.100.8:41000")
	unreachable := "udp 198.51.100.7:50000 error 1/3 2001:db8::beef -> " + alice.String()
	longTrailer := append(step(alice, bob), make([]byte, 200)...)
	for _, tt := range []struct {
		name   string
		set    func(*bench)
		from   netip.AddrPort
		packet []byte
		want   []string
		drop   string
	}{
		{name: "from a client that is not bound, at its own mapping", from: strangerAt, packet: data(stranger, bob, "x"), drop: "not_bound"},
		{name: "forged: the source of one from the place of another", from: bobAt, packet: data(alice, bob, "x"), drop: "not_bound"},
		{name: "forged: at the mapping that the address names", from: mapped, packet: data(alice, bob, "x"), drop: "not_bound"},
		{name: "to a client that is not bound", from: aliceAt, packet: data(alice, stranger, "x"), want: []string{unreachable}, drop: "no_binding"},
		{name: "bubble to a client that is not bound: no error", from: aliceAt, packet: bubble(alice, stranger), drop: "no_binding"},
		{name: "to a private address", from: aliceAt, packet: data(alice, clientAt("10.0.0.1:9"), "x"), want: []string{unreachable}, drop: "no_binding"},
		{name: "to itself", from: aliceAt, packet: data(alice, alice, "x"), drop: "bad_destination"},
		{name: "last hop", from: aliceAt, packet: hop(1, data(alice, bob, "x")), drop: "hop_limit",
			want: []string{"udp 198.51.100.7:50000 error 3/0 2001:db8::beef -> " + alice.String()}},
		{name: "too long", from: aliceAt, packet: data(alice, bob, strings.Repeat("x", 1241)), drop: "too_big",
			want: []string{"udp 198.51.100.7:50000 error 2/0 2001:db8::beef -> " + alice.String()}},
		{name: "as long as the link takes", from: aliceAt, packet: data(alice, bob, strings.Repeat("x", 1240)),
			want: []string{"udp 192.0.2.9:51000 " + strings.Repeat("x", 1240) + " hop 63"}},
		{name: "from our own socket", from: netip.AddrPortFrom(relayIPv4, 3545), packet: data(alice, bob, "x"), drop: "own_address"},
		{name: "binding has run out", set: func(b *bench) { b.wait(bindingLife) }, from: aliceAt, packet: data(alice, bob, "x"), drop: "not_bound"},
		{name: "bubble with too much behind it", from: aliceAt, packet: longTrailer, want: []string{"udp 192.0.2.9:51000 bubble"}},
		{name: "one client sends too much", from: aliceAt, packet: data(alice, bob, "x"), drop: "carry_client_rate",
			set: func(b *bench) {
				for b.r.carriage.bindings.newest.older.bucket.Allow(b.r.carriage.clientLimit, b.now) {
				}
			}},
		{name: "all together send too much", from: aliceAt, packet: data(alice, bob, "x"), drop: "carry_rate",
			set: func(b *bench) {
				for b.r.carriage.rate.Allow(b.r.carriage.rateLimit, b.now) {
				}
			}},

		{name: "request without a nonce", from: aliceAt, packet: bubble(alice, teredo.AllRouters), drop: "bad_binding"},
		{name: "request that is no bubble", from: aliceAt, packet: data(alice, teredo.AllRouters, "x"), drop: "bad_binding"},
		{name: "request with a trailer that demands a drop", from: aliceAt, packet: append(step(alice, teredo.AllRouters), 0x40, 0), drop: "bad_binding"},
		{name: "challenge made up", from: aliceAt, packet: step(alice, teredo.BindingAddress(teredo.BindingChallenge, 7)), drop: "bad_binding"},
		{name: "proof made up", from: aliceAt, packet: step(alice, teredo.BindingAddress(teredo.BindingProof, 7)), drop: "bad_binding"},
		{name: "request that is no bubble, with a nonce", from: aliceAt, drop: "bad_binding",
			packet: append(data(alice, teredo.AllRouters, "x"), step(alice, teredo.AllRouters)[teredo.BubbleLen:]...)},
		{name: "request from port 0", from: netip.AddrPortFrom(aliceAt.Addr(), 0), packet: step(alice, teredo.AllRouters), drop: "mapped_not_global"},
		{name: "request from a private address", from: netip.MustParseAddrPort("10.0.0.1:9"), packet: step(alice, teredo.AllRouters), drop: "mapped_not_global"},
		{name: "request from a broadcast address", from: aliceAt, packet: step(alice, teredo.AllRouters), drop: "mapped_not_global",
			set: func(b *bench) { b.r.cfg.Global.Broadcasts = []netip.Addr{aliceAt.Addr()} }},
		{name: "request from an address of ours", from: netip.AddrPortFrom(relayIPv4, 99), packet: step(alice, teredo.AllRouters), drop: "own_address"},
		{name: "request for a client at our address", from: aliceAt, packet: step(clientAt("192.0.2.3:40000"), teredo.AllRouters), drop: "own_address"},
		{name: "request for a client of a private server", from: aliceAt, drop: "server_not_global",
			packet: step(teredoAddr(addr("192.168.1.1"), mapped), teredo.AllRouters)},
		{name: "request for a client at its server's port", from: aliceAt, packet: step(clientAt("203.0.113.1:3544"), teredo.AllRouters), drop: "mapped_to_server"},
		{name: "too many requests from one address", from: strangerAt, packet: step(stranger, teredo.AllRouters), drop: "binding_rate",
			set: func(b *bench) {
				for b.r.carriage.perAddress.Allow(strangerAt.Addr(), b.now) {
				}
			}},
		{name: "too many requests of a client that is bound", from: aliceAt, packet: step(alice, teredo.AllRouters), drop: "binding_rate",
			set: func(b *bench) {
				for b.r.carriage.bindings.newest.older.requests.Allow(requestLimit, b.now) {
				}
			}},
		{name: "too many requests in all", from: strangerAt, packet: step(stranger, teredo.AllRouters), drop: "binding_rate",
			set: func(b *bench) {
				for b.r.carriage.replies.Allow(b.r.bubbleLimit, b.now) {
				}
			}},
		{name: "carrying was switched off", from: aliceAt, packet: data(alice, bob, "x"), drop: "mapping_mismatch",
			set: func(b *bench) {
				b.bindingKnownToTheOtherSide()
				cfg := b.r.cfg
				cfg.CarryClients = false
				if err := b.r.Reconfigure(cfg); err != nil {
					b.t.Fatal(err)
				}
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := bound(t)
			if tt.set != nil {
				tt.set(b)
			}
			b.want("output", b.udp(tt.from, tt.packet), tt.want...)
			var drops []string
			if tt.drop != "" {
				drops = []string{tt.drop + " 1"}
			}
			b.want("drops", b.dropped(), drops...)
		})
	}
}

// A relay that is not told to carry is as before: it answers no request.
func TestCarryIsOffByDefault(t *testing.T) {
	b := newBench(t)
	b.want("request", b.udp(aliceAt, step(alice, teredo.AllRouters)))
	b.want("data", b.udp(mapped, data(alice, bob, "x")))
	b.want("drops", b.dropped(), "mapping_mismatch 1", "no_peer 1")
}

func TestCarryAllocatesNothing(t *testing.T) {
	b := bound(t)
	b.r.carriage.clientLimit = ratelimit.Limit{}
	p := data(alice, bob, strings.Repeat("x", 1000))
	if n := testing.AllocsPerRun(100, func() {
		b.out.Reset()
		packet.IPv6(p).SetHopLimit(64)
		b.r.HandleUDP(aliceAt, p, b.now, &b.out)
	}); n > 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

func BenchmarkCarry(b *testing.B) {
	x := newBench(b, func(c *Config) { c.CarryClients = true })
	x.bind(alice, aliceAt)
	x.bind(bob, bobAt)
	p := data(alice, bob, strings.Repeat("x", 1000))
	b.ReportAllocs()
	for b.Loop() {
		x.out.Reset()
		packet.IPv6(p).SetHopLimit(64)
		x.r.HandleUDP(aliceAt, p, x.now, &x.out)
	}
}

// FuzzCarry sends anything from anywhere to a relay with two bound clients: no
// more than one packet comes out, not larger than what came but for the origin of
// a confirmation, and only to where someone is bound, where the packet came
// from, or to a server.
func FuzzCarry(f *testing.F) {
	places := []netip.AddrPort{aliceAt, bobAt, mapped, netip.AddrPortFrom(relayIPv4, 3545), netip.MustParseAddrPort("10.0.0.1:9")}
	seed := newBench(quiet{}, carrying)
	key := seed.r.carriage.challenge.now((*[16]byte)(alice.AsSlice()), aliceAt, 0)
	proof := seed.r.carriage.proof.now((*[16]byte)(alice.AsSlice()), aliceAt, 0)
	for i := range places {
		for _, p := range [][]byte{
			data(alice, bob, "x"), data(bob, alice, "x"), step(alice, bob), step(alice, teredo.AllRouters),
			step(alice, teredo.BindingAddress(teredo.BindingChallenge, key)), step(alice, teredo.BindingAddress(teredo.BindingProof, proof)),
			append(teredo.AppendOrigin(nil, aliceAt), data(alice, bob, "x")...), hop(1, data(alice, bob, "x")),
		} {
			f.Add(uint8(i), p)
		}
	}
	f.Fuzz(func(t *testing.T, place uint8, payload []byte) {
		b := bound(t)
		b.trust()
		from := places[int(place)%len(places)]
		before := b.r.Stats()
		b.out.Reset()
		b.r.HandleUDP(from, bytes.Clone(payload), b.now, &b.out)
		if len(b.out.UDP)+len(b.out.IP) > 1 {
			t.Fatalf("%q for one packet", b.show())
		}
		for _, d := range b.out.UDP {
			p, err := teredo.Parse(d.Payload)
			known := d.To == aliceAt || d.To == bobAt || d.To == from
			isError := p.IPv6 != nil && p.IPv6.Src() == relayIPv6
			switch {
			case err != nil:
				t.Fatalf("sent %x", d.Payload)
			case !b.r.cfg.Global.OK(d.To.Addr()) || b.r.isOwn(d.To.Addr()):
				t.Fatalf("sent to %s", d.To)
			case !known && d.To.Port() != teredo.Port:
				t.Fatalf("sent to a stranger: %s", d.To)
			case !isError && len(d.Payload) > len(payload)+8:
				t.Fatalf("%d bytes for %d", len(d.Payload), len(payload))
			}
		}
		now := b.r.Stats()
		sum := func(s *Stats) (n uint64) {
			s.EachDropped(func(_ Reason, d uint64) { n += d })
			return n + s.ToUDP + s.ToIPv6 + s.Queued + s.BubblesReceived - s.Flushed + s.Carried
		}
		if got := sum(&now) - sum(&before); got != 1 {
			t.Errorf("one packet was counted %d times", got)
		}
	})
}
