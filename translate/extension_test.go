// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
)

// mplsObject is an extension with one object of n octets, which holds an IPv4 address
// that no one translates.
func mplsObject(n int) []byte {
	b := append([]byte{0x20, 0, 0, 0, byte(n >> 8), byte(n), 1, 1, 192, 0, 2, 33}, data(n)...)[:4+n]
	binary.BigEndian.PutUint16(b[2:], ^sumWords(b))
	return b
}

func pad(b []byte, n int) []byte { return append(slices.Clone(b), make([]byte, n-len(b))...) }

// TestExtensionTo6 carries extensions over (RFC 7915 section 4.2, RFC 4884).
func TestExtensionTo6(t *testing.T) {
	small4, small6 := quoted4(), quoted6() // 32 and 52 octets
	large4 := v4{src: node4, dst: host4, payload: udp(1000)}.bytes()
	large6 := v6{src: node6, dst: host6, hop: 64, payload: udp(1000)}.bytes()
	ext := mplsObject(12)
	tests := []struct {
		name      string
		in, want  []byte
		typ, code byte
		word      uint32
	}{
		{"padded to 128, unit 4 becomes unit 8",
			icmp(11, 0, 32<<16, pad(small4, 128), ext), icmp(3, 0, 16<<24, pad(small6, 128), ext), 0, 0, 0},
		{"unreachable", icmp(3, 1, 32<<16, pad(small4, 128), ext), icmp(1, 0, 16<<24, pad(small6, 128), ext), 0, 0, 0},
		{"longer quote grows, multiple of 8", icmp(11, 1, 37<<16, large4[:148], ext),
			icmp(3, 1, 21<<24, large6[:168], ext), 0, 0, 0},
		{"padded to a multiple of 8", icmp(11, 1, 36<<16, large4[:144], ext),
			icmp(3, 1, 21<<24, pad(large6[:164], 168), ext), 0, 0, 0},
		{"shorter than RFC 4884 allows, padded", icmp(11, 0, 8<<16, small4, ext), icmp(3, 0, 16<<24, pad(small6, 128), ext), 0, 0, 0},
		{"length, but no extension", icmp(11, 0, 32<<16, pad(small4, 128)), icmp(3, 0, 0, pad(small6, 148)), 0, 0, 0},
		{"no length, no extension", icmp(11, 0, 0, pad(small4, 128), ext), icmp(3, 0, 0, small6, make([]byte, 96), ext), 0, 0, 0},
		{"none in Packet Too Big", icmp(3, 4, 32<<16|1400, pad(small4, 128), ext), icmp(2, 0, 1420, small6), 0, 0, 0},
		{"none in Parameter Problem", icmp(12, 0, 12<<24|32<<16, pad(small4, 128), ext), icmp(4, 0, 8, small6), 0, 0, 0},
		{"none for protocol unreachable", icmp(3, 2, 32<<16, pad(small4, 128), ext), icmp(4, 1, 6, small6), 0, 0, 0},
		{"quote cut to make room", icmp(11, 0, 250<<16, large4[:1000], mplsObject(400)),
			icmp(3, 0, (1280-48-404)/8<<24, large6[:(1280-48-404)/8*8], mplsObject(400)), 0, 0, 0},
		{"extension itself cut", icmp(11, 0, 32<<16, large4[:128], mplsObject(1300)),
			icmp(3, 0, 16<<24, large6[:128], mplsObject(1300)[:1280-48-128]), 0, 0, 0},
	}
	tr := translator(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantPackets(t, tr, testPath, v4{src: router4, proto: 1, payload: tt.in}.bytes(),
				v6{src: router6, proto: 58, payload: tt.want}.bytes())
		})
	}
	wantDrop(t, tr, testPath, v4{src: router4, proto: 1, payload: icmp(11, 0, 33<<16, pad(small4, 128))}.bytes(), ReasonICMPExtension)
}

// TestExtensionTo4 is the way back (RFC 7915 section 5.2).
func TestExtensionTo4(t *testing.T) {
	small4, small6 := back4(), back6()
	large4 := v4{id: 0x1234, payload: udp(1000)}.bytes()
	large6 := v6{hop: 64, payload: udp(1000)}.bytes()
	ext := mplsObject(12)
	tests := []struct {
		name     string
		in, want []byte
	}{
		{"padded to 128, unit 8 becomes unit 4", icmp(3, 0, 16<<24, pad(small6, 128), ext), icmp(11, 0, 32<<16, pad(small4, 128), ext)},
		{"unreachable", icmp(1, 4, 16<<24, pad(small6, 128), ext), icmp(3, 3, 32<<16, pad(small4, 128), ext)},
		{"longer quote shrinks", icmp(3, 1, 25<<24, large6[:200], ext), icmp(11, 1, 45<<16, large4[:180], ext)},
		{"shrinks below 128, padded", icmp(3, 1, 17<<24, large6[:136], ext), icmp(11, 1, 32<<16, pad(large4[:116], 128), ext)},
		{"length, but no extension", icmp(3, 0, 16<<24, pad(small6, 128)), icmp(11, 0, 0, pad(small4, 108))},
		{"MTU is no length", icmp(2, 0, 0x10000000|1420, small6), icmp(3, 4, 65535, small4)},
		{"pointer is no length", icmp(4, 0, 8, small6), icmp(12, 0, 12<<24, small4)},
		{"quote cut to make room", icmp(3, 0, 100<<24, large6[:800], mplsObject(100)),
			icmp(11, 0, (576-28-104)/4<<16, large4[:576-28-104], mplsObject(100))},
		{"extension itself cut", icmp(3, 0, 16<<24, large6[:128], mplsObject(500)),
			icmp(11, 0, 32<<16, pad(large4[:108], 128), mplsObject(500)[:576-28-128])},
	}
	tr := translator(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantPackets(t, tr, testPath, v6{src: node6, dst: host6, hop: 64, proto: 58, payload: tt.in}.bytes(),
				v4{src: node4, dst: host4, id: 0x1234, ttl: 63, proto: 1, payload: tt.want}.bytes())
		})
	}
	wantDrop(t, tr, testPath, v6{src: node6, dst: host6, proto: 58, payload: icmp(1, 0, 17<<24, pad(small6, 128))}.bytes(), ReasonICMPExtension)
}

