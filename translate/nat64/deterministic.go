// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// Deterministic gives each client a range of ports by calculation (RFC 7422 section 4,
// algorithm 0, sequential): clients are numbered in the order of Settings.Clients, and
// fill the addresses of pool4 in theirs. What they need beyond their range is leased from
// the ports that are no one's.
type Deterministic struct {
	Compression int // C: clients that share an address
	Dynamic     int // D: how many shares are kept for leases
	Reserved    int // R: ports below which no range begins; at least 1024
}

func (d *Deterministic) check() error {
	switch {
	case d.Compression < 1 || d.Compression > 64512:
		return fmt.Errorf("%d clients cannot share an address; write 1 to 64512", d.Compression)
	case d.Dynamic < 0 || d.Dynamic > 64512:
		return fmt.Errorf("%d shares cannot be kept for leases; write 0 to 64512", d.Dynamic)
	case d.Reserved < 1024 || d.Reserved > 65535:
		return fmt.Errorf("%d ports cannot be reserved; write 1024 to 65535", d.Reserved)
	}
	return nil
}

// Share returns how many ports a client has, in whole blocks of the given size.
func (d *Deterministic) Share(block int) int {
	return (65536 - d.base(block)) / (d.Compression + d.Dynamic) / block * block
}

// base is the first port of the first range.
func (d *Deterministic) base(block int) int { return (d.Reserved + block - 1) / block * block }

// dynamicFirst is the first port that is leased.
func (d *Deterministic) dynamicFirst(block int) int {
	return d.base(block) + d.Compression*d.Share(block)
}

// Range returns the ports of a client by its number, and which address of the pool they
// are of.
func (d *Deterministic) Range(client uint64, block int) (address uint64, first, last int) {
	share := d.Share(block)
	first = d.base(block) + int(client%uint64(d.Compression))*share
	return client / uint64(d.Compression), first, first + share - 1
}

// Client returns the number of the client that has a port; ok is false for ports that are
// no one's by calculation.
func (d *Deterministic) Client(address uint64, port, block int) (client uint64, ok bool) {
	if port < d.base(block) || port >= d.dynamicFirst(block) {
		return 0, false
	}
	return address*uint64(d.Compression) + uint64((port-d.base(block))/d.Share(block)), true
}

// place is where a client's calculated ports are.
type place struct {
	address     netip.Addr
	first, last int
}

// checkBlocks reports whether the ranges suit the table's blocks.
func (d *Deterministic) checkBlocks(block int) error {
	switch share := d.Share(block); {
	case share == 0:
		return fmt.Errorf("%d clients and %d shares for leases leave no one a block of %d ports; use smaller blocks or fewer clients for an address", d.Compression, d.Dynamic, block)
	case share > maxBlocks*block:
		return fmt.Errorf("each client's %d ports are more than %d blocks of %d; use larger blocks", share, maxBlocks, block)
	}
	return nil
}

// deterministicPlace returns where the calculated ports of a client are.
func (e *Engine) deterministicPlace(client [16]byte) (place, bool) {
	d := e.settings.Deterministic
	if d == nil {
		return place{}, false
	}
	n, ok := clientNumber(e.settings.Clients, e.table.Sizes().SubscriberLength, netip.AddrFrom16(client))
	if !ok {
		return place{}, false
	}
	address, first, last := d.Range(n, e.blockPorts())
	if address >= uint64(len(e.pool.addresses)) {
		return place{}, false
	}
	return place{e.pool.addresses[address], first, last}, true
}

// deterministicOwner returns the client that has a port by calculation.
func (e *Engine) deterministicOwner(pool netip.Addr, port uint16) (netip.Prefix, bool) {
	d := e.settings.Deterministic
	address, known := e.pool.order[pool]
	if d == nil || !known {
		return netip.Prefix{}, false
	}
	n, ok := d.Client(uint64(address), int(port), e.blockPorts())
	if !ok {
		return netip.Prefix{}, false
	}
	return numberedClient(e.settings.Clients, e.table.Sizes().SubscriberLength, n)
}

// clientNumber counts the clients before an address; each is a prefix of the given
// length.
func clientNumber(prefixes []netip.Prefix, length int, a netip.Addr) (n uint64, ok bool) {
	for _, p := range prefixes {
		if p.Contains(a) {
			return n + bitsBetween(a, p.Bits(), length), true
		}
		n += clientsIn(p, length)
	}
	return 0, false
}

