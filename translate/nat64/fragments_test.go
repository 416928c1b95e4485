// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/translate"
)

// orders are the ways in which three fragments may come.
var orders = map[string][]int{
	"in order":         {0, 1, 2},
	"reversed":         {2, 1, 0},
	"first in between": {2, 0, 1},
	"first at the end": {1, 2, 0},
	"last before":      {0, 2, 1},
	"middle before":    {1, 0, 2},
}

// send hands fragments in by an order and returns what came out, in the order of offsets.
func (b *bench) send(fragments [][]byte, order []int) (out [][]byte) {
	b.t.Helper()
	for _, i := range order {
		out = append(out, b.raw(fragments[i])...)
	}
	slices.SortFunc(out, func(x, y []byte) int { return offsetOf(x) - offsetOf(y) })
	return out
}

func offsetOf(ip []byte) int {
	if ip[0]>>4 == 4 {
		return int(binary.BigEndian.Uint16(ip[6:])&0x1fff) * 8
	}
	if ip[6] == 44 {
		return int(binary.BigEndian.Uint16(ip[42:]) &^ 7)
	}
	return 0
}

// TestFragmentsOfUDP: fragments in any order are translated one by one (RFC 6146 section
// 3.4).
func TestFragmentsOfUDP(t *testing.T) {
	for name, order := range orders {
		t.Run("to IPv4, "+name, func(t *testing.T) {
			b := engine(t, nil)
			got := b.send(pkt{src: clientA, dst: server6, proto: udpProto, id: 0x20009, payload: udpMsg(1500, 53, 2000)}.cut(800), order)
			want := pkt{src: poolIP, dst: server4, hop: 63, proto: udpProto, id: uint32(idOf(got[0])), payload: udpMsg(srcPort(got[0]), 53, 2000)}
			b.wants(got, fragmentsOf(want, 800)...)
		})
		t.Run("to IPv6, "+name, func(t *testing.T) {
			b := engine(t, nil)
			port := b.openUDP(clientA, 1500, server6)
			got := b.send(pkt{src: server4, dst: poolIP, proto: udpProto, id: 9, payload: udpMsg(53, port, 2000)}.cut(800), order)
			want := pkt{src: server6, dst: clientA, hop: 63, proto: udpProto, id: 9, payload: udpMsg(53, 1500, 2000)}
			b.wants(got, fragmentsOf(want, 800)...)
		})
		t.Run("TCP to IPv6, "+name, func(t *testing.T) {
			b := engine(t, nil)
			port := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: tcpProto, payload: tcpMsg(1500, 80, flagSYN, 0)})))
			got := b.send(pkt{src: server4, dst: poolIP, proto: tcpProto, id: 9, payload: tcpMsg(80, port, flagACK, 2000)}.cut(800), order)
			want := pkt{src: server6, dst: clientA, hop: 63, proto: tcpProto, id: 9, payload: tcpMsg(80, 1500, flagACK, 2000)}
			b.wants(got, fragmentsOf(want, 800)...)
		})
	}
}

// TestReassembly: what needs the whole for its checksum is put together first.
func TestReassembly(t *testing.T) {
	for name, order := range orders {
		t.Run("UDP without a checksum, "+name, func(t *testing.T) {
			b := engine(t, nil)
			port := b.openUDP(clientA, 1500, server6)
			p := pkt{src: server4, dst: poolIP, proto: udpProto, id: 9, keepSum: true, payload: udpMsg(53, port, 1000)}
			got := b.send(p.cut(400), order)
			b.wants(got, pkt{src: server6, dst: clientA, hop: 63, proto: udpProto, payload: udpMsg(53, 1500, 1000)})
		})
		t.Run("query to IPv4, "+name, func(t *testing.T) {
			b := engine(t, nil)
			b.path.MTU4 = 1500
			got := b.send(pkt{src: clientA, dst: server6, proto: icmp6Proto, id: 0x50009, payload: echoMsg(128, 77, 3000)}.cut(1200), order)
			want := pkt{src: poolIP, dst: server4, hop: 63, proto: icmpProto, id: uint32(idOf(got[0])), payload: echoMsg(8, srcPort(got[0]), 3000)}
			b.wants(got, fragmentsOf(want, 1208)...) // as large as what came in, with a header 20 shorter and without 8
		})
		t.Run("query to IPv6, "+name, func(t *testing.T) {
			b := engine(t, nil)
			id := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 77, 3)})))
			got := b.send(pkt{src: server4, dst: poolIP, proto: icmpProto, id: 9, payload: echoMsg(0, id, 3000)}.cut(1200), order)
			want := pkt{src: server6, dst: clientA, hop: 63, proto: icmp6Proto, id: 9, payload: echoMsg(129, 77, 3000)}
			b.wants(got, fragmentsOf(want, 1232)...)
		})
	}
}

