// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/netattr"
)

// slots4 is the number of /16s, each of which may have a class.
const slots4 = 1 << 16

// range4 is a range of /16s, both ends included.
type range4 struct{ first, last uint16 }

// everything4 is the whole IPv4 Internet.
var everything4 = range4{0, slots4 - 1}

// marks4 is a set of /16s.
type marks4 [slots4 / 64]uint64

func (m *marks4) add(r range4) {
	for i := int(r.first); i <= int(r.last); i++ {
		m[i/64] |= 1 << (i % 64)
	}
}

func (m *marks4) has(i int) bool { return m[i/64]&(1<<(i%64)) != 0 }

func (m *marks4) clear() { *m = marks4{} }

// hop4 is all of a route that decides on the answer of a look-up: routes with
// equal hops may share a class. What the kernel has learnt of the path to a single
// destination decides, too, and programs see to it that a class never has that.
type hop4 struct {
	link    uint32
	via     netip.Addr
	source  netip.Addr // the preferred one, if any
	scope   uint8
	metrics string // as the kernel writes them; the MTU is one
}

// route4 is an IPv4 route of the kernel.
type route4 struct {
	dst      uint32
	bits     uint8
	tos      uint8
	table    uint32
	priority uint32
	// single says that the route is one living path through a gateway, hop.
	single bool
	hop    hop4
}

// covers is the range of /16s that the route has to do with.
func (r *route4) covers() range4 {
	first := r.dst >> 16
	if r.bits >= 16 {
		return range4{uint16(first), uint16(first)}
	}
	return range4{uint16(first), uint16(first | 0xffff>>r.bits)}
}

// parseRoute4 reads the body of a route message.
func parseRoute4(data []byte) (route4, bool) {
	if len(data) < unix.SizeofRtMsg || data[0] != unix.AF_INET || data[1] > 32 {
		return route4{}, false
	}
	r := route4{bits: data[1], tos: data[3], table: uint32(data[4])}
	r.hop.scope = data[6]
	flags := binary.NativeEndian.Uint32(data[8:12])
	plain := data[7] == unix.RTN_UNICAST && flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN|unix.RTM_F_CLONED) == 0
	var number uint32
	for attr, value := range netattr.All(data[unix.SizeofRtMsg:]) {
		if len(value) >= 4 {
			number = binary.NativeEndian.Uint32(value)
		}
		switch attr {
		case unix.RTA_DST:
			if len(value) != 4 {
				return route4{}, false
			}
			r.dst = binary.BigEndian.Uint32(value)
		case unix.RTA_TABLE:
			r.table = number
		case unix.RTA_PRIORITY:
			r.priority = number
		case unix.RTA_OIF:
			r.hop.link = number
		case unix.RTA_GATEWAY:
			r.hop.via, _ = netip.AddrFromSlice(value)
		case unix.RTA_VIA:
			r.hop.via = parseVia(value)
		case unix.RTA_PREFSRC:
			r.hop.source, _ = netip.AddrFromSlice(value)
		case unix.RTA_METRICS:
			r.hop.metrics = string(value)
			// Its MTU is not that of the device, by which programs tell what a class may share.
			plain = plain && !locksMTU(value)
		case unix.RTA_MULTIPATH, unix.RTA_ENCAP:
			plain = false
		}
	}
	r.dst &= uint32(0xffffffff << (32 - uint(r.bits)))
	r.single = plain && r.hop.link != 0 && r.hop.via.IsValid()
	return r, true
}

// locksMTU reports whether metrics say that the MTU is the route's own, whatever paths have
// taught.
func locksMTU(metrics []byte) bool {
	for metric, value := range netattr.All(metrics) {
		if metric == unix.RTAX_LOCK && len(value) >= 4 {
			return binary.NativeEndian.Uint32(value)&(1<<unix.RTAX_MTU) != 0
		}
	}
	return false
}

