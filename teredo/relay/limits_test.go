// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// nth is the n-th client of the test's server.
func nth(n int) (netip.Addr, netip.AddrPort) {
	m := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(n >> 16), byte(n >> 8)}), uint16(n&0xff)+1000)
	return teredoAddr(netip.AddrFrom4([4]byte{203, 0, byte(n), 1}), m), m
}

func TestFloodOfUnknownDestinations(t *testing.T) {
	testutil.OneThread(t)
	b := newBench(t, func(c *Config) {
		c.MaxPeers, c.QueueTotalBytes, c.BubbleRate = 400, 4000, 0
	})
	const known = 300
	for n := range known {
		c, m := nth(n)
		b.ip(data(host, c, "x"))
		b.udp(m, bubble(c, b.bubbleSource(c)))
	}
	if s := b.r.Sizes(); s.Trusted != known {
		t.Fatalf("%d peers are trusted, want %d", s.Trusted, known)
	}
	for n := range 100_000 {
		c, _ := nth(1<<20 + n)
		if got := b.ip(data(host, c, "flood")); len(got) > 1 {
			t.Fatalf("one packet made %q", got)
		}
	}
	s := b.r.Sizes()
	if s.Trusted != known || s.Peers > 400 || s.QueuedBytes > 4000 {
		t.Errorf("after the flood: %+v", s)
	}
	if s.Evictions < 99_000 {
		t.Errorf("only %d evictions", s.Evictions)
	}
	c, m := nth(0)
	b.want("a known client", b.ip(data(host, c, "still")), fmt.Sprintf("udp %s still hop 63", m))
}

func TestEviction(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxPeers = 4 })
	first, _ := nth(1)
	second, _ := nth(2)
	b.ip(data(host, first, "one"))
	b.ip(data(host, first, "two"))
	b.ip(data(host, second, "three")) // a quarter of 4 may be untrusted
	b.want("drops", b.dropped(), "peer_evicted 2")
	if s := b.r.Sizes(); s.Peers != 1 || s.Evictions != 1 || s.QueuedBytes != 45 {
		t.Errorf("%+v", s)
	}
}

func TestNewPeersPerSource(t *testing.T) {
	b := newBench(t, func(c *Config) { c.BubbleRate = 4 * sourceShare })
	for n := range 6 {
		c, _ := nth(n)
		b.ip(data(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 15: byte(n)}), c, "x"))
	}
	b.want("drops", b.dropped(), "source_rate 2")
	c, _ := nth(99)
	b.want("another source", b.ip(data(addr("2001:db8:1::1"), c, "x")), "udp 203.0.99.1:3544 bubble")
}

func TestNewPeersPerServer(t *testing.T) {
	b := newBench(t, func(c *Config) { c.BubbleRate = 2 * serverShare })
	for n := range 3 {
		_, m := nth(n)
		b.ip(data(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 7: byte(n)}), teredoAddr(server, m), "x"))
	}
	b.want("drops", b.dropped(), "server_rate 1")
}

// A server that a flood names in its destinations is sent its share, repeats included.
func TestBubblesPerServer(t *testing.T) {
	const rate, seconds = 400, 20
	b := newBench(t, func(c *Config) { c.BubbleRate, c.MaxPeers = rate, 1<<20 })
	for n := range 1000 * seconds {
		b.now = start.Add(time.Duration(n) * time.Millisecond)
		b.r.Tick(b.now, &b.out)
		_, m := nth(n)
		b.ip(data(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 7: byte(n)}), teredoAddr(server, m), "x"))
	}
	if sent, most := b.r.Stats().BubblesSent, uint64(rate/serverShare*(seconds+1)); sent > most {
		t.Errorf("%d bubbles to one server in %d s, its share is %d", sent, seconds, most)
	}
}

