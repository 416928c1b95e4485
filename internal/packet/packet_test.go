// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"testing"
)

var (
	hostA = netip.MustParseAddr("2001:db8::a")
	hostB = netip.MustParseAddr("2001:db8::b")
)

// sumByWords is RFC 1071's definition, one 16-bit word at a time.
func sumByWords(b []byte) uint16 {
	var acc uint32
	for i, x := range b {
		if i%2 == 0 {
			acc += uint32(x) << 8
		} else {
			acc += uint32(x)
		}
		acc = acc>>16 + acc&0xffff
	}
	return uint16(acc)
}

func TestSumEqualsDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		b := make([]byte, n)
		for i := range b {
			// Many 0xff bytes: carries are where sums go wrong.
			b[i] = byte(max(0, rng.IntN(512)-256) | rng.IntN(2)*0xff)
		}
		got, want := Fold(Sum(0, b)), sumByWords(b)
		if got%0xffff != want%0xffff { // 0 and 0xffff are one value in one's complement
			t.Fatalf("Sum of %x = %#04x, want %#04x", b, got, want)
		}
	}
	allOnes := bytes.Repeat([]byte{0xff}, 1280)
	if got := Fold(Sum(^uint64(0), allOnes)); got != 0xffff {
		t.Errorf("sum of ones = %#04x, want 0xffff", got)
	}
}

// An echo request; its checksum 0x1418 was worked out apart from this code.
const goldenEcho = "6000000000103a4020010db800000000000000000000000a20010db800000000000000000000000b" +
	"8000141800010001" + "0102030405060708"

func TestICMPv6(t *testing.T) {
	want, err := hex.DecodeString(goldenEcho)
	if err != nil {
		t.Fatal(err)
	}
	got := AppendICMPv6(nil, hostA, hostB, 64, ICMPv6EchoRequest, 0, []byte{0, 1, 0, 1}, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	if !bytes.Equal(got, want) {
		t.Errorf("AppendICMPv6 =\n%x, want\n%x", got, want)
	}
	if _, ok := IPv6(got).ICMPv6(); !ok {
		t.Error("own message refused")
	}
	got[len(got)-1] ^= 1
	if _, ok := IPv6(got).ICMPv6(); ok {
		t.Error("damaged message accepted")
	}
}

func TestParseIPv6(t *testing.T) {
	p := AppendIPv6Header(nil, ProtoUDP, 7, 3, hostA, hostB)
	p = append(p, 1, 2, 3, 9)
	tests := []struct {
		name          string
		in            []byte
		size, restLen int
		ok            bool
	}{
		{"bytes behind the packet", p, 43, 1, true},
		{"exact", p[:43], 43, 0, true},
		{"one byte short", p[:42], 0, 0, false},
		{"header alone", p[:40], 0, 0, false},
		{"half a header", p[:39], 0, 0, false},
		{"empty", nil, 0, 0, false},
		{"version 4", append([]byte{0x45}, p[1:]...), 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, rest, ok := ParseIPv6(tt.in)
			if ok != tt.ok || len(got) != tt.size || len(rest) != tt.restLen {
				t.Errorf("ParseIPv6 = %d bytes, rest %d, %v", len(got), len(rest), ok)
			}
		})
	}
	view, _, _ := ParseIPv6(p)
	if view.Src() != hostA || view.Dst() != hostB || view.HopLimit() != 7 || view.NextHeader() != ProtoUDP {
		t.Errorf("view of %x is wrong", p)
	}
}

func TestUpperLayer(t *testing.T) {
	build := func(next byte, payload ...byte) IPv6 {
		return append(AppendIPv6Header(nil, next, 64, len(payload), hostA, hostB), payload...)
	}
	tests := []struct {
		name  string
		p     IPv6
		proto byte
		off   int
		ok    bool
	}{
		{"UDP at once", build(ProtoUDP, 0, 1, 0, 2, 0, 8, 0, 0), ProtoUDP, 40, true},
		{"no payload", build(ProtoNone), ProtoNone, 40, true},
		{"hop-by-hop, then ICMPv6", build(ProtoHopByHop, ProtoICMPv6, 0, 0, 0, 0, 0, 0, 0, 128), ProtoICMPv6, 48, true},
		{"first fragment", build(ProtoFragment, ProtoTCP, 0, 0, 1, 0, 0, 0, 9), ProtoTCP, 48, true},
		{"later fragment", build(ProtoFragment, ProtoTCP, 0, 0, 8, 0, 0, 0, 9), ProtoFragment, 40, true},
		{"extension header cut short", build(ProtoRouting, ProtoTCP, 0), 0, 0, false},
		{"extension header that only begins", build(ProtoHopByHop, ProtoTCP), 0, 0, false},
		{"extension header that is missing", build(ProtoDestOpts), 0, 0, false},
		{"Fragment Header cut short", build(ProtoFragment, ProtoTCP, 0, 0, 8, 0, 0, 0), 0, 0, false},
		{"Fragment Header that is missing", build(ProtoFragment), 0, 0, false},
		{"extension header longer than the packet", build(ProtoDestOpts, ProtoTCP, 1, 0, 0, 0, 0, 0, 0), 0, 0, false},
		{"endless chain", build(ProtoDestOpts, bytes.Repeat([]byte{ProtoDestOpts, 0, 0, 0, 0, 0, 0, 0}, 20)...), 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			proto, off, ok := tt.p.UpperLayer()
			if proto != tt.proto || off != tt.off || ok != tt.ok {
				t.Errorf("UpperLayer = %d, %d, %v, want %d, %d, %v", proto, off, ok, tt.proto, tt.off, tt.ok)
			}
		})
	}
}

