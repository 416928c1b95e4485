// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// Settings is what the programs are told of a stateless translator's configuration.
// What the engine has too must be equal to the engine's.
type Settings struct {
	// Pool6 are the prefixes of RFC 6052, at most 16; there may be none. To IPv6 the
	// first is used, to IPv4 the longest that matches. Packets to them are ours.
	Pool6 []translatebpf.Prefix
	// Pool4 are IPv4 addresses that are routed to the translator, beside those of the
	// mappings. Behind the first 16 the engine translates.
	Pool4 []netip.Prefix
	// Mappings are explicit ones (RFC 7757), as [translate.NewTable] takes them. They
	// must not be changed after Set.
	Mappings []translate.Mapping
	// SimpleHairpin maps sources to IPv6 by prefix alone (RFC 7757 section 4.2.1).
	SimpleHairpin bool
	// MTU4 and MTU6 are the sizes that the networks on either side take, in bytes; 0
	// leaves that to the routes, which count in any case.
	MTU4, MTU6 int
	// LowestMTU is the size that IPv4 packets without DF are cut to (RFC 7915 section
	// 4.1); 0 is 1280.
	LowestMTU int
	// ZeroClass makes traffic classes 0; FixedTOS makes each TOS octet TOS.
	ZeroClass, FixedTOS bool
	TOS                 uint8
	// Unsummed says that the engine translates UDP over IPv4 without a checksum, and so
	// must get all of it (RFC 7915 section 4.5).
	Unsummed bool
	// Tunnel is the interface index of the translator's own device: routes are asked as
	// if packets came from there.
	Tunnel int
	// Source4 is the IPv4 source that routes are asked with. Without, it is an address of
	// Pool4 or of a mapping.
	Source4 netip.Addr
	// PuntRate bounds what is left to the engine, a second and for each reason;
	// PuntShare the part of that of one IPv6 /64 or IPv4 address. 0: no bound.
	PuntRate, PuntShare int
}

// Flags of the settings; a test compares them with bpf/siit_settings.h.
const (
	siitFlagZeroClass = 1 << iota
	siitFlagFixedTOS
	siitFlagSimple
	siitFlagMappedInPool6
	siitFlagUnsummed
)

// dummyIPv4 is the source that a translator has who has none (RFC 7600 section 4.5).
var dummyIPv4 = netip.AddrFrom4([4]byte{192, 0, 0, 8})

func (s *Settings) check() error {
	if len(s.Pool6) > translatebpf.MaxPool6 {
		return fmt.Errorf("the fast path takes %d prefixes of pool6 at most, not %d", translatebpf.MaxPool6, len(s.Pool6))
	}
	if err := translatebpf.CheckPool6(s.Pool6); err != nil {
		return err
	}
	for _, p := range s.Pool4 {
		if !p.IsValid() || !p.Addr().Is4() {
			return fmt.Errorf("%s cannot be in pool4: it must be an IPv4 prefix", p)
		}
	}
	for _, m := range s.Mappings {
		if !m.IPv4.IsValid() || !m.IPv4.Addr().Is4() || !m.IPv6.IsValid() || !m.IPv6.Addr().Is6() || 32-m.IPv4.Bits() > 128-m.IPv6.Bits() {
			return fmt.Errorf("%s cannot be a mapping: it must be an IPv4 and an IPv6 prefix with no fewer suffix bits", m)
		}
	}
	if s.LowestMTU != 0 && (s.LowestMTU < 1280 || s.LowestMTU > 65535) {
		return fmt.Errorf("a lowest MTU of %d bytes cannot be: it must be 1280 to 65535", s.LowestMTU)
	}
	return nil
}

// Set applies settings. While they change, programs pass all packets; then next hops are
// asked for again. Of mappings only those that differ from before are written. When it
// fails, programs pass all packets until it succeeds.
func (s *Path) Set(n Settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause()
	if err := n.check(); err != nil {
		return err
	}
	if err := s.mappings.set(n.Mappings); err != nil {
		return err
	}
	n.fill(s.settings)
	s.Bump()
	s.resume()
	return nil
}