// A host-specific relay makes peers of strangers, whose addresses may be forged.
func TestHostPeersPerSecond(t *testing.T) {
	b := newBench(t, hostSpecific, func(c *Config) { c.BubbleRate, c.MaxPeers = 100, 1000 })
	b.trust()
	accepted := 0
	for n := range 10_000 {
		c, m := nth(n << 8) // an IPv4 address each
		accepted += len(b.udp(m, data(c, host, "flood")))
	}
	b.want("drops", b.dropped(), "peer_rate 9900")
	if s := b.r.Sizes(); accepted != 100 || s.Trusted != 101 || s.Evictions != 0 {
		t.Errorf("%d accepted, %+v", accepted, s)
	}
	b.want("a known peer", b.udp(mapped, data(client, host, "hello")), "ip hello hop 64")
}

// When all places are taken by peers that were heard lately, they stay.
func TestFullTable(t *testing.T) {
	b := newBench(t, hostSpecific, func(c *Config) { c.MaxPeers, c.BubbleRate = 100, 0 })
	for n := range 150 {
		c, m := nth(n << 8)
		b.udp(m, data(c, host, "x"))
	}
	b.want("drops", b.dropped(), "table_full 50")
	for n := range 100 {
		c, m := nth(n << 8)
		b.want("an old peer", b.udp(m, data(c, host, "hello")), "ip hello hop 64")
	}
	b.wait(30*time.Second + peer.StampUnit)
	c, m := nth(149 << 8)
	b.want("in the place of a stale one", b.udp(m, data(c, host, "hello")), "ip hello hop 64")
	if s := b.r.Sizes(); s.Trusted != 100 || s.Evictions != 1 {
		t.Errorf("%+v", s)
	}
}

// A relay that has lost its memory learns its clients again: no more bubbles than
// the budget, whatever the traffic, and every client in the end.
func TestRestartWithoutStorm(t *testing.T) {
	testutil.OneThread(t)
	const clients, rate = 2000, 400
	b := newBench(t, func(c *Config) { c.BubbleRate, c.MaxPeers = rate, 4*clients })
	source := func(n int) netip.Addr {
		return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 6: byte(n >> 8), 7: byte(n), 15: 1})
	}
	const step = 50 * time.Millisecond
	seconds := 0
	for all := 0; all < clients; seconds++ {
		if seconds > 2*clients/rate {
			t.Fatalf("only %d of %d clients after %d s", all, clients, seconds)
		}
		for range time.Second / step {
			for n := range clients { // every client has traffic all the time
				c, m := nth(n)
				for _, line := range b.ip(data(source(n), c, "x")) {
					if strings.HasSuffix(line, "bubble") {
						b.udp(m, bubble(c, host)) // the answer
					}
				}
			}
			b.wait(step)
		}
		// The bucket, and what a second brings.
		if sent := b.r.Stats().BubblesSent; sent > uint64(rate*(seconds+2)) {
			t.Errorf("%d bubbles in %d s", sent, seconds+1)
		}
		all = b.r.Sizes().Trusted
	}
}

func TestPeers(t *testing.T) {
	b := newBench(t)
	b.trust()
	b.wait(time.Second)
	b.ip(data(host, another, "waits"))
	want := []Peer{
		{Address: client, Mapped: mapped, Trusted: true, Received: start},
		{Address: another, Mapped: netip.MustParseAddrPort("198.51.100.8:41000"), Sent: start.Add(time.Second), Queued: 1},
	}
	opts := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	ports := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(want, b.peers(10), opts, ports); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, limit := range []int{-1, 0, 1} {
		if n := len(b.peers(limit)); n != max(limit, 0) {
			t.Errorf("%d peers with the limit %d", n, limit)
		}
	}
}

