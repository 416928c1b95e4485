// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
)

// PoolAddress is an address of pool4 with the ports of it that may be used.
type PoolAddress struct {
	Address [4]byte
	Ports   []PortRange
}

// PortRange is a run of ports, or identifiers, of one transport. Port 0 of TCP and UDP is
// never used.
type PortRange struct {
	Transport   Transport
	First, Last uint16
}

// SetPool says what pool4 is; before that no port is free. Sessions and bindings outside
// of it go on until they end; blocks there give no more ports. Programs may run beside.
// It fails, and changes nothing, when an address is there twice or when the table has no
// room for so many, counting those that are still in use.
func (t *Table) SetPool(pool []PoolAddress) error {
	numbers, free, err := t.number(pool)
	if err != nil {
		return err
	}
	for _, n := range free {
		t.forget(n)
	}
	ports := make([][]PortRange, len(t.addresses))
	for i, address := range pool {
		n := numbers[i]
		ports[n] = address.Ports
		atomic.StoreUint32(&t.addresses[n].address, wire32(address.Address))
		t.numbers[address.Address] = n
	}
	var bound [][]uint64
	for n := range uint32(len(ports)) {
		if slices.Equal(t.pool[n], ports[n]) {
			continue
		}
		if bound == nil {
			bound = t.outsideBlocks()
		}
		t.setPorts(n, ports[n], bound[n])
	}
	t.pool = ports
	return nil
}

// number gives each address of a pool a number: the one it has, or a free one. free are
// all that neither the pool has nor anything uses.
func (t *Table) number(pool []PoolAddress) (numbers, free []uint32, err error) {
	wanted := make(map[[4]byte]bool)
	for _, address := range pool {
		if wanted[address.Address] {
			return nil, nil, fmt.Errorf("address %s is in the pool twice: put its ports together", netip.AddrFrom4(address.Address))
		}
		wanted[address.Address] = true
	}
	used := t.numbersUsed(wanted)
	for n := range uint32(len(t.addresses)) {
		a := bytes4(atomic.LoadUint32(&t.addresses[n].address))
		if number, known := t.numbers[a]; !known || number != n || !wanted[a] && !used[n] {
			free = append(free, n)
		}
	}
	next := 0
	for _, address := range pool {
		n, known := t.numbers[address.Address]
		if !known {
			if next == len(free) {
				return nil, nil, fmt.Errorf("the state has room for %d addresses of a pool, counting those that are still in use: use fewer, or give it more", len(t.addresses))
			}
			n = free[next]
			next++
		}
		numbers = append(numbers, n)
	}
	return numbers, free, nil
}

// forget takes a number from an address that is not in use.
func (t *Table) forget(n uint32) {
	if a := bytes4(atomic.LoadUint32(&t.addresses[n].address)); a != [4]byte{} {
		delete(t.numbers, a)
		atomic.StoreUint32(&t.addresses[n].address, 0)
	}
}

// numbersUsed reports which addresses have bindings or leased blocks, if any address is to
// leave the pool.
func (t *Table) numbersUsed(wanted map[[4]byte]bool) []bool {
	used := make([]bool, len(t.addresses))
	leaving := false
	for a := range t.numbers {
		leaving = leaving || !wanted[a]
	}
	if !leaving {
		return used
	}
	for i, owner := range t.leases {
		if owner != 0 {
			used[uint32(i)/t.blocksOf()] = true
		}
	}
	t.WalkBindings(0, len(t.bindings), func(b *Binding) {
		if n, ok := t.numbers[b.Pool]; ok {
			used[n] = true
		}
	})
	return used
}

// outsideBlocks returns, for each address that has any, the bits of ports that bindings hold
// outside of the pool.
func (t *Table) outsideBlocks() [][]uint64 {
	bound := make([][]uint64, len(t.addresses))
	t.WalkBindings(0, len(t.bindings), func(b *Binding) {
		n, ok := t.numbers[b.Pool]
		if !ok || t.allowed(n, b.Transport, b.PoolPort) {
			return
		}
		if bound[n] == nil {
			bound[n] = make([]uint64, addressWords)
		}
		bound[n][portWord(0, b.Transport, b.PoolPort)] |= 1 << (b.PoolPort % 64)
	})
	return bound
}

// setPorts sets the bits of ports that leave the pool, and clears those of ports that come
// into it, but for those that are bound. Others change meanwhile.
func (t *Table) setPorts(n uint32, ports []PortRange, bound []uint64) {
	for transport := range Transports {
		for word := range uint32(portWords) {
			at := portWord(n, transport, 0) + word
			old, now := portMask(t.pool[n], transport, word), portMask(ports, transport, word)
			if left := old &^ now; left != 0 {
				atomic.OrUint64(&t.ports.words[at], left)
			}
			come := now &^ old
			if bound != nil {
				come &^= bound[portWord(0, transport, 0)+word]
			}
			if come != 0 {
				atomic.AndUint64(&t.ports.words[at], ^come)
			}
		}
	}
}

// portMask returns which ports of a word are in the ranges.
func portMask(ports []PortRange, transport Transport, word uint32) (mask uint64) {
	low, high := word*64, word*64+63
	for _, r := range ports {
		first, last := max(uint32(r.First), low), min(uint32(r.Last), high)
		if r.Transport == transport && first <= last {
			mask |= ^uint64(0) >> (63 - (last - first)) << (first - low)
		}
	}
	if word == 0 && transport != ICMP {
		mask &^= 1
	}
	return mask
}

// numberOf returns the number of an address of the pool.
func (t *Table) numberOf(pool [4]byte) (n uint32, ok bool) {
	n, ok = t.numbers[pool]
	return n, ok
}

// allowed reports whether the pool has a port.
func (t *Table) allowed(n uint32, transport Transport, port uint16) bool {
	for _, r := range t.pool[n] {
		if r.Transport == transport && r.First <= port && port <= r.Last {
			return port != 0 || transport == ICMP
		}
	}
	return false
}

// InPool reports whether T,t is in the pool.
func (t *Table) InPool(o Outside) bool {
	n, ok := t.numberOf(o.Pool)
	return ok && t.allowed(n, o.Transport, o.Port)
}
