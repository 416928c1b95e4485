// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// siitGenerator makes configurations of a stateless translator, and frames for them.
type siitGenerator struct {
	ipGenerator
	choice siitChoice
}

func newSIITGenerator(seed uint64) *siitGenerator {
	return &siitGenerator{ipGenerator: ipGenerator{generator: generator{rand.New(rand.NewPCG(seed, 7915))}}}
}

// Where mappings lie: most of them have routes, some lie in prefixes, some hold everything.
var (
	siitBases4 = []string{"192.0.2.128/25", "192.0.2.128/25", "192.0.2.128/25", "198.51.100.0/24", "203.0.113.0/25", "10.0.0.0/8", "0.0.0.0/0"}
	siitBases6 = []string{"2001:db8:1::/48", "2001:db8:1::/48", "2001:db8:2::/48", "2001:db8:4::/48", "2001:db8:64::/96", "3fff:100::/32", "2001:db8::/32"}
)

// settings draws a configuration.
func (g *siitGenerator) settings(fail func(...any)) siitChoice {
	var c siitChoice
	g.prefixes = nil
	t := &c.settings.Translate
	for _, i := range g.rng.Perm(len(natPrefixes))[:g.rng.IntN(1+len(natPrefixes))] {
		p, err := translate.NewPrefix(natPrefixes[i])
		if err != nil {
			fail(err)
		}
		g.prefixes = append(g.prefixes, natPrefixes[i])
		t.Prefixes = append(t.Prefixes, p)
		if g.chance(3) {
			break
		}
	}
	t.Own4, t.Own6 = natOwn4, natOwn6
	t.NonGlobal, t.ZeroTrafficClass, t.FixedTOS, t.TOS = g.chance(3), g.chance(4), g.chance(4), byte(g.rng.Uint32())
	t.LowestIPv6MTU = pick(&g.generator, []int{0, 0, 1280, 1400, 1500, 65535})
	t.UDPZeroChecksum = pick(&g.generator, []translate.ZeroChecksum{translate.ZeroChecksumCompute, translate.ZeroChecksumDrop, translate.ZeroChecksumForward})
	t.Hairpin = pick(&g.generator, []translate.Hairpin{translate.HairpinIntrinsic, translate.HairpinSimple, translate.HairpinOff})
	c.settings.MTU4 = pick(&g.generator, []int{0, 0, 0, 1500, 1400, 1000, 576, 1})
	c.settings.MTU6 = pick(&g.generator, []int{0, 0, 0, 1500, 1400, 1300, 1280, 1})
	for _, p := range []string{"192.0.2.130/31", "192.0.2.192/26", "203.0.113.64/26"} {
		if g.chance(2) {
			c.pool4 = append(c.pool4, netip.MustParsePrefix(p))
		}
	}
	c.mappings, c.partial = g.mappings(), g.chance(3)
	if g.chance(6) {
		c.rate = 2000
	}
	g.choice = c
	return c
}

// mappings draws some of unequal lengths, which may overlap.
func (g *siitGenerator) mappings() (list []translate.Mapping) {
	four, six := make(map[netip.Prefix]bool), make(map[netip.Prefix]bool)
	for range pick(&g.generator, []int{0, 1, 2, 4, 12, 40}) {
		base4, base6 := netip.MustParsePrefix(pick(&g.generator, siitBases4)), netip.MustParsePrefix(pick(&g.generator, siitBases6))
		bits4, bits6 := 32, 128
		if !g.chance(3) {
			bits4 = base4.Bits() + g.rng.IntN(33-base4.Bits())
			bits6 = base6.Bits() + g.rng.IntN(97+bits4-base6.Bits())
		}
		m := translate.Mapping{
			IPv4: netip.PrefixFrom(g.within(base4), bits4).Masked(), IPv6: netip.PrefixFrom(g.within(base6), bits6).Masked(),
		}
		if four[m.IPv4] || six[m.IPv6] {
			continue
		}
		four[m.IPv4], six[m.IPv6] = true, true
		list = append(list, m)
	}
	return list
}

// within draws an address of a prefix.
func (g *siitGenerator) within(p netip.Prefix) netip.Addr {
	var random [16]byte
	binary.BigEndian.PutUint64(random[:], g.rng.Uint64())
	binary.BigEndian.PutUint64(random[8:], g.rng.Uint64())
	raw := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(raw); bit++ {
		raw[bit/8] ^= random[bit/8] & (0x80 >> (bit % 8))
	}
	a, _ := netip.AddrFromSlice(raw)
	return a
}

// ours is an IPv4 address that the translator may have.
func (g *siitGenerator) ours() netip.Addr {
	switch n := g.rng.IntN(10); {
	case n < 6 && len(g.choice.mappings) > 0:
		return g.within(pick(&g.generator, g.choice.mappings).IPv4)
	case n < 9 && len(g.choice.pool4) > 0:
		return g.within(pick(&g.generator, g.choice.pool4))
	}
	return pick(&g.generator, natPools)
}

// host is an IPv6 host, which may have an IPv4 form.
func (g *siitGenerator) host() netip.Addr {
	switch n := g.rng.IntN(10); {
	case n < 6 && len(g.choice.mappings) > 0:
		return g.within(pick(&g.generator, g.choice.mappings).IPv6)
	case n < 9 && len(g.prefixes) > 0:
		return g.embed(g.rng.IntN(len(g.prefixes)), g.ours())
	}
	return g.client()
}

// flow is of any two.
func (g *siitGenerator) flow() natFlow {
	f := natFlow{
		transport: state.Transport(g.rng.IntN(int(state.Transports))),
		client:    g.host(), pool: g.ours(), peer: g.peer(),
		x: uint16(g.rng.Uint32()), t: uint16(g.rng.Uint32()), z: 443,
	}
	if g.chance(8) {
		f.peer = g.ours()
	}
	return f
}

// frame makes a frame of a flow. Without a prefix none is made of IPv6 but to no one's.
func (g *siitGenerator) frame(f natFlow) []byte {
	if len(g.prefixes) > 0 {
		f.prefix = g.rng.IntN(len(g.prefixes))
		return g.ipGenerator.frame(f)
	}
	g.prefixes = natPrefixes
	defer func() { g.prefixes = nil }()
	return g.ipGenerator.frame(f)
}