// strange is a router whose address has no IPv4 form.
const strange = "2001:db8:ffff::1234"

// objectOf is an Interface Information Object with an address (RFC 5837).
func objectOf(address string) []byte {
	a := netip.MustParseAddr(address).As16()
	return append([]byte{0, 24, 2, 4, 0, 2, 0, 0}, a[:]...)
}

// extended signs an extension with these objects.
func extended(objects ...[]byte) []byte {
	b := append([]byte{0x20, 0, 0, 0}, slices.Concat(objects...)...)
	binary.BigEndian.PutUint16(b[2:], ^sumWords(b))
	return b
}

// TestInterfaceObject adds the IPv6 source that a pool address stands for (RFC 6791
// section 4, RFC 5837).
func TestInterfaceObject(t *testing.T) {
	small4, small6 := pad(back4(), 128), pad(back6(), 128)
	mpls := mplsObject(12)[4:]
	unsigned := extended(mpls)
	unsigned[2], unsigned[3] = 0, 0
	both := slices.Concat(unsigned, objectOf(strange))
	broken := extended(mpls)
	broken[3] ^= 1
	tests := []struct {
		name     string
		in, want []byte
	}{
		{"time exceeded without extension", icmp(3, 0, 0, back6()), icmp(11, 0, 32<<16, small4, extended(objectOf(strange)))},
		{"unreachable without extension", icmp(1, 0, 0, back6()), icmp(3, 1, 32<<16, small4, extended(objectOf(strange)))},
		{"fragmentation needed keeps its MTU", icmp(2, 0, 1420, back6()), icmp(3, 4, 32<<16|1400, small4, extended(objectOf(strange)))},
		{"parameter problem keeps its pointer", icmp(4, 0, 8, back6()), icmp(12, 0, 12<<24|32<<16, small4, extended(objectOf(strange)))},
		{"behind another object", icmp(3, 0, 16<<24, small6, extended(mpls)), icmp(11, 0, 32<<16, small4, extended(mpls, objectOf(strange)))},
		{"extension without a checksum stays so", icmp(3, 0, 16<<24, small6, unsigned), icmp(11, 0, 32<<16, small4, both)},
		{"incoming interface named already", icmp(3, 0, 16<<24, small6, extended(objectOf("2001:db8::7"))),
			icmp(11, 0, 32<<16, small4, extended(objectOf("2001:db8::7")))},
		{"broken extension left alone", icmp(3, 0, 16<<24, small6, broken), icmp(11, 0, 32<<16, small4, broken)},
		{"extension of another version left alone", icmp(3, 0, 16<<24, small6, data(8)), icmp(11, 0, 32<<16, small4, data(8))},
		{"object of no length left alone", icmp(3, 0, 16<<24, small6, extended([]byte{0, 0, 1, 1})), icmp(11, 0, 32<<16, small4, extended([]byte{0, 0, 1, 1}))},
		{"object longer than the extension left alone", icmp(3, 0, 16<<24, small6, extended([]byte{0, 12, 1, 1})), icmp(11, 0, 32<<16, small4, extended([]byte{0, 12, 1, 1}))},
		{"object of an odd length left alone", icmp(3, 0, 16<<24, small6, extended([]byte{0, 6, 1, 1, 0, 0, 0, 8, 1, 1, 0, 0})), icmp(11, 0, 32<<16, small4, extended([]byte{0, 6, 1, 1, 0, 0, 0, 8, 1, 1, 0, 0}))},
		{"object cut left alone", icmp(3, 0, 16<<24, small6, extended(mpls, []byte{0, 9})), icmp(11, 0, 32<<16, small4, extended(mpls, []byte{0, 9}))},
	}
	tr := translator(t, func(s *Settings) {
		s.Pool4 = []netip.Prefix{netip.MustParsePrefix("198.51.100.200/32")}
		s.InterfaceObject = true
	})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantPackets(t, tr, testPath, v6{src: strange, dst: host6, hop: 64, proto: 58, payload: tt.in}.bytes(),
				v4{src: "198.51.100.200", dst: host4, id: 0x1234, ttl: 63, proto: 1, payload: tt.want}.bytes())
		})
	}
	t.Run("no object where the source has a form", func(t *testing.T) {
		wantPackets(t, tr, testPath, v6{src: node6, dst: host6, hop: 64, proto: 58, payload: icmp(3, 0, 0, back6())}.bytes(),
			v4{src: node4, dst: host4, id: 0x1234, ttl: 63, proto: 1, payload: icmp(11, 0, 0, back4())}.bytes())
	})
}
