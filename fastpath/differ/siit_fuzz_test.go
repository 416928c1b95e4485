// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"fmt"
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

// siitEpoch is how many packets one configuration lasts.
const siitEpoch = 500

// TestDifferSIIT gives random packets to the programs of a stateless translator and to its
// engine. What the programs forward the engine sends, the same and by the same way; what
// they drop the engine drops; what they punt is untouched.
func TestDifferSIIT(t *testing.T) {
	wanted := packetsWanted(t)
	for i, p := range runtest.Hooks {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			w := newSIITWorld(t)
			w.ns.Do(t, func() error { return w.differ(t, p, wanted/2, uint64(i+1)) })
		})
	}
}

// differ gives n packets to the program at a place.
func (w *siitWorld) differ(t *testing.T, p runtest.Hook, n int, seed uint64) error {
	g, r := newSIITGenerator(seed), w.runner(p)
	var verdicts [3]int
	for i := range n {
		if i%siitEpoch == 0 {
			w.settle(g.settings(t.Fatal))
		}
		frame := g.frame(g.flow())
		if p == runtest.InTC && len(frame) < ethLen+ip6Len || len(frame) < ethLen+4 {
			continue // a test run takes no such skb
		}
		verdict, err := w.check(r, frame)
		if err != nil {
			return fmt.Errorf("packet %d of seed %d: %w\nof %x\nwith %+v", i, seed, err, frame, g.choice)
		}
		verdicts[verdict]++
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
	t.Logf("%d packets: %d forwarded, %d punted, %d dropped; reasons %v", n, verdicts[0], verdicts[1], verdicts[2], news)
	for v, least := range []int{n / 10, n / 10, n / 1000} {
		if verdicts[v] < least {
			t.Errorf("%d of %d packets met the verdict %s: the generator misses it", verdicts[v], n, fastpath.Verdict(v))
		}
	}
	return nil
}

// siitSeeds are packets to begin with, and the configuration of all that a fuzzer makes.
func siitSeeds(t testing.TB) (siitChoice, [][]byte) {
	var c siitChoice
	prefix, err := translate.NewPrefix(natPrefixes[0])
	if err != nil {
		t.Fatal(err)
	}
	c.settings.Translate.Prefixes = []translate.Prefix{prefix}
	m, err := translate.ParseMapping("192.0.2.128/28", "2001:db8:1::/120")
	if err != nil {
		t.Fatal(err)
	}
	c.mappings = []translate.Mapping{m}
	there, host := natEmbed(natPrefixes[0], natServers[0]), m.IPv6.Addr().Next()
	return c, [][]byte{
		plain6(packet.ProtoUDP, host, there, datagram(7, 9)), plain4(packet.ProtoUDP, natServers[0], natPool, datagram(7, 9)),
		plain6(packet.ProtoTCP, host, there, segment(7, 9, 2)), plain4(packet.ProtoTCP, natServers[0], natPool, segment(7, 9, 2)),
		plain6(packet.ProtoICMPv6, host, there, []byte{128, 0, 0, 0, 1, 2, 3, 4}), plain4(1, natServers[0], natPool, []byte{8, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),
		plain6(packet.ProtoICMPv6, host, there, []byte{1, 4, 0, 0, 0, 0, 0, 0}),
	}
}

// FuzzSIIT gives frames that a fuzzer makes to programs and engine.
func FuzzSIIT(f *testing.F) {
	w := newSIITWorld(f)
	choice, seeds := siitSeeds(f)
	for _, ip := range seeds {
		f.Add(true, ip)
		f.Add(false, ip)
	}
	w.settle(choice)
	runners := map[bool]*runtest.Runner{true: w.runner(runtest.InXDP), false: w.runner(runtest.InTC)}
	f.Fuzz(func(t *testing.T, xdp bool, ip []byte) {
		if len(ip) < ip6Len {
			return // a test run of tc takes no such packet
		}
		w.ns.Do(t, func() error {
			_, err := w.check(runners[xdp], ethernet(kindOf(ip), ip[:min(len(ip), 3000)]))
			return err
		})
	})
}