// numberedClient is the reverse.
func numberedClient(prefixes []netip.Prefix, length int, n uint64) (netip.Prefix, bool) {
	for _, p := range prefixes {
		size := clientsIn(p, length)
		if n >= size {
			n -= size
			continue
		}
		raw := p.Addr().As16()
		shifted := number128{hi: binary.BigEndian.Uint64(raw[:8]), lo: binary.BigEndian.Uint64(raw[8:])}
		shifted = shifted.add(number128{lo: n}.left(128 - length))
		binary.BigEndian.PutUint64(raw[:8], shifted.hi)
		binary.BigEndian.PutUint64(raw[8:], shifted.lo)
		return netip.PrefixFrom(netip.AddrFrom16(raw), length).Masked(), true
	}
	return netip.Prefix{}, false
}

// clientsIn is how many clients a prefix has; as many as anybody could number.
func clientsIn(p netip.Prefix, length int) uint64 {
	return 1 << min(max(length-p.Bits(), 0), 62)
}

// bitsBetween returns the bits of an address from one length up to another, of which at
// most 62 count.
func bitsBetween(a netip.Addr, from, to int) uint64 {
	if to <= from {
		return 0
	}
	raw := a.As16()
	n := number128{hi: binary.BigEndian.Uint64(raw[:8]), lo: binary.BigEndian.Uint64(raw[8:])}.right(128 - to).lo
	return n & (1<<min(to-from, 62) - 1)
}

// number128 is an IPv6 address as a number.
type number128 struct{ hi, lo uint64 }

func (b number128) left(n int) number128 {
	if n >= 64 {
		return number128{hi: b.lo << (n - 64)}
	}
	return number128{b.hi<<n | b.lo>>(64-n), b.lo << n}
}

func (b number128) right(n int) number128 {
	if n >= 64 {
		return number128{lo: b.hi >> (n - 64)}
	}
	return number128{b.hi >> n, b.lo>>n | b.hi<<(64-n)}
}

// add adds a number whose bits are clear in b.
func (b number128) add(o number128) number128 { return number128{b.hi | o.hi, b.lo | o.lo} }

// calculatedFor reports whether a block is its holder's by calculation. Who held it before the
// calculation changed holds it still.
func (e *Engine) calculatedFor(s *state.Subscriber, b state.Block) bool {
	owner, ok := e.deterministicOwner(netip.AddrFrom4(b.Pool), b.First)
	return ok && owner == e.prefixOf(s.Prefix)
}

// isFree reports whether no other client holds a part of the ports that are a client's by
// calculation.
func (e *Engine) isFree(p place, client netip.Prefix) bool {
	var s state.Subscriber
	for port := p.first; port <= p.last; port += e.blockPorts() {
		if e.table.Owner(p.address.As4(), uint16(port), &s) && e.prefixOf(s.Prefix) != client {
			return false
		}
	}
	return true
}

// WhereInside returns the ports that an IPv6 host has, leased or calculated.
func (e *Engine) WhereInside(client netip.Addr) []Block {
	var out []Block
	owner := client.As16()
	p, whole := e.deterministicPlace(owner)
	if whole = whole && e.isFree(p, e.prefixOf(owner)); whole {
		out = append(out, e.block(e.prefixOf(owner), p.address, p.first, p.last, true))
	}
	var s state.Subscriber
	if e.table.FindSubscriber(&owner, &s) {
		for _, b := range e.table.Blocks(&s, nil) {
			if calculated := e.calculatedFor(&s, b); !calculated || !whole {
				out = append(out, e.block(e.prefixOf(s.Prefix), netip.AddrFrom4(b.Pool), int(b.First), int(b.Last), calculated))
			}
		}
	}
	return out
}

// WhereOutside returns the client that has a port of the pool: who holds it now, or, if no one
// does, whose it is by calculation.
func (e *Engine) WhereOutside(pool netip.Addr, port uint16) (Block, bool) {
	var s state.Subscriber
	if e.table.Owner(pool.As4(), port, &s) {
		for _, b := range e.table.Blocks(&s, nil) {
			if b.First <= port && port <= b.Last && !e.calculatedFor(&s, b) {
				return e.block(e.prefixOf(s.Prefix), pool, int(b.First), int(b.Last), false), true
			}
		}
	}
	client, ok := e.deterministicOwner(pool, port)
	if !ok {
		return Block{}, false
	}
	p, ok := e.deterministicPlace(client.Addr().As16())
	return e.block(client, pool, p.first, p.last, true), ok
}
