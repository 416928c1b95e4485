// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func route(prefix string, via string) route4 {
	p := netip.MustParsePrefix(prefix)
	b := p.Addr().As4()
	r := route4{dst: binary.BigEndian.Uint32(b[:]), bits: uint8(p.Bits()), table: unix.RT_TABLE_MAIN}
	if via != "" {
		r.single = true
		r.hop = hop4{link: 2, via: netip.MustParseAddr(via)}
	}
	return r
}

func with(r route4, change func(*route4)) route4 {
	change(&r)
	return r
}

// classOf computes the classes of routes and returns that of an address.
func classOf(routes []route4, addr string) byte {
	var s routes4
	for i := range routes {
		s.add(&routes[i])
	}
	var n numbers4
	n.reset()
	snapshot := s.finish()
	b := netip.MustParseAddr(addr).As4()
	return n.assign(&snapshot)[binary.BigEndian.Uint16(b[:2])]
}

func TestClassOfASlash16(t *testing.T) {
	defaultRoute := route("0.0.0.0/0", "192.0.2.1")
	tests := []struct {
		name   string
		routes []route4
		addr   string
		want   byte
	}{
		{"no route", nil, "203.0.113.1", 0},
		{"default route through a gateway", []route4{defaultRoute}, "203.0.113.1", 1},
		{"default route on a link without gateway", []route4{route("0.0.0.0/0", "")}, "203.0.113.1", 0},
		{"a host route lies inside", []route4{defaultRoute, route("203.0.113.7/32", "192.0.2.2")}, "203.0.113.1", 0},
		{"a host route lies beside", []route4{defaultRoute, route("203.1.113.7/32", "192.0.2.2")}, "203.0.113.1", 1},
		{"a longer prefix covers", []route4{defaultRoute, route("203.0.0.0/8", "")}, "203.0.113.1", 0},
		{"a route of 16 bits", []route4{route("0.0.0.0/0", ""), route("203.0.0.0/16", "192.0.2.2")}, "203.0.113.1", 1},
		{"a route of 17 bits", []route4{defaultRoute, route("203.0.128.0/17", "192.0.2.1")}, "203.0.113.1", 0},
		{"the better metric has no gateway", []route4{
			with(defaultRoute, func(r *route4) { r.priority = 100 }), route("0.0.0.0/0", ""),
		}, "203.0.113.1", 0},
		{"the better metric has the gateway", []route4{
			with(route("0.0.0.0/0", ""), func(r *route4) { r.priority = 100 }), defaultRoute,
		}, "203.0.113.1", 1},
		{"two routes of one metric", []route4{defaultRoute, route("0.0.0.0/0", "192.0.2.2")}, "203.0.113.1", 0},
		{"a route for a type of service", []route4{
			defaultRoute, with(route("0.0.0.0/0", "192.0.2.2"), func(r *route4) { r.tos = 16 }),
		}, "203.0.113.1", 0},
		{"an own address inside", []route4{
			defaultRoute, with(route("203.0.113.9/32", ""), func(r *route4) { r.table = unix.RT_TABLE_LOCAL }),
		}, "203.0.113.1", 0},
		{"a route of a table that is asked last", []route4{
			defaultRoute, with(route("203.0.113.9/32", ""), func(r *route4) { r.table = unix.RT_TABLE_DEFAULT }),
		}, "203.0.113.1", 1},
		{"only the table that is asked last", []route4{
			with(defaultRoute, func(r *route4) { r.table = unix.RT_TABLE_DEFAULT }),
		}, "203.0.113.1", 0},
		{"a table that no rule leads to", []route4{
			defaultRoute, with(route("203.0.113.9/32", ""), func(r *route4) { r.table = 100 }),
		}, "203.0.113.1", 1},
		{"loopback", []route4{defaultRoute}, "127.0.0.1", 0},
		{"multicast", []route4{defaultRoute}, "224.0.0.1", 0},
		{"last unicast", []route4{defaultRoute}, "223.255.255.255", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := classOf(tt.routes, tt.addr); got != tt.want {
				t.Errorf("%s has class %d, want %d", tt.addr, got, tt.want)
			}
		})
	}
}

func TestTooManyRoutesHaveNoClass(t *testing.T) {
	var s routes4
	r := route("203.0.0.0/16", "192.0.2.1")
	for i := range maxShort + 1 {
		r.priority = uint32(i)
		s.add(&r)
	}
	for slot, id := range s.finish().of {
		if id != 0 {
			t.Fatalf("slot %d has hop %d", slot, id)
		}
	}
}

// TestClassesAreWhatLookupsSay compares with a look-up of single addresses, in
// random tables.
func TestClassesAreWhatLookupsSay(t *testing.T) {
	for seed := range uint64(60) {
		compareWithLookups(t, rand.New(rand.NewPCG(seed, 4)))
	}
}

func FuzzClasses(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) { compareWithLookups(t, rand.New(rand.NewPCG(a, b))) })
}

func compareWithLookups(t *testing.T, random *rand.Rand) {
	t.Helper()
	var s routes4
	var n numbers4
	n.reset()
	var routes []route4
	for range random.IntN(60) {
		routes = append(routes, randomRoute(random))
	}
	for i := range routes {
		s.add(&routes[i])
	}
	snapshot := s.finish()
	classes := n.assign(&snapshot)
	meaning := make(map[byte]hop4)
	for range 4000 {
		addr := randomDestination(random, routes)
		class := classes[addr>>16]
		if class == 0 {
			continue
		}
		hop, ok := lookup(routes, addr)
		if !ok {
			t.Fatalf("%08x has class %d, but no single gateway", addr, class)
		}
		if known, ok := meaning[class]; ok && known != hop {
			t.Fatalf("class %d is both %v and %v", class, known, hop)
		}
		meaning[class] = hop
	}
	for slot, id := range snapshot.of {
		if id != 0 && snapshot.hops[id-1] != mustLookup(t, routes, uint32(slot)<<16) {
			t.Fatalf("slot %04x has another hop than its first address", slot)
		}
	}
}

