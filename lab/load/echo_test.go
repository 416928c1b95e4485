// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package load

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Whatever number an echo request gets, its checksum must stay right: hosts answer
// no other.
func TestEchoChecksumHoldsForAllNumbers(t *testing.T) {
	here4, there4 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for _, size := range []int{1, MinEcho, 512, 1440} {
		f6, f4 := Echo(mac1, mac2, here, there, size), Echo(mac1, mac2, here4, there4, size)
		if want := etherLen + max(size, MinEcho); len(f6) != want || len(f4) != want-20 {
			t.Errorf("frames of %d and %d bytes, want %d and 20 less", len(f6), len(f4), want)
		}
		for _, n := range []uint64{0, 1, 0xfffe, 0xffff, 0x12345} {
			for _, f := range [][]byte{f6, f4} {
				if err := Number(f, echoNumber(n)); err != nil {
					t.Fatal(err)
				}
			}
			p := packet.IPv6(f6[etherLen:])
			if packet.Checksum(p.SrcBytes(), p.DstBytes(), packet.ProtoICMPv6, p.Payload()) != 0 {
				t.Errorf("%d bytes, number %#x: wrong ICMPv6 checksum", size, n)
			}
			if packet.Fold(packet.Sum(0, f4[etherLen+20:])) != 0xffff {
				t.Errorf("%d bytes, number %#x: wrong ICMP checksum", size, n)
			}
		}
	}
}
