// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// Settings is what the programs are told of a NAT64's configuration. What the engine
// has too must be equal to the engine's.
type Settings struct {
	// Pool6 are the prefixes of RFC 6052: at least one, and at most 16. Sessions hold
	// their numbers.
	Pool6 []translatebpf.Prefix
	// Pool4 are addresses and ports of the IPv4 side. The programs know the first 16 of
	// what [Join] makes of them; packets to others are the engine's.
	Pool4 []Range
	// Lifetimes are those of sessions by transport and state; 0 where there is no such
	// state.
	Lifetimes [state.Transports][state.Statuses]time.Duration
	// AddressDependent tells, by transport, that the IPv4 side may not open sessions
	// here: the engine filters.
	AddressDependent [state.Transports]bool
	// ExternalTCP lets the IPv4 side open connections.
	ExternalTCP bool
	// NoICMPInfo leaves ICMPv6 queries to the engine, which refuses them.
	NoICMPInfo bool
	// OutboundOnly keeps packets from the IPv4 side from prolonging UDP and ICMP.
	OutboundOnly bool
	// ZeroClass makes traffic classes 0; FixedTOS makes each TOS octet TOS.
	ZeroClass, FixedTOS bool
	TOS                 uint8
	// MTU4 and MTU6 are the sizes that the networks on either side take, in bytes; 0
	// leaves them to the routes.
	MTU4, MTU6 int
	// LowestMTU is the size that IPv4 packets without DF are cut to (RFC 7915 section
	// 4.1); 0 is 1280.
	LowestMTU int
	// Detour leaves FTP control connections to the engine.
	Detour bool
	// InnerSource gives translated ICMPv4 errors the source that RFC 6146 section 3.6.1
	// says by the letter.
	InnerSource bool
	// RouterPool4 and RouterPool6 leave ICMP errors of routers without a form in that family
	// to the engine, which has addresses for them (RFC 6791).
	RouterPool4, RouterPool6 bool
	// Unsummed says that the engine translates UDP over IPv4 without a checksum, and so must
	// get all of it that has a session (RFC 7915 section 4.5).
	Unsummed bool
	// Unfinished lets tc send by a veth what a sender on this machine has left to
	// hardware. Else the engine sends such packets.
	Unfinished bool
	// Tunnel is the interface index of the translator's own device: routes are asked as
	// if packets came from there.
	Tunnel int
	// PuntRate bounds what is left to the engine, a second and for each reason;
	// PuntShare the part of that of one IPv6 /64 or IPv4 address. 0: no bound.
	PuntRate, PuntShare int
}

// Range is a part of pool4.
type Range struct {
	Prefix netip.Prefix
	// Ports are those of each transport; none where the last is below the first.
	Ports [state.Transports]PortRange
	// Own marks addresses of this host: what lies outside of the ports, or belongs to
	// nothing, is the host's.
	Own bool
}

// PortRange is a run of ports.
type PortRange struct{ First, Last uint16 }

// Flags of the settings; a test compares them with bpf/nat64_settings.h.
const (
	nat64FlagFilterTCP = 1 << iota
	nat64FlagFilterUDP
	nat64FlagFilterICMP
	nat64FlagExternalTCP
	nat64FlagNoICMPInfo
	nat64FlagOutboundOnly
	nat64FlagZeroClass
	nat64FlagFixedTOS
	nat64FlagDetour
	nat64FlagUnfinished
	nat64FlagInnerSource
	nat64FlagRouterPool4
	nat64FlagRouterPool6
	nat64FlagUnsummed

	pool4Own = 1
)

func (s *Settings) check() error {
	if len(s.Pool6) == 0 || len(s.Pool6) > translatebpf.MaxPool6 {
		return fmt.Errorf("the fast path takes 1 to %d prefixes of pool6, not %d", translatebpf.MaxPool6, len(s.Pool6))
	}
	if err := translatebpf.CheckPool6(s.Pool6); err != nil {
		return err
	}
	if len(s.Pool4) == 0 {
		return errors.New("the fast path needs an address in pool4")
	}
	for _, r := range s.Pool4 {
		if !r.Prefix.IsValid() || !r.Prefix.Addr().Is4() {
			return fmt.Errorf("%s cannot be in pool4: it must be an IPv4 prefix", r.Prefix)
		}
	}
	if s.LowestMTU != 0 && (s.LowestMTU < 1280 || s.LowestMTU > 65535) {
		return fmt.Errorf("a lowest MTU of %d bytes cannot be: it must be 1280 to 65535", s.LowestMTU)
	}
	return nil
}