// randomRoute draws from few prefixes, so that routes collide and nest.
func randomRoute(random *rand.Rand) route4 {
	bits := []uint8{0, 1, 4, 7, 8, 9, 12, 15, 16, 17, 20, 24, 32}[random.IntN(13)]
	r := route4{
		dst:      random.Uint32() & 0x07070303,
		bits:     bits,
		table:    []uint32{254, 254, 254, 254, 255, 253, 77}[random.IntN(7)],
		priority: uint32(random.IntN(3)),
		single:   random.IntN(4) != 0,
		hop:      hop4{link: uint32(random.IntN(2) + 1), via: netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(3))})},
	}
	if random.IntN(20) == 0 {
		r.tos = 16
	}
	r.dst |= uint32(random.IntN(2)) << 29
	r.dst &= uint32(0xffffffff << (32 - uint(bits)))
	return r
}

// randomDestination is mostly one near a route.
func randomDestination(random *rand.Rand, routes []route4) uint32 {
	if len(routes) == 0 || random.IntN(8) == 0 {
		return random.Uint32()
	}
	r := routes[random.IntN(len(routes))]
	return r.dst ^ random.Uint32()>>random.IntN(32)
}

// lookup asks the tables as the default rules do, one address at a time. It
// returns false unless one living path through a gateway answers for every
// packet.
func lookup(routes []route4, addr uint32) (hop4, bool) {
	for _, table := range []uint32{unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, unix.RT_TABLE_DEFAULT} {
		var best []route4
		for _, r := range routes {
			if r.table != table || (addr^r.dst)&uint32(0xffffffff<<(32-uint(r.bits))) != 0 {
				continue
			}
			if len(best) > 0 && r.bits < best[0].bits {
				continue
			}
			if len(best) > 0 && r.bits > best[0].bits {
				best = best[:0]
			}
			best = append(best, r)
		}
		if len(best) == 0 {
			continue
		}
		if table != unix.RT_TABLE_MAIN {
			return hop4{}, false
		}
		winner := best[0]
		ties := 0
		for _, r := range best {
			if r.tos != 0 {
				return hop4{}, false
			}
			switch {
			case r.priority < winner.priority:
				winner, ties = r, 1
			case r.priority == winner.priority:
				ties++
			}
		}
		return winner.hop, ties == 1 && winner.single
	}
	return hop4{}, false
}

func mustLookup(t *testing.T, routes []route4, addr uint32) hop4 {
	t.Helper()
	hop, ok := lookup(routes, addr)
	if !ok {
		t.Fatalf("%08x has a class, but no single gateway", addr)
	}
	return hop
}

func TestNumbersStayWithTheirRoutes(t *testing.T) {
	var n numbers4
	n.reset()
	hop := func(i int) hop4 { return hop4{link: uint32(i), via: netip.AddrFrom4([4]byte{192, 0, 2, 1})} }
	snapshot := func(links ...int) *snapshot4 {
		s := &snapshot4{of: make([]uint32, slots4)}
		for i, link := range links {
			s.hops = append(s.hops, hop(link))
			s.of[0x0100+i] = uint32(i + 1)
		}
		return s
	}
	first := *n.assign(snapshot(1, 2, 3))
	second := *n.assign(snapshot(3, 4, 1))
	if second[0x0100] != first[0x0102] || second[0x0102] != first[0x0100] {
		t.Errorf("numbers moved: first %v, then %v", first[0x0100:0x0103], second[0x0100:0x0103])
	}
	if second[0x0101] == first[0x0101] || second[0x0101] == 0 {
		t.Errorf("new routes have number %d, which others just had", second[0x0101])
	}
	links := make([]int, 300)
	for i := range links {
		links[i] = 1000 + i
	}
	many := *n.assign(snapshot(links...))
	seen := make(map[byte]int)
	for i := range links {
		seen[many[0x0100+i]]++
	}
	if seen[0] != 45 || len(seen) != 256 {
		t.Errorf("300 routes gave %d numbers and %d without", len(seen)-1, seen[0])
	}
}

func TestRoutesCover(t *testing.T) {
	for prefix, want := range map[string]range4{
		"0.0.0.0/0":      everything4,
		"128.0.0.0/1":    {0x8000, 0xffff},
		"203.0.0.0/8":    {0xcb00, 0xcbff},
		"203.0.0.0/16":   {0xcb00, 0xcb00},
		"203.0.113.0/24": {0xcb00, 0xcb00},
	} {
		r := route(prefix, "")
		if got := r.covers(); got != want {
			t.Errorf("%s covers %v, want %v", prefix, got, want)
		}
	}
}

// BenchmarkClasses is a full table of the Internet's size.
func BenchmarkClasses(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	routes := make([]route4, 1_000_000)
	for i := range routes {
		bits := uint8(17 + random.IntN(8))
		if i%70 == 0 {
			bits = uint8(8 + random.IntN(9))
		}
		routes[i] = route(fmt.Sprintf("%d.%d.%d.0/24", 1+random.IntN(222), random.IntN(256), random.IntN(256)), "192.0.2.1")
		routes[i].bits = bits
		routes[i].dst &= uint32(0xffffffff << (32 - uint(bits)))
	}
	b.ResetTimer()
	for b.Loop() {
		var s routes4
		for i := range routes {
			s.add(&routes[i])
		}
		_ = s.finish()
	}
}
