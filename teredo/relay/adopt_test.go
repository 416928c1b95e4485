// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// fast is what a fast path would read.
type fast struct {
	mapped map[[16]byte]netip.AddrPort
	tested map[[16]byte]int
}

func (f *fast) Put(key [16]byte, m netip.AddrPort) bool { f.mapped[key] = m; return true }
func (f *fast) Delete(key [16]byte)                     { delete(f.mapped, key) }
func (f *fast) Add(key [16]byte)                        { f.tested[key]++ }
func (f *fast) Remove(key [16]byte)                     { f.tested[key]-- }
func (f *fast) Walk(each func([16]byte, netip.AddrPort)) {
	for key, m := range f.mapped {
		each(key, m)
	}
}

// The next relay over the same memory goes on where the last one ended.
func TestRelayTakesPeersOver(t *testing.T) {
	f := &fast{mapped: map[[16]byte]netip.AddrPort{}, tested: map[[16]byte]int{}}
	memory := make([]byte, peer.HotBytes(1000))
	share := func(c *Config) {
		c.Memory, c.Epoch = memory, start.Add(-time.Hour)
		c.Shared = &Shared{Seed: peer.Seed{1, 2, 3, 4, 5}, Foreign: f, UnderTest: f}
	}
	symmetric := teredoAddr(server, netip.MustParseAddrPort("198.51.100.8:40000"))
	moved := netip.MustParseAddrPort("198.51.100.8:50000")

	first := newBench(t, share)
	first.trust()
	first.ip(data(host, symmetric, "first"))
	if n := f.tested[symmetric.As16()]; n != 1 {
		t.Errorf("the client under test was told %d times", n)
	}
	first.want("the key comes back", first.udp(moved, bubble(symmetric, first.bubbleSource(symmetric))), "udp 198.51.100.8:50000 first hop 63")
	if m := f.mapped[symmetric.As16()]; m != moved {
		t.Errorf("its mapping is shared as %v", m)
	}
	if n := f.tested[symmetric.As16()]; n != 1 {
		t.Errorf("while its packets are being sent it is under test %d times", n)
	}
	first.r.Publish()
	if n := f.tested[symmetric.As16()]; n != 0 {
		t.Errorf("then it is under test %d times", n)
	}

	second := newBench(t, share)
	second.now = start.Add(10 * time.Second)
	if s := second.r.Sizes(); s.Trusted != 2 || s.Foreign != 1 {
		t.Errorf("taken over: %+v", s)
	}
	second.want("to a client", second.ip(data(host, client, "a")), "udp 198.51.100.7:40000 a hop 63")
	second.want("to a symmetric client", second.ip(data(host, symmetric, "b")), "udp 198.51.100.8:50000 b hop 63")
	second.want("from it", second.udp(moved, data(symmetric, host, "c")), "ip c hop 63")
	second.want("from the other", second.udp(mapped, data(client, host, "d")), "ip d hop 63")
	for second.r.Sizes().Peers > 0 { // also what no one adds to is swept in the end
		second.tick()
		if second.now.Sub(start) > memory300 {
			t.Fatal("the peers were never forgotten")
		}
	}
	if len(f.mapped) != 0 {
		t.Errorf("%d mappings are left", len(f.mapped))
	}
}

// memory300 is more than the time in which silent peers are forgotten.
const memory300 = memory + 2*sweepPeriod + time.Minute

var (
	symmetric = teredoAddr(server, netip.MustParseAddrPort("198.51.100.8:40000"))
	moved     = netip.MustParseAddrPort("203.0.113.9:50000")
)

// meetBoth makes the client and a symmetric one trusted.
func (b *bench) meetBoth() {
	b.t.Helper()
	b.trust()
	b.ip(data(host, symmetric, "first"))
	b.udp(moved, bubble(symmetric, b.bubbleSource(symmetric)))
}

