// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// maxBlocks is how many blocks of ports a client may have.
const maxBlocks = state.MaxBlocks

// pool is pool4: which addresses there are, and which of them clients are given.
type pool struct {
	known     map[netip.Addr]bool // also those that were taken out, as long as something is bound there
	addresses []netip.Addr        // those that new clients may get
	order     map[netip.Addr]int  // and which is which
	ranges    []Range             // of all that are known
}

// has reports whether an IPv4 packet to the address is the translator's.
func (p *pool) has(a netip.Addr) bool { return p.known[a] }

// poolAddresses puts the ranges together by their addresses.
func poolAddresses(ranges []Range) ([]state.PoolAddress, error) {
	var all []state.PoolAddress
	at := make(map[netip.Addr]int)
	for _, r := range ranges {
		if n := 32 - r.Prefix.Bits(); n > 16 {
			return nil, fmt.Errorf("pool4: %s has more than %d addresses", r.Prefix, state.MaxAddresses)
		}
		for a := r.Prefix.Addr(); r.Prefix.Contains(a); a = a.Next() {
			i, ok := at[a]
			if !ok {
				i = len(all)
				at[a] = i
				all = append(all, state.PoolAddress{Address: a.As4()})
			}
			all[i].Ports = append(all[i].Ports, r.portRanges()...)
		}
		if len(all) > state.MaxAddresses {
			return nil, fmt.Errorf("pool4 has more than %d addresses", state.MaxAddresses)
		}
	}
	return all, nil
}

// portRanges returns the ports of the range for each of its transports.
func (r Range) portRanges() (ports []state.PortRange) {
	first, last := r.ports()
	for t := range state.Transports {
		if r.transports()>>t&1 != 0 {
			ports = append(ports, state.PortRange{Transport: t, First: uint16(first), Last: uint16(last)})
		}
	}
	return ports
}

// set makes the addresses those of the pool, with the ports of ranges. Which are known is for
// [Engine.know].
func (p *pool) set(addresses []state.PoolAddress, ranges []Range) {
	for _, r := range ranges {
		if !slices.Contains(p.ranges, r) {
			p.ranges = append(p.ranges, r)
		}
	}
	p.addresses, p.order = p.addresses[:0], make(map[netip.Addr]int, len(addresses))
	for i, a := range addresses {
		addr := netip.AddrFrom4(a.Address)
		p.order[addr] = i
		p.addresses = append(p.addresses, addr)
	}
}

// within returns the ports of a block that are, or were, in the pool: blocks begin at
// multiples of their size, the ranges of a pool anywhere. Ports between two ranges are not
// distinguished.
func (p *pool) within(addr netip.Addr, first, last int) (uint16, uint16) {
	low, high := last+1, first-1
	for _, r := range p.ranges {
		from, to := r.ports()
		if from, to = max(from, first), min(to, last); r.Prefix.Contains(addr) && from <= to {
			low, high = min(low, from), max(high, to)
		}
	}
	if low > high {
		return uint16(first), uint16(last) // of a process before this one
	}
	return uint16(low), uint16(high)
}

// clients are the prefixes that may use the translator.
type clients struct{ prefixes []netip.Prefix }

func (c *clients) has(a netip.Addr) bool {
	return slices.ContainsFunc(c.prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// covers reports whether one of them has all addresses of another.
func (c *clients) covers(all netip.Prefix) bool {
	return slices.ContainsFunc(c.prefixes, func(p netip.Prefix) bool { return p.Bits() <= all.Bits() && p.Contains(all.Addr()) })
}
