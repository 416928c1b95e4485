// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// natEpoch is how many packets one configuration lasts.
const natEpoch = 2000

// natSettings draws a configuration.
func (g *natGenerator) settings() nat64.Settings {
	s := nat64.Defaults()
	g.prefixes = nil
	for _, i := range g.rng.Perm(len(natPrefixes))[:1+g.rng.IntN(len(natPrefixes))] {
		g.prefixes = append(g.prefixes, natPrefixes[i])
		p, err := translate.NewPrefix(natPrefixes[i])
		if err != nil {
			g.w.t.Fatal(err)
		}
		s.Translate.Prefixes = append(s.Translate.Prefixes, p)
		if g.chance(3) {
			break
		}
	}
	t := &s.Translate
	t.Own4, t.Own6 = natOwn4, natOwn6
	t.NonGlobal, t.ZeroTrafficClass, t.FixedTOS, t.TOS = g.chance(3), g.chance(4), g.chance(4), byte(g.rng.Uint32())
	t.LowestIPv6MTU = pick(&g.generator, []int{0, 0, 1280, 1400, 1500, 65535})
	t.UDPZeroChecksum = pick(&g.generator, []translate.ZeroChecksum{translate.ZeroChecksumCompute, translate.ZeroChecksumDrop, translate.ZeroChecksumForward})
	s.RouterAsInner = g.chance(3)
	if g.chance(3) {
		t.Pool4 = []netip.Prefix{netip.MustParsePrefix("203.0.113.64/29")}
	}
	s.Pool4 = g.pool()
	s.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48"), netip.MustParsePrefix("2001:db8:2::/48")}
	for _, f := range []*nat64.Filtering{&s.FilterTCP, &s.FilterUDP, &s.FilterICMP} {
		if g.chance(3) {
			*f = nat64.AddressDependent
		}
	}
	s.DropExternalTCP, s.DropICMPInfo, s.DropUnmatchedTCP = g.chance(4), g.chance(8), g.chance(3)
	s.OutboundRefreshOnly = g.chance(3)
	s.Limits.ClientSessions = pick(&g.generator, []int{0, 3, 30, 65536})
	s.Limits.ClientBlocks = 1 + g.rng.IntN(4)
	s.Limits.StoredSYNs, s.Limits.StoredSYNsSource = 32, 8
	s.Limits.FragmentPackets, s.Limits.FragmentPacketsSource, s.Limits.FragmentMemory = 32, 8, 1<<16
	if g.chance(3) {
		s.DetourPrefix = natDetour
	}
	return s
}

// pool draws pool4: one address or two, all ports or some, the host's own or not.
func (g *natGenerator) pool() []nat64.Range {
	one := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 32) }
	const tcp, udp, icmp = 1, 2, 4
	switch g.rng.IntN(5) {
	case 0:
		return []nat64.Range{{Prefix: one(natPool), First: 1024, Last: 65535}}
	case 1:
		return []nat64.Range{{Prefix: netip.PrefixFrom(natPool, 31), First: 1, Last: 65535}}
	case 2:
		return []nat64.Range{
			{Prefix: one(natPool2), First: 2048, Last: 4095, Transports: tcp},
			{Prefix: one(natPool2), First: 30000, Last: 30500, Transports: udp | icmp},
		}
	case 3:
		return []nat64.Range{{Prefix: one(natOwn4), First: 20000, Last: 29999, Own: true}}
	}
	return []nat64.Range{
		{Prefix: one(natPool), First: 1024, Last: 65535},
		{Prefix: one(natOwn4), First: 20000, Last: 20999, Own: true},
	}
}

// settle begins an epoch.
func (g *natGenerator) settle() {
	rate := 0
	if g.chance(6) {
		rate = 2000
	}
	g.w.mtu4 = pick(&g.generator, []int{0, 0, 0, 1500, 1400, 1000, 576, 100})
	g.w.mtu6 = pick(&g.generator, []int{0, 0, 0, 1500, 1400, 1300, 1280})
	g.w.settle(g.rng, g.settings(), g.chance(3), rate)
}

// TestDifferNAT64 gives random packets to the programs of a NAT64 and to its engine, over
// one state. What the programs forward the engine forwards, the same and with the same
// session behind it; what they drop the engine drops; what they punt is untouched.
func TestDifferNAT64(t *testing.T) {
	wanted := packetsWanted(t)
	for i, p := range runtest.Hooks {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			w := newNATWorld(t, natSizes)
			w.ns.Do(t, func() error { return w.differ(t, p, wanted, uint64(i+1)) })
		})
	}
}

// differ gives n packets to the program at a place.
func (w *natWorld) differ(t *testing.T, p runtest.Hook, n int, seed uint64) error {
	g, r := newNATGenerator(w, seed), w.runner(p)
	var verdicts [3]int
	errors := 0 // ICMP errors that were forwarded
	for i := range n {
		if i%natEpoch == 0 {
			g.settle()
		}
		frame := g.frame(g.flow())
		if g.chance(25) {
			g.age()
		}
		if i%500 == 499 {
			w.out.Reset()
			w.engine.Tick(w.epoch.Add(fastpath.Monotonic()), &w.out)
		}
		if p == runtest.InTC && len(frame) < ethLen+ip6Len || len(frame) < ethLen+4 {
			continue // a test run takes no such skb
		}
		verdict, err := w.check(r, frame)
		if err != nil {
			return fmt.Errorf("packet %d of seed %d: %w\nof %x", i, seed, err, frame)
		}
		verdicts[verdict]++
		if verdict == fastpath.Forward && isQuoting(frame[ethLen:]) {
			errors++
		}
	}
	news := make(map[string]uint64)
	list, err := w.fast.Counters()
	if err != nil {
		return err
	}
	for _, c := range list {
		if news[c.Reason] = c.Packets; c.Packets == 0 && n >= shortForm/2 && !rareReasons[c.Reason] {
			t.Errorf("no packet met %s: the generator misses it", c.Reason)
		}
	}
	t.Logf("%d packets: %d forwarded, %d of them ICMP errors, %d punted, %d dropped; %d not compared; reasons %v",
		n, verdicts[0], errors, verdicts[1], verdicts[2], w.skipped, news)
	if errors < n/200 {
		t.Errorf("%d ICMP errors were forwarded: the generator misses them", errors)
	}
	for v, least := range []int{n / 5, n / 10, n / 1000} {
		if verdicts[v] < least {
			t.Errorf("%d of %d packets met the verdict %s: the generator misses it", verdicts[v], n, fastpath.Verdict(v))
		}
	}
	return nil
}

// rareReasons are those that need another situation: no daemon, an skb, memory, two
// writers at once, bindings that stay without sessions, or a fast machine, which spends
// the budget of a window within it.
var rareReasons = map[string]bool{
	"asleep": true, "offload": true, "no_room": true, "busy": true, "bindings_full": true, "punt_limit": true,
}