func TestReconfigure(t *testing.T) {
	b := newBench(t)
	b.trust()
	cfg := testConfig()
	cfg.Serve = []netip.Prefix{netip.MustParsePrefix("fd00::/8")}
	if err := b.r.Reconfigure(cfg); err != nil {
		t.Fatal(err)
	}
	b.want("destination served no longer", b.udp(mapped, data(client, host, "x")))
	b.want("destination served now", b.udp(mapped, data(client, addr("fd00::1"), "x")), "ip x hop 63")
	cfg.Host = true
	if err := b.r.Reconfigure(cfg); err != nil {
		t.Fatal(err)
	}
	b.want("fixed settings stay", b.udp(mapped, data(client, addr("fd00::1"), "x")), "ip x hop 63")
	cfg.MTU = 1279
	if err := b.r.Reconfigure(cfg); err == nil {
		t.Error("an MTU of 1279 was accepted")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
	}{
		{"no prefix", func(c *Config) { c.Prefixes = nil }},
		{"prefix of 64 bits", func(c *Config) { c.Prefixes = []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")} }},
		{"IPv4 prefix", func(c *Config) { c.Prefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")} }},
		{"no timeout", func(c *Config) { c.PeerTimeout = 0 }},
		{"MTU below 1280", func(c *Config) { c.MTU = 1279 }},
	} {
		cfg := testConfig()
		tt.change(&cfg)
		if _, err := New(cfg, start, testRand()); err == nil {
			t.Errorf("%s: accepted", tt.name)
		}
	}
	none := errors.New("no entropy")
	for _, have := range []int{0, 32, 60, 84, 110, 140, 160, 180} {
		rand := &shortReader{left: have, err: none}
		if _, err := New(testConfig(), start, rand); !errors.Is(err, none) {
			t.Errorf("%d random bytes: error %v", have, err)
		}
	}
	if _, err := New(testConfig(), start, iotest.ErrReader(none)); !errors.Is(err, none) {
		t.Errorf("no random bytes: error %v", err)
	}
}

// shortReader runs out of bytes.
type shortReader struct {
	left int
	err  error
}

func (r *shortReader) Read(p []byte) (int, error) {
	if r.left < len(p) {
		return 0, r.err
	}
	r.left -= len(p)
	return len(p), nil
}

// Answers to connectivity tests wake silent peers, but within the quota of their
// source: or one host could use up the bubbles of all others by them.
func TestRevivalsPerSource(t *testing.T) {
	const rate = 4 * sourceShare
	b := newBench(t, func(c *Config) { c.BubbleRate = rate })
	const silent = 40
	for n := range silent {
		c, _ := nth(n)
		b.ip(data(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 7: byte(n)}), c, "x"))
		b.wait(time.Second)
		b.out.Reset()
		b.r.Tick(b.now, &b.out)
	}
	b.wait(20 * time.Second)
	for range 4 {
		b.out.Reset()
		b.r.Tick(b.now, &b.out)
	}
	revived := 0
	for n := range silent {
		c, _ := nth(n)
		for _, line := range b.ip(echoReply(host, c, 7)) {
			if strings.HasSuffix(line, " bubble") {
				revived++
			}
		}
	}
	if want := rate/sourceShare/2 + 1; revived != want {
		t.Errorf("one host caused %d bubbles at once, its network's share less the half of others is %d", revived, want)
	}
}

// Three networks that ask for silent clients within their shares leave most of
// the bubbles to others: repeats must not eat up what new peers need.
func TestRepeatsLeaveRoomForNewPeers(t *testing.T) {
	const networks, rate = 3, 10 * sourceShare
	b := newBench(t, func(c *Config) { c.MaxPeers, c.BubbleRate, c.QueueTotalBytes = 1<<16, rate, 1<<24 })
	n, met := 0, 0
	for ms := range 20_000 {
		b.wait(time.Millisecond)
		b.out.Reset()
		b.r.Tick(b.now, &b.out)
		for network := range networks {
			n++
			c, _ := nth(n)
			b.ip(data(netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 7: byte(network + 1)}), c, "x"))
		}
		if ms >= 10_000 && ms%1000 == 0 {
			n++
			c, _ := nth(n)
			met += len(b.ip(data(host, c, "hello")))
		}
	}
	if met != 10 {
		t.Errorf("a network with one new peer a second met %d of 10", met)
	}
}

