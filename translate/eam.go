// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/special"
)

// Mapping is one explicit address mapping (RFC 7757 section 3.2). The IPv4 prefix has
// at most as many suffix bits as the IPv6 prefix.
type Mapping struct {
	IPv4, IPv6 netip.Prefix
}

// ParseMapping reads the two sides; a side without a length is one address (RFC 7757
// section 3.2).
func ParseMapping(ipv4, ipv6 string) (Mapping, error) {
	four, err := parseSide(ipv4)
	if err != nil {
		return Mapping{}, err
	}
	six, err := parseSide(ipv6)
	if err != nil {
		return Mapping{}, err
	}
	m := Mapping{IPv4: four, IPv6: six}
	return m, m.check()
}

// parseSide reads an address or a prefix.
func parseSide(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a prefix", s)
	}
	return p, nil
}

// String returns both sides.
func (m Mapping) String() string { return m.IPv4.String() + " = " + m.IPv6.String() }

// check says what is wrong with a mapping by itself.
func (m Mapping) check() error {
	switch {
	case !m.IPv4.IsValid() || !m.IPv4.Addr().Is4():
		return fmt.Errorf("mapping %s: the first side is no IPv4 prefix", m)
	case !m.IPv6.IsValid() || !m.IPv6.Addr().Is6() || m.IPv6.Addr().Is4In6():
		return fmt.Errorf("mapping %s: the second side is no IPv6 prefix", m)
	case m.IPv4.Masked() != m.IPv4:
		return fmt.Errorf("mapping %s: bits are set behind the length of %s; write %s", m, m.IPv4, m.IPv4.Masked())
	case m.IPv6.Masked() != m.IPv6:
		return fmt.Errorf("mapping %s: bits are set behind the length of %s; write %s", m, m.IPv6, m.IPv6.Masked())
	case 32-m.IPv4.Bits() > 128-m.IPv6.Bits():
		return fmt.Errorf("mapping %s: %d suffix bits of IPv4 do not fit into %d of IPv6; make the IPv6 prefix shorter",
			m, 32-m.IPv4.Bits(), 128-m.IPv6.Bits())
	case !special.ForwardedPrefix(m.IPv6):
		return fmt.Errorf("mapping %s: %s holds addresses that packets are never forwarded to", m, m.IPv6)
	}
	return nil
}

// row is a mapping ready for use.
type row struct {
	base4          uint32
	base6          bits128
	suffix4, shift int // suffix bits of IPv4; how far left they stand in the IPv6 address
}

// Table is an explicit address mapping table (RFC 7757 section 3.1). It does not
// change once made. The zero value is empty.
type Table struct {
	rows     []row
	by4      map[key4]int
	by6      map[key6]int
	lengths4 []int // prefix lengths present, longest first
	lengths6 []int
}

type key4 struct {
	bits int
	addr uint32
}

type key6 struct {
	bits int
	addr bits128
}

// NewTable makes a table. It refuses a wrong mapping, two with an identical prefix
// and, unless overlap is allowed, two that overlap, since the two directions may then
// not mirror each other (RFC 7757 section 5).
func NewTable(mappings []Mapping, allowOverlap bool) (*Table, error) {
	t := &Table{by4: make(map[key4]int, len(mappings)), by6: make(map[key6]int, len(mappings))}
	for i, m := range mappings {
		if err := m.check(); err != nil {
			return nil, err
		}
		r := newRow(m)
		k4, k6 := key4{m.IPv4.Bits(), r.base4}, key6{m.IPv6.Bits(), r.base6}
		if other, ok := t.by4[k4]; ok {
			return nil, fmt.Errorf("mapping %s has the IPv4 prefix of mapping %s; remove one of them", m, mappings[other])
		}
		if other, ok := t.by6[k6]; ok {
			return nil, fmt.Errorf("mapping %s has the IPv6 prefix of mapping %s; remove one of them", m, mappings[other])
		}
		t.by4[k4], t.by6[k6] = i, i
		t.rows = append(t.rows, r)
		t.lengths4 = addLength(t.lengths4, m.IPv4.Bits())
		t.lengths6 = addLength(t.lengths6, m.IPv6.Bits())
	}
	if a, b, found := Overlap(mappings); found && !allowOverlap {
		return nil, fmt.Errorf("mapping %s overlaps mapping %s: an address may not be mapped back to what it came from; remove one of them or allow overlapping mappings", a, b)
	}
	return t, nil
}

// addLength keeps the list of lengths sorted, longest first, each once.
func addLength(lengths []int, n int) []int {
	at, found := slices.BinarySearchFunc(lengths, n, func(a, b int) int { return cmp.Compare(b, a) })
	if found {
		return lengths
	}
	return slices.Insert(lengths, at, n)
}