func TestIsNeighborDiscovery(t *testing.T) {
	message := func(typ byte) IPv6 { return AppendICMPv6(nil, hostA, hostB, 255, typ, 0, make([]byte, 20)) }
	behindOptions := append(AppendIPv6Header(nil, ProtoDestOpts, 255, 16, hostA, hostB),
		ProtoICMPv6, 0, 1, 4, 0, 0, 0, 0, 135, 0, 0, 0, 0, 0, 0, 0)
	tests := []struct {
		name string
		p    IPv6
		want bool
	}{
		{"router solicitation", message(133), true},
		{"neighbor solicitation", message(135), true},
		{"redirect", message(137), true},
		{"echo request", message(128), false},
		{"behind extension headers", behindOptions, true},
		{"ICMPv6 without a type", AppendIPv6Header(nil, ProtoICMPv6, 255, 0, hostA, hostB), false},
		{"UDP", AppendIPv6Header(nil, ProtoUDP, 255, 0, hostA, hostB), false},
		{"UDP from a port that begins as Neighbor Discovery does", append(AppendIPv6Header(nil, ProtoUDP, 255, 8, hostA, hostB), 135, 0, 0, 53, 0, 8, 0, 0), false},
		{"router renumbering", message(138), false},
		{"extension header cut short", append(AppendIPv6Header(nil, ProtoDestOpts, 255, 2, hostA, hostB), ProtoICMPv6, 0), false},
	}
	for _, tt := range tests {
		if got := tt.p.IsNeighborDiscovery(); got != tt.want {
			t.Errorf("%s: IsNeighborDiscovery = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestICMPv6Error(t *testing.T) {
	router := netip.MustParseAddr("2001:db8::1")
	udp := func(src, dst string, n int) IPv6 {
		b := AppendIPv6Header(nil, ProtoUDP, 64, n, netip.MustParseAddr(src), netip.MustParseAddr(dst))
		return append(b, make([]byte, n)...)
	}
	tests := []struct {
		name  string
		cause IPv6
		size  int // of the error; 0 when none may be sent
	}{
		{"small packet is quoted whole", udp("2001:db8::a", "2001:db8::b", 100), 40 + 8 + 140},
		{"large packet is cut to 1280 bytes in all", udp("2001:db8::a", "2001:db8::b", 1400), 1280},
		{"echo request", AppendICMPv6(nil, hostA, hostB, 64, ICMPv6EchoRequest, 0, make([]byte, 4)), 40 + 8 + 48},
		{"ICMPv6 error", AppendICMPv6(nil, hostA, hostB, 64, ICMPv6TimeExceeded, 0, make([]byte, 4)), 0},
		{"redirect", AppendICMPv6(nil, hostA, hostB, 64, ICMPv6Redirect, 0, make([]byte, 36)), 0},
		{"ICMPv6 without a type", AppendIPv6Header(nil, ProtoICMPv6, 64, 0, hostA, hostB), 0},
		{"from nobody", udp("::", "2001:db8::b", 8), 0},
		{"from loopback", udp("::1", "2001:db8::b", 8), 0},
		{"of headers cut short", append(AppendIPv6Header(nil, ProtoDestOpts, 64, 2, hostA, hostB), ProtoUDP, 0), 0},
		{"from a group", udp("ff02::1", "2001:db8::b", 8), 0},
		{"to a group", udp("2001:db8::a", "ff02::1", 8), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := AppendICMPv6Error(nil, router, ICMPv6Unreachable, UnreachableAddress, 0x01020304, tt.cause)
			if len(got) != tt.size {
				t.Fatalf("%d bytes, want %d", len(got), tt.size)
			}
			if tt.size == 0 {
				return
			}
			p, rest, ok := ParseIPv6(got)
			if !ok || len(rest) != 0 || p.Src() != router || p.Dst() != tt.cause.Src() {
				t.Fatalf("wrong header: %x", got)
			}
			m, ok := p.ICMPv6()
			if !ok || m[0] != ICMPv6Unreachable || m[1] != UnreachableAddress ||
				!bytes.Equal(m[4:8], []byte{1, 2, 3, 4}) || !bytes.HasPrefix(tt.cause, m[8:]) {
				t.Errorf("wrong message: %x", m)
			}
		})
	}
}

func TestBatchKeepsSlicesUntilReset(t *testing.T) {
	var b Batch
	var want [][]byte
	for i := range 100 {
		p := bytes.Repeat([]byte{byte(i)}, 1000)
		want = append(want, p)
		b.SendIP(b.Copy(p))
	}
	for i, p := range b.IP {
		if !bytes.Equal(p, want[i]) {
			t.Fatalf("packet %d was overwritten", i)
		}
	}
	if a, c := b.Alloc(8), b.Alloc(8); cap(a) != 8 || cap(c) != 8 {
		t.Errorf("capacities %d and %d: neighbours could overwrite each other", cap(a), cap(c))
	}
	if n := testing.AllocsPerRun(100, func() {
		b.Reset()
		for range 40 {
			b.SendIP(b.Copy(want[0]))
			b.SendUDP(0, netip.AddrPort{}, b.Alloc(40))
		}
	}); n != 0 {
		t.Errorf("%v allocations in a grown batch, want 0", n)
	}
}

func BenchmarkChecksum1280(b *testing.B) {
	p := make([]byte, 1240)
	var s, d [16]byte
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		Checksum(&s, &d, ProtoUDP, p)
	}
}