// One socket can have any number of Teredo addresses, since server and flags are
// free: it must not take the whole table of a host-specific relay.
func TestStrangerCannotTakeTheTable(t *testing.T) {
	b := newBench(t, hostSpecific)
	b.ip(data(host, client, "waits"))
	stranger := netip.MustParseAddrPort("192.0.2.99:666")
	for n := range 2000 {
		b.udp(stranger, data(teredoAddr(netip.AddrFrom4([4]byte{203, 0, byte(n >> 8), byte(n)}), stranger), host, "x"))
	}
	if s := b.r.Sizes(); s.Peers > 100 || s.QueuedBytes == 0 {
		t.Errorf("after 2000 addresses of one stranger: %+v", s)
	}
	b.want("drops", b.dropped(), fmt.Sprintf("stranger_rate %d", 2000-strangerBurst))
	c, m := nth(1)
	b.want("another stranger", b.udp(m, data(c, host, "hello")), "ip hello hop 64")
}

// In mode relay likewise, with a host of its own that has the relay ask for the addresses.
func TestOneMappingCannotTakeTheTable(t *testing.T) {
	b := newBench(t)
	const addresses, period = 2000, 20 * time.Second
	one := netip.MustParseAddrPort("192.0.2.99:666")
	for n := range 5 * addresses {
		b.wait(period / addresses)
		b.out.Reset()
		b.r.Tick(b.now, &b.out)
		n %= addresses
		c := teredoAddr(netip.AddrFrom4([4]byte{203, 0, byte(n >> 8), byte(n)}), one)
		b.ip(data(addr("2001:db8:6::6"), c, "x"))
		b.udp(one, bubble(c, host))
	}
	if s, drops := b.r.Sizes(), b.r.Stats().Dropped; s.Trusted == 0 || s.Trusted > b.r.cfg.MaxPeers/4 || drops[MappingFull] == 0 || drops[TableFull] > 0 {
		t.Errorf("%+v, dropped %q", s, b.dropped())
	}
	c, m := nth(1)
	b.ip(data(host, c, "hello"))
	b.want("a newcomer", b.udp(m, bubble(c, b.bubbleSource(c))), fmt.Sprintf("udp %s hello hop 63", m))
}

// Symmetric clients have a part of the table.
func TestForeignFull(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxPeers = 2 * 8 })
	for n := range 3 {
		c, m := nth(n)
		b.ip(data(host, c, "x"))
		b.udp(netip.AddrPortFrom(m.Addr(), m.Port()+10_000), bubble(c, b.bubbleSource(c)))
	}
	b.want("drops", b.dropped(), "foreign_full 1")
	if s := b.r.Sizes(); s.Foreign != 2 || b.r.Stats().ForeignMappings != 2 {
		t.Errorf("%d foreign mappings, %d learnt", s.Foreign, b.r.Stats().ForeignMappings)
	}
}

// A host-specific relay has one source of packets, which no share keeps from all there is.
func TestHostHasNoShares(t *testing.T) {
	const rate = 800
	packet := data(host, client, "x")
	b := newBench(t, hostSpecific, func(c *Config) {
		c.BubbleRate, c.MaxPeers, c.QueueTotalBytes = rate, 8*rate, rate*len(packet)
	})
	sent := 0
	for n := range rate {
		c, _ := nth(n)
		sent += len(b.ip(data(host, c, "x")))
	}
	b.want("drops", b.dropped())
	if s := b.r.Sizes(); sent != rate || s.QueuedBytes != rate*len(packet) {
		t.Errorf("%d bubbles, %d bytes wait", sent, s.QueuedBytes)
	}
}