// Overlap returns a pair of mappings that overlap on either side.
func Overlap(mappings []Mapping) (a, b Mapping, found bool) {
	for _, side := range []func(Mapping) netip.Prefix{
		func(m Mapping) netip.Prefix { return m.IPv4 },
		func(m Mapping) netip.Prefix { return m.IPv6 },
	} {
		// In this order a prefix that holds others is followed by one of them.
		sorted := slices.SortedFunc(slices.Values(mappings), func(x, y Mapping) int {
			return cmp.Or(side(x).Addr().Compare(side(y).Addr()), cmp.Compare(side(x).Bits(), side(y).Bits()))
		})
		for i := 1; i < len(sorted); i++ {
			if side(sorted[i-1]).Overlaps(side(sorted[i])) {
				return sorted[i-1], sorted[i], true
			}
		}
	}
	return Mapping{}, Mapping{}, false
}

func newRow(m Mapping) row {
	a4, a6 := m.IPv4.Addr().As4(), m.IPv6.Addr().As16()
	suffix := 32 - m.IPv4.Bits()
	return row{
		base4:   binary.BigEndian.Uint32(a4[:]),
		base6:   toBits(&a6),
		suffix4: suffix,
		shift:   128 - m.IPv6.Bits() - suffix,
	}
}

// To6 maps an IPv4 address (RFC 7757 section 3.3.1).
func (t *Table) To6(a netip.Addr) (netip.Addr, bool) {
	out, ok := t.to6(a.As4())
	return netip.AddrFrom16(out), ok
}

// To4 maps an IPv6 address (RFC 7757 section 3.3.2).
func (t *Table) To4(a netip.Addr) (netip.Addr, bool) {
	raw := a.As16()
	out, ok := t.to4(&raw)
	return netip.AddrFrom4(out), ok
}

// Overlaps reports whether a mapping has an IPv6 address of p.
func (t *Table) Overlaps(p netip.Prefix) bool {
	return slices.ContainsFunc(t.rows, func(r row) bool {
		return netip.PrefixFrom(netip.AddrFrom16(r.base6.bytes()), 128-r.shift-r.suffix4).Overlaps(p)
	})
}

func (t *Table) to6(a [4]byte) (out [16]byte, ok bool) {
	addr := binary.BigEndian.Uint32(a[:])
	r := t.find4(addr)
	if r == nil {
		return out, false
	}
	suffix := uint64(addr) & (1<<r.suffix4 - 1)
	return r.base6.or(bits128{lo: suffix}.left(r.shift)).bytes(), true
}

func (t *Table) to4(a *[16]byte) (out [4]byte, ok bool) {
	addr := toBits(a)
	r := t.find6(addr)
	if r == nil {
		return out, false
	}
	suffix := addr.right(r.shift).lo & (1<<r.suffix4 - 1)
	binary.BigEndian.PutUint32(out[:], r.base4|uint32(suffix))
	return out, true
}

// find4 returns the row with the longest IPv4 prefix of addr, or nil.
func (t *Table) find4(addr uint32) *row {
	for _, n := range t.lengths4 {
		if i, ok := t.by4[key4{n, addr &^ (1<<(32-n) - 1)}]; ok {
			return &t.rows[i]
		}
	}
	return nil
}

// find6 returns the row with the longest IPv6 prefix of addr, or nil.
func (t *Table) find6(addr bits128) *row {
	for _, n := range t.lengths6 {
		if i, ok := t.by6[key6{n, addr.right(128 - n).left(128 - n)}]; ok {
			return &t.rows[i]
		}
	}
	return nil
}

// bits128 is an IPv6 address as a number.
type bits128 struct{ hi, lo uint64 }

func toBits(a *[16]byte) bits128 {
	return bits128{binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])}
}

func (b bits128) bytes() (a [16]byte) {
	binary.BigEndian.PutUint64(a[:8], b.hi)
	binary.BigEndian.PutUint64(a[8:], b.lo)
	return a
}

func (b bits128) or(c bits128) bits128 { return bits128{b.hi | c.hi, b.lo | c.lo} }

// left and right shift by n of 0 to 128; Go's shifts give zero for n of 64 and more.
func (b bits128) left(n int) bits128 {
	if n >= 64 {
		return bits128{b.lo << (n - 64), 0}
	}
	return bits128{b.hi<<n | b.lo>>(64-n), b.lo << n}
}

func (b bits128) right(n int) bits128 {
	if n >= 64 {
		return bits128{0, b.hi >> (n - 64)}
	}
	return bits128{b.hi >> n, b.lo>>n | b.hi<<(64-n)}
}