// fill writes all but generation, life, secrets of the programs, and devices.
func (s *Settings) fill(c *siitSiitSettings) {
	c.Flags = s.flags()
	c.LowestMtu = uint32(s.LowestMTU)
	if s.LowestMTU == 0 {
		c.LowestMtu = 1280
	}
	c.Mtu4, c.Mtu6 = translatebpf.MTU4(s.MTU4), translatebpf.MTU6(s.MTU6)
	c.Tos = uint32(s.TOS)
	c.Tun = uint32(s.Tunnel)
	c.Source = fastpath.IPv4Word(s.source())
	c.PuntTotal, c.PuntSource = fastpath.PerWindow(s.PuntRate), fastpath.PerWindow(s.PuntShare)
	translatebpf.FillPool6(&c.Pool6, s.Pool6)
	c.Pool6Count = uint32(len(s.Pool6))
	clear(c.Pool4[:])
	pool := s.Pool4[:min(len(s.Pool4), translatebpf.MaxPool4)]
	for i, p := range pool {
		c.Pool4[i].Address, c.Pool4[i].Mask = fastpath.IPv4Word(p.Masked().Addr()), fastpath.IPv4Mask(p.Bits())
	}
	c.Pool4Count = uint32(len(pool))
	s.fillLengths(c)
	s.fillSpan(c, pool)
}

// source is the source that routes are asked with.
func (s *Settings) source() netip.Addr {
	switch {
	case s.Source4.Is4():
		return s.Source4
	case len(s.Pool4) > 0:
		return s.Pool4[0].Addr()
	case len(s.Mappings) > 0:
		return s.Mappings[0].IPv4.Addr()
	}
	return dummyIPv4
}

func (s *Settings) flags() (flags uint32) {
	for i, set := range []bool{s.ZeroClass, s.FixedTOS, s.SimpleHairpin, s.mappedInPool6(), s.Unsummed} {
		if set {
			flags |= 1 << i
		}
	}
	return flags
}

// mappedInPool6 reports whether an address of pool6 may have an explicit mapping.
func (s *Settings) mappedInPool6() bool {
	return slices.ContainsFunc(s.Mappings, func(m translate.Mapping) bool {
		return slices.ContainsFunc(s.Pool6, func(p translatebpf.Prefix) bool { return p.Prefix.Overlaps(m.IPv6) })
	})
}

// fillLengths writes the lengths that prefixes of mappings have, the longest first.
func (s *Settings) fillLengths(c *siitSiitSettings) {
	var has4 [33]bool
	var has6 [129]bool
	for _, m := range s.Mappings {
		has4[m.IPv4.Bits()], has6[m.IPv6.Bits()] = true, true
	}
	clear(c.Length4[:])
	clear(c.Length6[:])
	c.Lengths4, c.Lengths6 = 0, 0
	for n := 32; n >= 0; n-- {
		if has4[n] {
			c.Length4[c.Lengths4] = siitLength4{Bits: uint32(n), Mask: fastpath.IPv4Mask(n)}
			c.Lengths4++
		}
	}
	for n := 128; n >= 0; n-- {
		if has6[n] {
			c.Length6[c.Lengths6] = siitLength6{Bits: uint64(n), Mask: fastpath.IPv6Mask(n)}
			c.Lengths6++
		}
	}
}

// fillSpan writes between which IPv4 addresses those of the translator lie: outside of it
// nothing is looked up. Without any it holds 0.0.0.0 alone.
func (s *Settings) fillSpan(c *siitSiitSettings, pool []netip.Prefix) {
	first, last := ^uint32(0), uint32(0)
	take := func(p netip.Prefix) {
		a := p.Masked().Addr().As4()
		low := binary.BigEndian.Uint32(a[:])
		first, last = min(first, low), max(last, low|^bits.ReverseBytes32(fastpath.IPv4Mask(p.Bits())))
	}
	for _, p := range pool {
		take(p)
	}
	for _, m := range s.Mappings {
		take(m.IPv4)
	}
	if first > last {
		first, last = 0, 0
	}
	c.First4, c.Span4 = first, last-first
}
