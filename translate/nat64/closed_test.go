// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
)

// TestClosed: no client reaches an address of the gateway itself, in whatever form, and is
// told so; what pool4 has of them is bound as ever.
func TestClosed(t *testing.T) {
	shut := []netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.255/32"),
		netip.MustParsePrefix("198.51.100.64/28"), netip.MustParsePrefix("198.51.100.70/32"), netip.MustParsePrefix(poolIP + "/32"),
	}
	gateway := func() *bench {
		b := engine(t, detoured)
		b.SetClosed(shut)
		return b
	}
	dst := func(a string) string { return "2001:db8:64::" + a }
	sum := udpMsg(1500, 53, 64)
	for _, tt := range []struct {
		name string
		in   pkt
	}{
		{"a datagram", pkt{src: clientA, dst: dst("192.0.2.1"), proto: udpProto, payload: udpMsg(1500, 53, 4)}},
		{"a connection", pkt{src: clientA, dst: dst("192.0.2.1"), proto: tcpProto, payload: tcpMsg(1500, 22, flagSYN, 0)}},
		{"an FTP connection", pkt{src: clientA, dst: dst("192.0.2.1"), proto: tcpProto, payload: tcpMsg(1500, 21, flagSYN, 0)}},
		{"a ping", pkt{src: clientA, dst: dst("192.0.2.1"), proto: icmp6Proto, payload: echoMsg(128, 1, 4)}},
		{"the broadcast address", pkt{src: clientA, dst: dst("192.0.2.255"), proto: udpProto, payload: udpMsg(1500, 53, 4)}},
		{"the first of a local route", pkt{src: clientA, dst: dst("198.51.100.64"), proto: udpProto, payload: udpMsg(1500, 53, 4)}},
		{"one within it that is named twice", pkt{src: clientA, dst: dst("198.51.100.70"), proto: udpProto, payload: udpMsg(1500, 53, 4)}},
		{"the last", pkt{src: clientA, dst: dst("198.51.100.79"), proto: udpProto, payload: udpMsg(1500, 53, 4)}},
		{"a first fragment", pkt{src: clientA, dst: dst("192.0.2.1"), proto: udpProto, frag: true, more: true, id: 7, payload: sum[:16]}},
		{"a later fragment", pkt{src: clientA, dst: dst("192.0.2.1"), proto: udpProto, frag: true, offset: 16, id: 7, payload: sum[16:]}},
	} {
		b := gateway()
		got := b.one(b.in(tt.in))
		if p := packet.IPv6(got); p.NextHeader() != packet.ProtoICMPv6 || p.Payload()[0] != packet.ICMPv6Unreachable || p.Payload()[1] != codeProhibited6 {
			t.Errorf("%s: %x", tt.name, got)
		}
		if b.stats.Dropped[OwnAddress] != 1 || b.Sizes().Sessions != 0 {
			t.Errorf("%s: dropped %v, sessions %d", tt.name, b.drops(), b.Sizes().Sessions)
		}
	}

	b := gateway()
	b.refused(pkt{src: "2001:db8:f::1", dst: dst("192.0.2.1"), proto: udpProto, payload: udpMsg(1500, 53, 4)}, OwnAddress) // no client: no word
	b.refused(pkt{src: clientA, dst: dst("127.0.0.1"), proto: udpProto, payload: udpMsg(1500, 53, 4)}, Reason(translate.ReasonIllegalDestination))
	for _, open := range []string{"192.0.2.2", "192.0.2.0", "192.0.2.254", "198.51.100.63", "198.51.100.80"} {
		b.judged(open, pkt{src: clientA, dst: dst(open), proto: udpProto, payload: udpMsg(1500, 53, 4)}, none)
	}
	if err := b.AddStatic(static(t, "udp", "["+clientB+"]:80", poolIP+":8080")); err != nil {
		t.Fatal(err)
	}
	b.judged("a binding at an address of the pool", pkt{src: clientA, dst: poolIn6, proto: udpProto, payload: udpMsg(1500, 8080, 4)}, none)
	b.judged("from the gateway to a binding", pkt{src: "192.0.2.1", dst: poolIP, proto: udpProto, payload: udpMsg(9, 8080, 4)}, none)
	b.SetClosed(nil)
	b.judged("when it is opened", pkt{src: clientA, dst: dst("192.0.2.1"), proto: udpProto, payload: udpMsg(1500, 53, 4)}, none)
}

// The set has what its prefixes have, and nothing else.
func TestClosedSet(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 8))
	for range 2000 {
		var list []netip.Prefix
		for range r.IntN(12) {
			a := netip.AddrFrom4([4]byte{192, 0, 2, byte(r.Uint32())})
			list = append(list, netip.PrefixFrom(a, 24+r.IntN(9)).Masked())
		}
		set := newClosed(list)
		for range 40 {
			a := netip.AddrFrom4([4]byte{192, 0, byte(1 + r.IntN(3)), byte(r.Uint32())})
			if want := slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) }); set.has(a) != want {
				t.Fatalf("%s in %v: %t", a, list, !want)
			}
		}
	}
	if whole := newClosed([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}); !whole.has(netip.IPv4Unspecified()) || !whole.has(netip.MustParseAddr("255.255.255.255")) {
		t.Error("the whole Internet is not in itself")
	}
}