// parseVia reads a gateway of another family: the family in two octets, then the
// address.
func parseVia(value []byte) netip.Addr {
	if len(value) < 2 {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(value[2:])
	return a
}

// maxShort bounds the routes of at most 16 bits that are kept while classes are
// computed; the Internet has some 14,000. Beyond it nothing gets a class.
const maxShort = 1 << 17

// routes4 gathers the routes of a dump. Of the million longer than 16 bits it
// keeps one bit for each /16, so its size does not grow with the Internet.
type routes4 struct {
	short []route4
	mixed marks4
	many  bool
}

// add takes one route of the kernel's tables. The table "default" is asked only
// where no route of the table "main" matches, and such a /16 gets no class.
func (s *routes4) add(r *route4) {
	switch {
	case r.table == unix.RT_TABLE_LOCAL, r.table == unix.RT_TABLE_MAIN && r.bits > 16:
		s.mixed.add(r.covers())
	case r.table != unix.RT_TABLE_MAIN:
	case len(s.short) == maxShort:
		s.many = true
	default:
		s.short = append(s.short, *r)
	}
}

// snapshot4 is a finished dump: for each /16 the index of its hop, plus one, or 0.
type snapshot4 struct {
	hops []hop4
	of   []uint32
	took time.Duration
	err  error
}

// finish finds the hop of each /16: that of the longest route that covers it all,
// if nothing more specific lies in it.
func (s *routes4) finish() snapshot4 {
	out := snapshot4{of: make([]uint32, slots4)}
	if s.many {
		return out
	}
	slices.SortFunc(s.short, func(a, b route4) int {
		return cmp.Or(cmp.Compare(a.bits, b.bits), cmp.Compare(a.dst, b.dst), cmp.Compare(a.priority, b.priority))
	})
	index := make(map[hop4]uint32)
	for i := 0; i < len(s.short); {
		group := sameDestination(s.short[i:])
		i += len(group)
		id := uint32(0)
		if best, ok := chosen(group); ok {
			if id, ok = index[best.hop]; !ok {
				out.hops = append(out.hops, best.hop)
				id = uint32(len(out.hops))
				index[best.hop] = id
			}
		}
		r := group[0].covers()
		for slot := int(r.first); slot <= int(r.last); slot++ {
			out.of[slot] = id
		}
	}
	for slot := range out.of {
		if s.mixed.has(slot) || !classifiable(slot) {
			out.of[slot] = 0
		}
	}
	return out
}

// classifiable leaves out what is not unicast (RFC 1122 3.2.1.3, RFC 1112): the
// kernel does not ask its routes alone about these.
func classifiable(slot int) bool {
	top := slot >> 8
	return top != 0 && top != 127 && top < 224
}

// sameDestination returns the first routes of a sorted list, all of one prefix.
func sameDestination(sorted []route4) []route4 {
	n := 1
	for n < len(sorted) && sorted[n].dst == sorted[0].dst && sorted[n].bits == sorted[0].bits {
		n++
	}
	return sorted[:n]
}

// chosen returns the one of the routes to a prefix that the kernel uses, whatever
// the packet, if there is such a one and it is a single path. The routes are
// sorted by priority.
func chosen(group []route4) (*route4, bool) {
	for i := range group {
		if group[i].tos != 0 {
			return nil, false
		}
	}
	if len(group) > 1 && group[0].priority == group[1].priority {
		return nil, false
	}
	return &group[0], group[0].single
}

// numbers4 gives hops the numbers of their classes, 1 to 255. A hop keeps its
// number as long as some /16 needs it, and a number that was given back is the
// last to be given again.
type numbers4 struct {
	of   map[hop4]byte
	last byte // the one given last
}

func (n *numbers4) reset() { n.of = make(map[hop4]byte) }

// assign returns the class of each /16. With more hops than numbers, those with
// the fewest /16s get none.
func (n *numbers4) assign(s *snapshot4) *[slots4]byte {
	use := make([]int, len(s.hops)+1)
	for _, id := range s.of {
		use[id]++
	}
	order := make([]uint32, 0, len(s.hops))
	for id := range s.hops {
		if use[id+1] > 0 {
			order = append(order, uint32(id+1))
		}
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(use[b], use[a]) })
	order = order[:min(len(order), 255)]

	next := make(map[hop4]byte, len(order))
	numberOf := make([]byte, len(s.hops)+1)
	var taken [256]bool
	for _, id := range order {
		if number := n.of[s.hops[id-1]]; number != 0 {
			numberOf[id], taken[number] = number, true
		}
	}
	for _, id := range order {
		if numberOf[id] == 0 {
			for n.last++; n.last == 0 || taken[n.last]; n.last++ {
			}
			numberOf[id], taken[n.last] = n.last, true
		}
		next[s.hops[id-1]] = numberOf[id]
	}
	n.of = next
	classes := new([slots4]byte)
	for slot, id := range s.of {
		classes[slot] = numberOf[id]
	}
	return classes
}