// A host that sends to unknown clients at a high rate, or many hosts that it makes up,
// leave newcomers of other networks their bubbles, and the host alone those of its own.
func TestNewcomersBesideAFlood(t *testing.T) {
	testutil.OneThread(t)
	const rate, seconds, newcomers = 9000, 10, 30
	flood := strings.Repeat("x", 1200)
	for _, tt := range []struct {
		name   string
		hosts  int    // that the flood comes from
		each   int    // packets of the flood to one client
		source string // of the newcomers, one host each
		wide   bool   // each host of the flood is in a network of its own, all of a /48
		quiet  bool   // the flood goes to clients that are trusted, but not heard for 23 s
	}{
		{"one host floods, others of its network", 1, 1, "2001:db8:0:1::ff00:0", false, false},
		{"one host floods, another network", 1, 1, "2001:db8:0:2::", false, false},
		{"one host fills its queues, others of its network", 1, 7, "2001:db8:0:1::ff00:0", false, false},
		{"one host fills its queues, another network", 1, 7, "2001:db8:0:2::", false, false},
		{"four hosts flood, others of their network", 4, 1, "2001:db8:0:1::ff00:0", false, false},
		{"a network of made-up hosts floods, another network", 1 << 16, 1, "2001:db8:0:2::", false, false},
		{"a network of made-up hosts fills its queues, another network", 1 << 16, 7, "2001:db8:0:2::", false, false},
		{"all networks of a /48 flood, another /48", 1 << 16, 1, "2001:db8:1::", true, false},
		{"all networks of a /48 fill their queues, another /48", 1 << 16, 7, "2001:db8:1::", true, false},
		{"one host asks for quiet clients, others of its network", 1, 1, "2001:db8:0:1::ff00:0", false, true},
		{"one host asks for quiet clients, another network", 1, 1, "2001:db8:0:2::", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(c *Config) { c.MaxPeers, c.QueueTotalBytes, c.QueuePackets = 1<<20, 16<<20, 16 })
			for n := range rate * seconds {
				if c, m := nth(n); tt.quiet {
					key := c.As16()
					b.r.hot.Insert(&key, m, b.r.clock.At(start.Add(time.Duration(n)*time.Second/rate-23*time.Second)), time.Hour, false)
				}
			}
			source := addr(tt.source).As16()
			before := b.r.Stats().BubblesSent
			bubbles, delivered := 0, 0
			for n := range rate * seconds {
				b.now = start.Add(time.Duration(n) * time.Second / rate)
				b.out.Reset()
				b.r.Tick(b.now, &b.out)
				attacker := [16]byte{0x20, 1, 0x0d, 0xb8, 7: 1, 13: byte(n % tt.hosts >> 8), 14: byte(n % tt.hosts), 15: 1}
				if tt.wide {
					attacker[6], attacker[7] = attacker[13], attacker[14]
				}
				c, _ := nth(n / tt.each)
				b.ip(data(netip.AddrFrom16(attacker), c, flood))
				if n%(rate*seconds/newcomers) != rate*seconds/newcomers-1 {
					continue
				}
				source[15]++
				c, m := nth(1<<20 + n)
				bubbles += len(b.ip(data(netip.AddrFrom16(source), c, "hello")))
				for _, line := range b.udp(m, bubble(c, b.bubbleSource(c))) {
					if strings.Contains(line, "hello") {
						delivered++
					}
				}
			}
			flooded := int(b.r.Stats().BubblesSent-before) - bubbles
			t.Logf("%d bubbles for the flood; of %d newcomers %d had a bubble and %d their packet delivered", flooded, newcomers, bubbles, delivered)
			if bubbles != newcomers || delivered != newcomers {
				t.Errorf("of %d newcomers %d had a bubble and %d their packet delivered", newcomers, bubbles, delivered)
			}
			// New clients within the share of the network, and repeats.
			if most := bubbleTries * testConfig().BubbleRate / sourceShare * (seconds + 1); flooded > most && !tt.wide {
				t.Errorf("%d bubbles for the flood, its network's share is %d", flooded, most)
			}
		})
	}
}