// Settings returns what was set last; nothing before [Path.Set].
func (n *Path) Settings() Settings {
	if s := n.current.Load(); s != nil {
		return *s
	}
	return Settings{}
}

// Set applies settings. While they change, programs pass all packets; then next hops are
// asked for again.
func (n *Path) Set(s Settings) error {
	if err := s.check(); err != nil {
		return err
	}
	n.Change(func() { s.fill(n.settings) })
	n.current.Store(&s)
	return nil
}

// fill writes all but generation, life, secrets of the programs, and devices.
func (s *Settings) fill(c *nat64Nat64Settings) {
	c.Flags = s.flags()
	c.LowestMtu = uint32(s.LowestMTU)
	if s.LowestMTU == 0 {
		c.LowestMtu = 1280
	}
	c.Mtu4, c.Mtu6 = translatebpf.MTU4(s.MTU4), translatebpf.MTU6(s.MTU6)
	c.Tos = uint32(s.TOS)
	c.Tun = uint32(s.Tunnel)
	c.PuntTotal, c.PuntSource = fastpath.PerWindow(s.PuntRate), fastpath.PerWindow(s.PuntShare)
	clear(c.Lifetime[:])
	for transport, states := range s.Lifetimes {
		for status, lifetime := range states {
			c.Lifetime[transport][status] = state.Units(lifetime)
		}
	}
	translatebpf.FillPool6(&c.Pool6, s.Pool6)
	c.Pool6Count = uint32(len(s.Pool6))
	s.fillPool4(c)
}

func (s *Settings) flags() (flags uint32) {
	for i, set := range []bool{
		s.AddressDependent[state.TCP], s.AddressDependent[state.UDP], s.AddressDependent[state.ICMP],
		s.ExternalTCP, s.NoICMPInfo, s.OutboundOnly, s.ZeroClass, s.FixedTOS, s.Detour, s.Unfinished, s.InnerSource,
		s.RouterPool4, s.RouterPool6, s.Unsummed,
	} {
		if set {
			flags |= 1 << i
		}
	}
	return flags
}

func (s *Settings) fillPool4(c *nat64Nat64Settings) {
	clear(c.Pool4[:])
	pool := Join(s.Pool4)
	pool = pool[:min(len(pool), translatebpf.MaxPool4)]
	for i, r := range pool {
		to := &c.Pool4[i]
		to.Address = fastpath.IPv4Word(r.Prefix.Masked().Addr())
		to.Mask = fastpath.IPv4Mask(r.Prefix.Bits())
		for transport, ports := range r.Ports {
			to.First[transport], to.Last[transport] = ports.First, ports.Last
		}
		if r.Own {
			to.Flags = pool4Own
		}
	}
	c.Pool4Count = uint32(len(pool))
	c.Source = fastpath.IPv4Word(s.Pool4[0].Prefix.Masked().Addr())
}

// Join puts ranges together where one record of the programs holds them. Those of this host
// come first: an answer to one that the programs do not know would be the host's, and lost.
func Join(pool []Range) (joined []Range) {
	for _, r := range pool {
		if r.Own {
			joined = joinOwn(joined, r)
		}
	}
	for _, r := range pool {
		same := func(o Range) bool { return o.Prefix == r.Prefix } // of these all ports are known
		if !r.Own && !slices.ContainsFunc(joined, same) {
			joined = append(joined, r)
		}
	}
	return joined
}

// joinOwn adds the ports of a range, of each transport to the first record of its prefix that
// has none or neighbours.
func joinOwn(joined []Range, r Range) []Range {
	for transport, ports := range r.Ports {
		if ports.empty() {
			continue
		}
		i := slices.IndexFunc(joined, func(o Range) bool { return o.Prefix == r.Prefix && o.Ports[transport].adjoins(ports) })
		if i < 0 {
			i = len(joined)
			none := PortRange{First: 1}
			joined = append(joined, Range{Prefix: r.Prefix, Ports: [state.Transports]PortRange{none, none, none}, Own: true})
		}
		at := &joined[i].Ports[transport]
		if at.empty() {
			*at = ports
		}
		*at = PortRange{min(at.First, ports.First), max(at.Last, ports.Last)}
	}
	return joined
}

func (p PortRange) empty() bool { return p.Last < p.First }

// adjoins reports whether two runs make one.
func (p PortRange) adjoins(o PortRange) bool {
	return p.empty() || int(p.First) <= int(o.Last)+1 && int(o.First) <= int(p.Last)+1
}
