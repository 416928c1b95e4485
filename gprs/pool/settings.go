// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Bounds of a pool: a search looks at each span of numbers once at the most, and
// counters of numbers have 64 bits.
const (
	maxSpans = 1024
	maxSize  = 1 << 48
)

// Settings say what a pool leases.
type Settings struct {
	// Ranges hold the leases, each of which lies in one of them as a whole. They are of one
	// family and do not overlap.
	Ranges []Range
	// Length is that of the prefixes leased: 32 of IPv4, and of IPv6 64 for links, or less.
	Length int
	// Except are never leased: the gateway's own addresses, and what other pools have.
	Except []netip.Prefix
	// Parts have names, by which alone they are given; they do not overlap.
	Parts []Part
	// Hold is how long a lease that was freed is kept from others.
	Hold time.Duration
}

var (
	errNothing = errors.New("the pool has no addresses")
	errMany    = fmt.Errorf("the pool has more than %d ranges and exceptions, or more than 2^48 leases", maxSpans)
)

// form is which number a lease has: the bits of its prefix.
type form struct {
	four   bool
	length int
}

// span are the numbers from first to last.
type span struct{ first, last uint64 }

func (s Settings) form() (form, error) {
	if len(s.Ranges) == 0 {
		return form{}, errNothing
	}
	f := form{four: s.Ranges[0].First.Is4(), length: s.Length}
	if f.four && f.length != 32 || !f.four && (f.length < 1 || f.length > 64) {
		return f, fmt.Errorf("leases have a prefix length of %d; it is 32 for IPv4 and 1 to 64 for IPv6", f.length)
	}
	return f, nil
}

// Check returns why there can be no pool of the settings.
func (s Settings) Check() error {
	f, err := s.form()
	if err != nil {
		return err
	}
	spans, err := s.spans(f)
	if err != nil {
		return err
	}
	_, err = s.parts(f, spans)
	return err
}

// number returns that of the prefix in which an address is, and whether the address is
// the first or the last of it.
func (f form) number(a netip.Addr) (n uint64, first, last bool) {
	if f.four {
		raw := a.As4()
		return uint64(binary.BigEndian.Uint32(raw[:])), true, true
	}
	raw := a.As16()
	high, low := binary.BigEndian.Uint64(raw[:]), binary.BigEndian.Uint64(raw[8:])
	behind := uint64(1)<<(64-f.length) - 1
	return high >> (64 - f.length), high&behind == 0 && low == 0, high&behind == behind && low == ^uint64(0)
}

// lease returns the prefix of a number.
func (f form) lease(n uint64) netip.Prefix {
	if f.four {
		var raw [4]byte
		binary.BigEndian.PutUint32(raw[:], uint32(n))
		return netip.PrefixFrom(netip.AddrFrom4(raw), 32)
	}
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], n<<(64-f.length))
	return netip.PrefixFrom(netip.AddrFrom16(raw), f.length)
}

// find returns the number of a lease; ok is false for what has none.
func (f form) find(lease netip.Prefix) (n uint64, ok bool) {
	if !lease.IsValid() || lease.Addr().Is4() != f.four || lease.Bits() != f.length {
		return 0, false
	}
	n, first, _ := f.number(lease.Addr())
	return n, first
}

// spans returns the numbers of all leases, in ascending order.
func (s Settings) spans(f form) ([]span, error) {
	var list []span
	for _, r := range s.Ranges {
		if !r.ordered() || r.First.Is4() != f.four {
			return nil, fmt.Errorf("the range %v is none, or of another family than the first", r)
		}
		one, ok := f.within(r)
		if !ok {
			return nil, fmt.Errorf("the range %v holds no whole /%d", r, f.length)
		}
		list = append(list, one)
	}
	ordered(list)
	for i := 1; i < len(list); i++ {
		if list[i].first <= list[i-1].last {
			return nil, fmt.Errorf("%v is in two ranges of the pool", f.lease(list[i].first))
		}
	}
	for _, p := range s.Except {
		if p.Addr().Is4() == f.four && p.IsValid() {
			list = without(list, f.touched(p))
		}
		if len(list) > maxSpans {
			return nil, errMany
		}
	}
	size := uint64(0)
	for _, one := range list {
		if size += one.last - one.first + 1; one.last-one.first >= maxSize || size > maxSize {
			return nil, errMany
		}
	}
	if len(list) == 0 {
		return nil, errNothing
	}
	return list, nil
}

// ordered puts spans in their order.
func ordered(list []span) []span {
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	return list
}

// within are the leases that lie in a range as a whole.
func (f form) within(r Range) (span, bool) {
	first, whole, _ := f.number(r.First)
	last, _, wholeLast := f.number(r.Last)
	if !whole {
		first++
	}
	if !wholeLast {
		last--
	}
	// Of numbers that went beyond an end, first is above last or the size is too large.
	return span{first, last}, first <= last
}

// touched are the leases that have an address of a prefix.
func (f form) touched(p netip.Prefix) span {
	first, _, _ := f.number(p.Masked().Addr())
	bits := max(0, f.length-p.Bits())
	return span{first, first + uint64(1)<<bits - 1}
}

// without returns the list without the numbers of gap.
func without(list []span, gap span) (left []span) {
	for _, s := range list {
		if gap.last < s.first || s.last < gap.first {
			left = append(left, s)
			continue
		}
		if s.first < gap.first {
			left = append(left, span{s.first, gap.first - 1})
		}
		if gap.last < s.last {
			left = append(left, span{gap.last + 1, s.last})
		}
	}
	return left
}
