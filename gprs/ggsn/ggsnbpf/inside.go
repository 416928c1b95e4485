// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/isthmus-net/isthmus/fastpath"
)

// MaxInside is how many prefixes of each family [Path.SetInside] takes.
const MaxInside = 1 << 16

// SetInside says where addresses of terminals are, and of what is behind them. Packets from others to these, and
// from these to terminals, are left to the engine, which knows who may speak to whom. Prefixes of IPv6 that are longer
// than 64 bits count as their /64.
func (p *Path) SetInside(list []netip.Prefix) error {
	p.change.Lock()
	defer p.change.Unlock()
	wanted := map[netip.Prefix]bool{}
	for _, one := range list {
		if one.Addr().Is6() && one.Bits() > 64 {
			one = netip.PrefixFrom(one.Addr(), 64)
		}
		wanted[one.Masked()] = true
	}
	var errs []error
	for one := range wanted { // first, so that none is missing meanwhile
		if !p.inside[one] {
			errs = append(errs, p.tellInside(one, true))
		}
	}
	for one := range p.inside {
		if !wanted[one] {
			errs = append(errs, p.tellInside(one, false))
		}
	}
	return errors.Join(errs...)
}

// tellInside adds a prefix to those of terminals, or takes it away.
func (p *Path) tellInside(one netip.Prefix, add bool) error {
	table, key := p.insideKey(one)
	if !add {
		if err := table.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("cannot tell the programs that %s is no longer terminals': %w", one, err)
		}
		delete(p.inside, one)
		return nil
	}
	if err := table.Put(key, uint32(1)); err != nil {
		return fmt.Errorf("cannot tell the programs that %s is terminals': %w", one, err)
	}
	p.inside[one] = true
	return nil
}

// insideKey is the key of a prefix, in the table of its family.
func (p *Path) insideKey(one netip.Prefix) (table *ebpf.Map, key any) {
	bits := uint32(one.Bits())
	if one.Addr().Is4() {
		return p.Map(insides4Slab), ggsnInside4{Bits: bits, Address: fastpath.IPv4Word(one.Addr())}
	}
	b := one.Addr().As16()
	return p.Map(insides6Slab), ggsnInside6{Bits: bits, Address: [2]uint32{binary.NativeEndian.Uint32(b[:]), binary.NativeEndian.Uint32(b[4:])}}
}