func udpFragments(id uint32) [][]byte {
	return pkt{src: clientA, dst: server6, proto: udpProto, id: id, payload: udpMsg(1500, 53, 2000)}.cut(800)
}

// TestFragmentsRefused: what cannot be part of a sound packet, and what would be too much.
func TestFragmentsRefused(t *testing.T) {
	t.Run("overlap ends the packet (RFC 5722)", func(t *testing.T) {
		b := engine(t, nil)
		f := udpFragments(1)
		b.one(b.raw(f[0]))
		over := pkt{src: clientA, dst: server6, proto: udpProto, id: 1, offset: 792, more: true, payload: filling(800)}
		b.refused(over, FragmentOverlap)
		b.refusedRaw(f[1], FragmentRefused)
		b.refusedRaw(f[2], FragmentRefused)
	})
	t.Run("overlap drops those that wait", func(t *testing.T) {
		b := engine(t, nil)
		f := udpFragments(1)
		b.raw(f[1])
		b.refused(pkt{src: clientA, dst: server6, proto: udpProto, id: 1, offset: 792, more: true, payload: filling(800)}, FragmentOverlap)
		if got := b.Stats().Dropped[FragmentRefused]; got != 1 {
			t.Errorf("%d dropped with it", got)
		}
		b.refusedRaw(f[0], FragmentRefused)
	})
	t.Run("a duplicate alone is dropped", func(t *testing.T) {
		b := engine(t, nil)
		f := udpFragments(1)
		b.one(b.raw(f[0]))
		b.refusedRaw(f[0], FragmentDuplicate)
		b.one(b.raw(f[1]))
	})
	t.Run("beyond the last fragment", func(t *testing.T) {
		b := engine(t, nil)
		f := udpFragments(1)
		b.one(b.raw(f[0]))
		b.one(b.raw(f[2]))
		b.refused(pkt{src: clientA, dst: server6, proto: udpProto, id: 1, offset: 2400, more: true, payload: filling(800)}, FragmentOverlap)
	})
	t.Run("a first fragment without the whole header (RFC 1858)", func(t *testing.T) {
		b := engine(t, nil)
		tiny := pkt{src: clientA, dst: server6, proto: tcpProto, id: 1, more: true, payload: tcpMsg(1500, 80, flagSYN, 0)[:16]}
		b.refused(tiny, Reason(translate.ReasonTransport))
		tiny.offset, tiny.payload = 16, filling(800)
		b.refused(tiny, FragmentRefused)
	})
	t.Run("an offset within the header (RFC 3128)", func(t *testing.T) {
		b := engine(t, nil)
		b.one(b.raw(udpFragments(1)[0]))
		b.refused(pkt{src: clientA, dst: server6, proto: udpProto, id: 1, offset: 8, more: true, payload: filling(8)}, FragmentDuplicate)
	})
	t.Run("longer than a packet can be", func(t *testing.T) {
		b := engine(t, nil)
		p := pkt{src: server4, dst: poolIP, proto: udpProto, id: 1, offset: 65512, more: false, payload: filling(16)}
		b.refused(p, FragmentTooLong)
	})
	t.Run("others follow, but not a multiple of 8", func(t *testing.T) {
		b := engine(t, nil)
		p := pkt{src: clientA, dst: server6, proto: udpProto, id: 1, offset: 8, more: true, payload: filling(9)}
		b.refused(p, Reason(translate.ReasonFragment))
	})
	t.Run("too many holes", func(t *testing.T) {
		b := engine(t, nil)
		for i := range maxSpans {
			b.in(pkt{src: clientA, dst: server6, proto: udpProto, id: 1, offset: 16 + 16*i, more: true, payload: filling(8)})
		}
		b.refused(pkt{src: clientA, dst: server6, proto: udpProto, id: 1, offset: 16 + 16*maxSpans, more: true, payload: filling(8)}, FragmentTooMany)
	})
	t.Run("an unknown protocol", func(t *testing.T) {
		b := engine(t, nil)
		p := pkt{src: clientA, dst: server6, proto: 132, id: 1, more: true, payload: filling(80)}
		b.wants(b.in(p), answer6(clientA, 1, 4, p.bytes()))
	})
	t.Run("without a binding", func(t *testing.T) {
		b := engine(t, nil)
		f := pkt{src: server4, dst: poolIP, proto: udpProto, id: 9, payload: udpMsg(53, 5000, 1000)}.cut(800)
		b.wants(b.raw(f[0]), answer4(server4, 3, 3, f[0][:548]))
		b.refusedRaw(f[1], FragmentRefused)
	})
}

