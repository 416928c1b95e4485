// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"
	"slices"
)

// Hairpin chooses how packets between two IPv6 nodes that both have explicit mappings
// are turned round (RFC 7757 section 4.2).
type Hairpin uint8

// The hairpin modes.
const (
	HairpinIntrinsic Hairpin = iota // by the translator itself, in one go
	HairpinSimple                   // by the IPv4 network, with the rules of section 4.2.1 on the way back
	HairpinOff
)

// ZeroChecksum chooses what becomes of IPv4 UDP packets without a checksum (RFC 7915
// section 4.5).
type ZeroChecksum uint8

// The choices. A first fragment passes with the last one only: its checksum would
// cover bytes that a stateless translator does not see.
const (
	ZeroChecksumDrop ZeroChecksum = iota
	ZeroChecksumCompute
	ZeroChecksumForward
)

// Settings of a [Translator].
type Settings struct {
	// Prefixes translate what no mapping does, by RFC 6052. To IPv6 the first one
	// is used, to IPv4 the longest that matches. There may be none.
	Prefixes []Prefix
	// NonGlobal lets the well-known prefix carry non-global IPv4 addresses, which
	// RFC 6052 section 3.1 forbids.
	NonGlobal bool
	Mappings  *Table // RFC 7757; nil is none
	Hairpin   Hairpin

	// Pool4 and Pool6 give ICMP errors a source when that of the router has no
	// form in the other family (RFC 6791); Own4 and Own6, the translator's own
	// addresses, serve where a pool is empty, and are the source of the errors
	// that it owes. Without an own address it owes none.
	Pool4, Pool6 []netip.Prefix
	Own4, Own6   netip.Addr
	// InterfaceObject adds the IPv6 source that was so replaced as an Interface
	// Information Object (RFC 6791 section 4, RFC 5837).
	InterfaceObject bool

	ZeroTrafficClass bool  // to IPv6: do not copy the TOS octet (RFC 7915 section 4.1)
	FixedTOS         bool  // to IPv4: TOS instead of the traffic class (section 5.1)
	TOS              uint8 // with FixedTOS
	// LowestIPv6MTU is the size that packets without DF are cut to (section 4.1);
	// 0 is 1280.
	LowestIPv6MTU int
	// Plateaus are likely path MTUs, for routers that report none (RFC 1191
	// section 7); nil is the RFC's list.
	Plateaus        []int
	UDPZeroChecksum ZeroChecksum
}

// rfc1191Plateaus is table 7-1 of RFC 1191.
var rfc1191Plateaus = []int{65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68}

// Translator translates packets one by one and remembers none. Make one with [New].
type Translator struct {
	prefixes     []Prefix
	longestFirst []Prefix
	nonGlobal    bool
	mappings     *Table
	hairpin      Hairpin

	pool4, pool6    pool
	own4, own6      netip.Addr
	interfaceObject bool

	zeroTrafficClass bool
	fixedTOS         bool
	tos              uint8
	lowestMTU        int
	plateaus         []int // largest first
	zeroChecksum     ZeroChecksum
}

// New checks the settings and makes a translator.
func New(s Settings) (*Translator, error) {
	t := &Translator{
		prefixes:         slices.Clone(s.Prefixes),
		longestFirst:     slices.Clone(s.Prefixes),
		nonGlobal:        s.NonGlobal,
		mappings:         s.Mappings,
		hairpin:          s.Hairpin,
		own4:             s.Own4,
		own6:             s.Own6,
		interfaceObject:  s.InterfaceObject,
		zeroTrafficClass: s.ZeroTrafficClass,
		fixedTOS:         s.FixedTOS,
		tos:              s.TOS,
		lowestMTU:        s.LowestIPv6MTU,
		plateaus:         slices.Clone(s.Plateaus),
		zeroChecksum:     s.UDPZeroChecksum,
	}
	slices.SortStableFunc(t.longestFirst, func(a, b Prefix) int { return b.octets - a.octets })
	if t.mappings == nil {
		t.mappings = new(Table)
	}
	if t.lowestMTU == 0 {
		t.lowestMTU = maxError6
	}
	if t.plateaus == nil {
		t.plateaus = rfc1191Plateaus
	}
	if err := s.check(t); err != nil {
		return nil, err
	}
	var err error
	if t.pool4, err = newPool(s.Pool4, 4); err != nil {
		return nil, err
	}
	t.pool6, err = newPool(s.Pool6, 16)
	return t, err
}

// check says what is wrong with the plain settings.
func (s *Settings) check(t *Translator) error {
	for i := range s.Prefixes {
		if s.Prefixes[i].octets == 0 {
			return fmt.Errorf("an empty prefix among the translation prefixes; make each with NewPrefix")
		}
		if slices.ContainsFunc(s.Prefixes[:i], func(p Prefix) bool { return p.prefix == s.Prefixes[i].prefix }) {
			return fmt.Errorf("prefix %s stands twice among the translation prefixes; remove one", s.Prefixes[i].prefix)
		}
	}
	switch {
	case t.lowestMTU < 1280 || t.lowestMTU > 65535:
		return fmt.Errorf("lowest IPv6 MTU %d is outside of 1280 to 65535", t.lowestMTU)
	case !slices.IsSortedFunc(t.plateaus, func(a, b int) int { return b - a }):
		return fmt.Errorf("the MTU plateaus are not sorted; write the largest first")
	case s.Own4.IsValid() && (!s.Own4.Is4() || illegal4(s.Own4.As4())):
		return fmt.Errorf("own IPv4 address %s is no IPv4 host address", s.Own4)
	case s.Own6.IsValid() && !ownable6(s.Own6):
		return fmt.Errorf("own IPv6 address %s is no IPv6 host address", s.Own6)
	case s.Hairpin > HairpinOff || s.UDPZeroChecksum > ZeroChecksumForward:
		return fmt.Errorf("unknown hairpin or zero checksum mode")
	}
	return nil
}

func ownable6(a netip.Addr) bool {
	raw := a.As16()
	return a.Is6() && !illegal6(&raw)
}