// reviews are what makes a relay forget one of both, or both.
var reviews = []struct {
	name   string
	change func(*Config)
	later  time.Duration
	want   int // peers that are left
}{
	{"as it was", func(*Config) {}, 0, 2},
	{"just heard lately enough", func(*Config) {}, memory - peer.StampUnit, 2},
	{"silent for too long", func(*Config) {}, memory + peer.StampUnit, 0},
	{"the host has the address of one", func(c *Config) { c.Own = append(c.Own, mapped.Addr()) }, 0, 1},
	{"the host has the mapping of one", func(c *Config) { c.Own = append(c.Own, moved.Addr()) }, 0, 1},
	{"a mapping is a broadcast", func(c *Config) { c.Global.Broadcasts = append(c.Global.Broadcasts, moved.Addr()) }, 0, 1},
	{"their server is a broadcast", func(c *Config) { c.Global.Broadcasts = append(c.Global.Broadcasts, server) }, 0, 0},
}

// A relay believes of what an earlier one has left only what it could have come to itself.
func TestReview(t *testing.T) {
	for _, tt := range reviews {
		t.Run(tt.name, func(t *testing.T) {
			f := &fast{mapped: map[[16]byte]netip.AddrPort{}, tested: map[[16]byte]int{}}
			memory := make([]byte, peer.HotBytes(1000))
			share := func(c *Config) {
				c.Memory, c.Epoch = memory, start.Add(-time.Hour)
				c.Shared = &Shared{Seed: peer.Seed{1, 2, 3, 4, 5}, Foreign: f, UnderTest: f}
			}
			first := newBench(t, share)
			first.meetBoth()
			second := newBench(t, share, tt.change)
			if got := second.r.Review(start.Add(tt.later)); got != tt.want {
				t.Errorf("%d peers are left, want %d", got, tt.want)
			}
			second.r.Forget()
			if s := second.r.Sizes(); s.Trusted != 0 || len(f.mapped) != 0 {
				t.Errorf("then none is forgotten: %+v, %d mappings", s, len(f.mapped))
			}
		})
	}
}

// It believes no more of its own peers when its settings or addresses change.
func TestReconfigureReviews(t *testing.T) {
	for _, tt := range reviews {
		if tt.later != 0 {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(c *Config) { c.MaxPeers = 1 << 17 }) // several slices
			b.meetBoth()
			b.ip(data(host, another, "waits"))
			cfg := b.r.cfg
			tt.change(&cfg)
			if err := b.r.Reconfigure(cfg); err != nil {
				t.Fatal(err)
			}
			for b.now.Before(start.Add(sweepPeriod+time.Second)) && !b.r.Next().IsZero() {
				b.tick()
			}
			if s := b.r.Sizes(); s.Trusted != tt.want {
				t.Errorf("%d peers are left, want %d", s.Trusted, tt.want)
			}
			if sent, all := b.r.Stats().BubblesSent, uint64(2+bubbleTries); tt.want > 0 && sent != all || tt.want == 0 && sent != 3 {
				t.Errorf("%d bubbles were sent", sent)
			}
		})
	}
}

func TestAges(t *testing.T) {
	c := Config{PeerTimeout: 30 * time.Second}
	send, receive := c.Ages()
	if peer.Stamps(send) != 84 || peer.Stamps(receive) != 1118 { // 22.5 s and 300 s, rounded up
		t.Errorf("%s and %s", send, receive)
	}
	r := &Relay{cfg: c, prefixes: [][4]byte{[4]byte(teredo.Prefix.Addr().AsSlice())}}
	hot, err := peer.NewHot(make([]byte, 64), 3, r.prefixes, testRand())
	if err != nil {
		t.Fatal(err)
	}
	key := client.As16()
	hot.Insert(&key, mapped, 0, time.Second, false)
	ref, _ := hot.Lookup(&key)
	for stamps := range peer.Instant(2000) {
		age := ref.Age(stamps * peer.Instant(peer.StampUnit))
		if (age < c.refresh()) != (stamps < peer.Instant(peer.Stamps(send))) || (age < memory) != (stamps < peer.Instant(peer.Stamps(receive))) {
			t.Fatalf("after %d stamps, %s, both ways to compare differ", stamps, age)
		}
	}
}