func TestFragmentLimits(t *testing.T) {
	t.Run("time", func(t *testing.T) {
		b := engine(t, nil)
		f := udpFragments(1)
		b.raw(f[1])
		b.pass(1900 * time.Millisecond)
		if got := len(b.raw(f[0])); got != 2 {
			t.Fatalf("%d came out after 1.9 s, want both", got)
		}
		b.raw(udpFragments(2)[1])
		b.pass(2100 * time.Millisecond)
		if got := b.Stats().Dropped[FragmentTimeout]; got != 1 || b.Engine.Sizes().Assemblies != 0 {
			t.Errorf("%d gave up, sizes %+v", got, b.Engine.Sizes())
		}
		b.one(b.raw(udpFragments(2)[0])) // and the packet may begin again
	})
	t.Run("memory", func(t *testing.T) {
		b := engine(t, func(s *Settings) { s.Limits.FragmentMemory = 4 * chunkSize })
		b.raw(udpFragments(1)[1]) // 2 chunks
		b.raw(udpFragments(2)[1])
		b.raw(udpFragments(3)[1]) // the oldest gives way
		b.refusedRaw(udpFragments(1)[0], FragmentRefused)
		for id := uint32(2); id <= 3; id++ {
			if got := len(b.raw(udpFragments(id)[0])); got != 2 {
				t.Fatalf("%d came out", got)
			}
		}
		if got := b.Stats().Dropped[FragmentEvicted]; got != 1 || b.Stats().AssembliesEvicted != 1 {
			t.Errorf("%v dropped", b.drops())
		}
	})
	t.Run("memory of one source", func(t *testing.T) {
		b := engine(t, func(s *Settings) { s.Limits.FragmentMemorySource = 4 * chunkSize })
		for id := range uint32(3) {
			b.raw(udpFragments(id)[1])
		}
		if got := b.Stats().Dropped[FragmentsSource]; got != 1 {
			t.Errorf("%v dropped", b.drops())
		}
		large := pkt{src: clientA, dst: server6, proto: udpProto, id: 9, offset: 8, more: true, payload: filling(4 * chunkSize)}
		b.refused(large, FragmentMemory)
	})
	t.Run("packets, and those of one source", func(t *testing.T) {
		b := engine(t, func(s *Settings) { s.Limits.FragmentPackets, s.Limits.FragmentPacketsSource = 3, 2 })
		for id := range uint32(3) {
			b.raw(udpFragments(id)[1])
		}
		if got := b.Stats().Dropped[FragmentsSource]; got != 1 || b.Engine.Sizes().Assemblies != 2 {
			t.Errorf("%v dropped, sizes %+v", b.drops(), b.Engine.Sizes())
		}
		for i, src := range []string{clientB, "2001:db8:1:77::1"} {
			b.in(pkt{src: src, dst: server6, proto: udpProto, id: 1, offset: 8, more: true, payload: filling(8)})
			if got := b.Stats().Dropped[FragmentEvicted]; got != uint64(i) {
				t.Errorf("%v dropped", b.drops())
			}
		}
	})
	t.Run("none at all", func(t *testing.T) {
		b := engine(t, func(s *Settings) { s.Limits.FragmentPackets = 0 })
		b.refusedRaw(udpFragments(1)[0], FragmentsFull)
	})
	t.Run("a hole in memory never shows", func(t *testing.T) {
		b := engine(t, func(s *Settings) { s.Limits.FragmentMemory = 3 * chunkSize })
		id := srcPort(b.one(b.in(pkt{src: clientA, dst: server6, proto: icmp6Proto, payload: echoMsg(128, 77, 3)})))
		f := pkt{src: server4, dst: poolIP, proto: icmpProto, id: 9, payload: echoMsg(0, id, 2000)}.cut(800)
		b.raw(f[0])
		b.refusedRaw(f[1], FragmentMemory)
		b.refusedRaw(f[2], FragmentRefused)
	})
}

