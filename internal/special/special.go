// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package special

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
)

// Forwarded reports whether packets from and to addresses of the block are forwarded.
func (r *Row) Forwarded() bool { return r.Forwardable || r.Use == Example || r.Use == Open }

// block is a row in words.
type block struct {
	high, low           uint64
	highMask, lowMask   uint64
	forwarded, isGlobal bool
	example             bool
}

func (b *block) has(high, low uint64) bool {
	return high&b.highMask == b.high && low&b.lowMask == b.low
}

// registry holds blocks by the first 16 bits of an address, the longest first: most
// addresses have none.
type registry struct {
	of    [1 << 16]uint8
	lists [][]block
}

var registry4, registry6 = makeRegistry(IPv4), makeRegistry(IPv6)

func makeRegistry(rows []Row) *registry {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()) })
	out := &registry{lists: make([][]block, 1)}
	for _, r := range rows {
		b := block{forwarded: r.Forwarded(), isGlobal: r.Global, example: r.Use == Example}
		b.high, b.low = words(r.Prefix.Addr())
		b.highMask, b.lowMask = masks(r.Prefix.Bits())
		// Shorter blocks are there already: this one comes in front of what its first slot
		// has, which is all that any of its slots has.
		slot := int(b.high >> 48)
		list := append([]block{b}, out.lists[out.of[slot]]...)
		for i := range 1 << max(0, 16-r.Prefix.Bits()) {
			out.of[slot+i] = uint8(len(out.lists))
		}
		out.lists = append(out.lists, list)
	}
	return out
}

func masks(bits int) (high, low uint64) {
	return ^uint64(0) << max(0, 64-bits), ^uint64(0) << min(64, 128-bits)
}

// words are the two of an address; an IPv4 one fills the upper half of the first.
func words(a netip.Addr) (high, low uint64) {
	if a.Is4() {
		return word4(a.As4()), 0
	}
	raw := a.As16()
	return binary.BigEndian.Uint64(raw[:]), binary.BigEndian.Uint64(raw[8:])
}

func word4(a [4]byte) uint64 { return uint64(binary.BigEndian.Uint32(a[:])) << 32 }

// find returns the longest block that holds an address; nil if there is none.
func (r *registry) find(high, low uint64) *block {
	list := r.lists[r.of[high>>48]]
	for i := range list {
		if list[i].has(high, low) {
			return &list[i]
		}
	}
	return nil
}

// Forwarded4 reports whether packets from and to an IPv4 address are forwarded.
func Forwarded4(a [4]byte) bool {
	b := registry4.find(word4(a), 0)
	return b == nil || b.forwarded
}

// Forwarded6 is the IPv6 counterpart.
func Forwarded6(a *[16]byte) bool {
	b := registry6.find(binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(a[8:]))
	return b == nil || b.forwarded
}

// Global4 reports whether an IPv4 address is globally reachable.
func Global4(a [4]byte) bool {
	b := registry4.find(word4(a), 0)
	return b == nil || b.isGlobal
}

// Example4 reports whether an IPv4 address is one of those for documentation.
func Example4(a [4]byte) bool {
	b := registry4.find(word4(a), 0)
	return b != nil && b.example
}

// ForwardedPrefix reports whether packets from and to every address of a prefix are
// forwarded.
func ForwardedPrefix(p netip.Prefix) bool { return NotForwarded(p) == nil }

// NotForwarded returns a block of which a prefix has addresses whose packets are not
// forwarded; nil if there is none.
func NotForwarded(p netip.Prefix) *Row {
	rows := IPv6
	if p.Addr().Is4() {
		rows = IPv4
	}
	var around *Row // the longest that holds all of it
	for i := range rows {
		switch r := &rows[i]; {
		case r.Prefix.Bits() > p.Bits() && p.Overlaps(r.Prefix):
			if !r.Forwarded() {
				return r
			}
		case r.Prefix.Overlaps(p) && (around == nil || r.Prefix.Bits() > around.Prefix.Bits()):
			around = r
		}
	}
	if around != nil && around.Forwarded() {
		return nil
	}
	return around
}

// Privates4 are the blocks that number IPv4 hosts of one administration.
func Privates4() (list []netip.Prefix) {
	for _, r := range IPv4 {
		if r.Use == Private {
			list = append(list, r.Prefix)
		}
	}
	return list
}

// sharedSpace is what carriers have behind their NATs (RFC 6598).
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

// Hidden reports whether an address is one that hosts have behind a NAT, or of a link or a host alone: who
// is elsewhere reaches them by another, or not at all.
func Hidden(a netip.Addr) bool {
	return a.IsPrivate() || sharedSpace.Contains(a) || a.IsLinkLocalUnicast() || a.IsLoopback()
}