// TestReassembledOptions: headers of the first fragment are judged with the whole.
func TestReassembledOptions(t *testing.T) {
	b := engine(t, nil)
	routing := []byte{44, 0, 0, 1, 0, 0, 0, 0} // type 0, one segment left
	var last [][]byte
	for _, f := range fragmentsOf(pkt{src: clientA, dst: server6, proto: icmp6Proto, id: 1, payload: echoMsg(128, 77, 1000)}, 512) {
		f.headers, f.first = routing, 43
		last = b.in(f)
	}
	if ip := b.one(last); ip[40] != 4 || ip[47] != 43 || b.Stats().Dropped[translate.ReasonSegmentsLeft] != 1 {
		t.Errorf("came out %x; dropped %v", ip, b.drops())
	}
}

func TestCoverage(t *testing.T) {
	type piece struct {
		offset, size int
		more         bool
		want         Reason
	}
	for _, tt := range []struct {
		name     string
		pieces   []piece
		complete bool
	}{
		{"one after the other", []piece{{0, 16, true, none}, {16, 5, false, none}}, true},
		{"last before first", []piece{{16, 5, false, none}, {0, 16, true, none}}, true},
		{"a hole filled", []piece{{0, 8, true, none}, {16, 8, false, none}, {8, 8, true, none}}, true},
		{"a hole left", []piece{{0, 8, true, none}, {16, 8, false, none}}, false},
		{"no end", []piece{{0, 8, true, none}, {8, 8, true, none}}, false},
		{"overlap at the start", []piece{{8, 16, true, none}, {0, 16, true, FragmentOverlap}}, false},
		{"overlap at the end", []piece{{8, 16, true, none}, {16, 16, true, FragmentOverlap}}, false},
		{"one around another", []piece{{8, 8, true, none}, {0, 32, true, FragmentOverlap}}, false},
		{"one within another", []piece{{0, 32, true, none}, {8, 8, true, FragmentDuplicate}}, false},
		{"two different ends", []piece{{16, 8, false, none}, {32, 8, false, FragmentOverlap}}, false},
		{"an end before what is there", []piece{{16, 8, true, none}, {8, 8, false, FragmentOverlap}}, false},
		{"beyond the end", []piece{{16, 8, false, none}, {24, 8, true, FragmentOverlap}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c coverage
			for _, p := range tt.pieces {
				if got := c.add(p.offset, p.size, p.more); got != p.want {
					t.Errorf("%d to %d: %s, want %s", p.offset, p.offset+p.size, got, p.want)
				}
			}
			if got := c.complete(); got != tt.complete {
				t.Errorf("complete %t", got)
			}
		})
	}
}

func TestArena(t *testing.T) {
	a := newArena(8 * chunkSize)
	sizes := []int{0, 1, chunkSize - chunkHeader, chunkSize - chunkHeader + 1, 3*chunkSize - chunkHeader}
	for range 3 {
		var c chain
		for _, n := range sizes {
			a.put(&c, filling(n))
		}
		if c.packets != len(sizes) || c.chunks != 8 || a.unused != 0 {
			t.Errorf("chain %+v, %d unused", c, a.unused)
		}
		at := c.first
		for _, n := range sizes {
			var got []byte
			if got, at = a.appendTo(nil, at); !slices.Equal(got, filling(n)) {
				t.Errorf("%d octets came back as %d", n, len(got))
			}
		}
		if at != noChunk {
			t.Error("the chain goes on behind its last packet")
		}
		if a.release(&c); a.unused != 8 || c != (chain{}) {
			t.Errorf("%d unused, chain %+v", a.unused, c)
		}
	}
}
