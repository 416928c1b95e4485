// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// TestHeaderTo6 has a row for each header rule of RFC 7915 section 4.1.
func TestHeaderTo6(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Settings)
		path   Path
		in     v4
		want   v6
	}{
		{name: "TOS copied with all 8 bits", in: v4{tos: 0xff, payload: udp(1)}, want: v6{trafficClass: 0xff, payload: udp(1)}},
		{name: "TOS ignored by option", change: func(s *Settings) { s.ZeroTrafficClass = true },
			in: v4{tos: 0xff, payload: udp(1)}, want: v6{payload: udp(1)}},
		{name: "TTL 2 leaves 1", in: v4{ttl: 2, payload: udp(1)}, want: v6{hop: 1, payload: udp(1)}},
		{name: "TTL 255", in: v4{ttl: 255, payload: udp(1)}, want: v6{hop: 254, payload: udp(1)}},
		{name: "hop taken before", path: Path{HopTaken: true}, in: v4{ttl: 1, payload: udp(1)}, want: v6{hop: 1, payload: udp(1)}},
		{name: "no payload", in: v4{proto: 132}, want: v6{proto: 132}},
		{name: "DF set, no Fragment Header", in: v4{df: true, id: 5, payload: udp(1000)}, want: v6{payload: udp(1000)}},
		{name: "DF clear and fitting, no Fragment Header", in: v4{id: 5, payload: udp(1232)}, want: v6{payload: udp(1232)}},
		{name: "DF clear and fitting a larger lowest MTU", change: func(s *Settings) { s.LowestIPv6MTU = 1500 },
			in: v4{payload: udp(1452)}, want: v6{payload: udp(1452)}},
		{name: "DF set and a large packet", in: v4{df: true, payload: udp(8000)}, want: v6{payload: udp(8000)}},
		{name: "DF set and exactly the MTU", path: Path{MTU6: 1500}, in: v4{df: true, payload: udp(1452)}, want: v6{payload: udp(1452)}},
		{name: "middle fragment", in: v4{id: 0xfffe, mf: true, offset: 1480, payload: data(16)},
			want: v6{frag: true, id: 0xfffe, mf: true, offset: 1480, payload: data(16)}},
		{name: "fragment with DF", in: v4{df: true, id: 3, offset: 8, payload: data(5)},
			want: v6{frag: true, id: 3, offset: 8, payload: data(5)}},
		{name: "fragment with options", in: v4{id: 3, offset: 8, options: []byte{1, 1, 1, 0}, payload: data(5)},
			want: v6{frag: true, id: 3, offset: 8, payload: data(5)}},
		{name: "largest offset", in: v4{offset: 65528, payload: data(7)}, want: v6{frag: true, offset: 65528, payload: data(7)}},
		{name: "ESP", in: v4{proto: protoESP, payload: data(40)}, want: v6{proto: protoESP, payload: data(40)}},
		{name: "AH is copied", in: v4{proto: protoAH, payload: data(24)}, want: v6{proto: protoAH, payload: data(24)}},
		{name: "AH in a fragment is copied", in: v4{proto: protoAH, mf: true, payload: data(24)}, want: v6{proto: protoAH, frag: true, mf: true, payload: data(24)}},
		{name: "no next header", in: v4{proto: 59}, want: v6{proto: 59}},
		{name: "DCCP checksum", in: v4{proto: protoDCCP, payload: data(16)}, want: v6{proto: protoDCCP, payload: data(16)}},
		{name: "UDP-Lite checksum", in: v4{proto: protoUDPLite, payload: udp(9)}, want: v6{proto: protoUDPLite, payload: udp(9)}},
		{name: "expired source route", in: v4{options: []byte{131, 7, 8, 192, 0, 2, 9, 0}, payload: udp(1)}, want: v6{payload: udp(1)}},
		{name: "other options", in: v4{options: []byte{7, 7, 4, 0, 0, 0, 0, 0}, payload: udp(1)}, want: v6{payload: udp(1)}},
		{name: "option that runs out of the header", in: v4{options: []byte{131, 200, 4, 0}, payload: udp(1)}, want: v6{payload: udp(1)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantPackets(t, translator(t, tt.change), tt.path, tt.in.bytes(), tt.want.bytes())
		})
	}
}

// TestHeaderTo4 has a row for each header rule of RFC 7915 sections 5.1 and 5.1.1.
func TestHeaderTo4(t *testing.T) {
	node, host := node6, host6
	out := func(p v4) v4 { // the other way
		p.src, p.dst = node4, host4
		def(&p.ttl, 62)
		return p
	}
	in := func(p v6) v6 {
		p.src, p.dst = node, host
		return p
	}
	options := func(next byte) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} }
	tests := []struct {
		name   string
		change func(*Settings)
		path   Path
		in     v6
		want   v4
	}{
		{name: "traffic class copied with all 8 bits", path: testPath, in: v6{trafficClass: 0xff, payload: udp(1)}, want: v4{tos: 0xff, id: 0x1234, payload: udp(1)}},
		{name: "TOS fixed by option", change: func(s *Settings) { s.FixedTOS, s.TOS = true, 0x28 },
			in: v6{trafficClass: 0xff, payload: udp(1)}, want: v4{tos: 0x28, payload: udp(1)}},
		{name: "TOS fixed at zero", change: func(s *Settings) { s.FixedTOS = true }, in: v6{trafficClass: 0xff, payload: udp(1)}, want: v4{payload: udp(1)}},
		{name: "identification from the caller", path: Path{IDs: fixedID(0xabcd)}, in: v6{payload: udp(1)}, want: v4{id: 0xabcd, payload: udp(1)}},
		{name: "identification with DF too", path: Path{IDs: fixedID(0xabcd)}, in: v6{payload: udp(1400)}, want: v4{id: 0xabcd, df: true, payload: udp(1400)}},
		{name: "1260 octets, DF clear", in: v6{payload: udp(1232)}, want: v4{payload: udp(1232)}},
		{name: "1261 octets, DF set", in: v6{payload: udp(1233)}, want: v4{df: true, payload: udp(1233)}},
		{name: "hop limit 2 leaves 1", in: v6{hop: 2, payload: udp(1)}, want: v4{ttl: 1, payload: udp(1)}},
		{name: "hop taken before", path: Path{HopTaken: true}, in: v6{hop: 1, payload: udp(1)}, want: v4{ttl: 1, payload: udp(1)}},
		{name: "exactly the MTU", path: Path{MTU4: 1500}, in: v6{payload: udp(1472)}, want: v4{df: true, payload: udp(1472)}},
		{name: "destination options", in: v6{first: 60, before: options(17), payload: udp(1)}, want: v4{payload: udp(1)}},
		{name: "routing header of 24 octets, no segments left", in: v6{first: 43, before: append([]byte{17, 2, 0, 0}, make([]byte, 20)...), payload: udp(1)}, want: v4{payload: udp(1)}},
		{name: "destination options alone", in: v6{first: 60, before: options(59)}, want: v4{proto: 59}},
		{name: "atomic fragment", path: testPath, in: v6{frag: true, id: 0x12345678, payload: udp(1)}, want: v4{id: 0x5678, payload: udp(1)}},
		{name: "large atomic fragment, DF clear", in: v6{frag: true, id: 0x9999, payload: udp(1400)}, want: v4{id: 0x9999, payload: udp(1400)}},
		{name: "atomic fragment of an echo", in: v6{frag: true, id: 1, proto: 58, payload: echo(128, 5)}, want: v4{proto: 1, id: 1, payload: echo(8, 5)}},
		{name: "middle fragment", in: v6{frag: true, id: 0x10002, mf: true, offset: 1480, payload: data(16)}, want: v4{id: 2, mf: true, offset: 1480, payload: data(16)}},
		{name: "options before a Fragment Header", in: v6{first: 0, before: options(44), frag: true, id: 2, offset: 8, payload: data(5)}, want: v4{id: 2, offset: 8, payload: data(5)}},
		{name: "ESP in a fragment", in: v6{frag: true, proto: protoESP, mf: true, id: 2, payload: data(16), keepSum: true}, want: v4{proto: protoESP, mf: true, id: 2, payload: data(16)}},
		{name: "ESP", in: v6{proto: protoESP, payload: data(40)}, want: v4{proto: protoESP, payload: data(40)}},
		{name: "AH is copied", in: v6{proto: protoAH, payload: data(24)}, want: v4{proto: protoAH, payload: data(24)}},
		{name: "DCCP checksum", in: v6{proto: protoDCCP, payload: data(16)}, want: v4{proto: protoDCCP, payload: data(16)}},
		{name: "UDP-Lite checksum", in: v6{proto: protoUDPLite, payload: udp(9)}, want: v4{proto: protoUDPLite, payload: udp(9)}},
		{name: "UDP without a checksum stays without", in: v6{payload: udp(9), keepSum: true}, want: v4{payload: udp(9), keepSum: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantPackets(t, translator(t, tt.change), tt.path, in(tt.in).bytes(), out(tt.want).bytes())
		})
	}
}

// TestPadding: what a link has put behind a packet is no part of it.
func TestPadding(t *testing.T) {
	tr := translator(t, nil)
	wantPackets(t, tr, testPath, append(v4{payload: udp(1)}.bytes(), 1, 2, 3), v6{payload: udp(1)}.bytes())
	wantPackets(t, tr, testPath, append(v6{payload: udp(1)}.bytes(), 1, 2, 3), v4{ttl: 62, id: 0x1234, payload: udp(1)}.bytes())
}

// TestDropsOfIPv4 names what is dropped without a word (RFC 7915 section 4, RFC 1812
// sections 5.2.2 and 5.3.7).
func TestDropsOfIPv4(t *testing.T) {
	good := v4{payload: udp(8)}.bytes()
	edit := func(change func(b []byte)) []byte {
		b := append([]byte{}, good...)
		change(b)
		b[10], b[11] = 0, 0
		sum := ^sumWords(b[:20])
		b[10], b[11] = byte(sum>>8), byte(sum)
		return b
	}
	tests := []struct {
		name   string
		in     []byte
		reason Reason
	}{
		{"shorter than a header", good[:19], ReasonTruncated},
		{"shorter than its length", good[:len(good)-1], ReasonTruncated},
		{"header length 4", edit(func(b []byte) { b[0] = 0x44 }), ReasonHeaderLength},
		{"header longer than the packet", edit(func(b []byte) { b[0] = 0x4f }), ReasonHeaderLength},
		{"length below the header's", v4{total: 19, payload: udp(8)}.bytes(), ReasonHeaderLength},
		{"wrong header checksum", v4{badChecksum: true, payload: udp(8)}.bytes(), ReasonHeaderChecksum},
		{"fragment with a ragged end", v4{mf: true, payload: data(15)}.bytes(), ReasonFragment},
		{"empty fragment", v4{offset: 8}.bytes(), ReasonFragment},
		{"fragment beyond the largest packet", v4{offset: 65528, payload: data(8)}.bytes(), ReasonFragment},
		{"source in network 0", v4{src: "0.0.0.0", payload: udp(8)}.bytes(), ReasonIllegalSource},
		{"loopback source", v4{src: "127.0.0.1", payload: udp(8)}.bytes(), ReasonIllegalSource},
		{"multicast source", v4{src: "224.0.0.1", payload: udp(8)}.bytes(), ReasonIllegalSource},
		{"reserved source", v4{src: "240.0.0.1", payload: udp(8)}.bytes(), ReasonIllegalSource},
		{"broadcast source", v4{src: "255.255.255.255", payload: udp(8)}.bytes(), ReasonIllegalSource},
		{"multicast destination", v4{dst: "239.1.2.3", payload: udp(8)}.bytes(), ReasonIllegalDestination},
		{"broadcast destination", v4{dst: "255.255.255.255", payload: udp(8)}.bytes(), ReasonIllegalDestination},
		{"loopback destination", v4{dst: "127.0.0.1", payload: udp(8)}.bytes(), ReasonIllegalDestination},
		{"IGMP", v4{proto: protoIGMP, payload: data(8)}.bytes(), ReasonIGMP},
		{"UDP header cut", v4{payload: data(7)}.bytes(), ReasonTransport},
		{"UDP-Lite header cut", v4{proto: protoUDPLite, payload: data(7)}.bytes(), ReasonTransport},
		{"DCCP header cut", v4{proto: protoDCCP, payload: data(11)}.bytes(), ReasonTransport},
		{"TCP header cut", v4{proto: packet.ProtoTCP, payload: data(19)}.bytes(), ReasonTransport},
		{"TCP header cut in a first fragment", v4{proto: packet.ProtoTCP, mf: true, payload: data(16)}.bytes(), ReasonTransport},
		{"ICMP message cut", v4{proto: protoICMP, payload: data(7)}.bytes(), ReasonTransport},
		{"echo request cut", v4{proto: protoICMP, payload: echo(8, 0)[:7]}.bytes(), ReasonTransport},
		{"empty ICMP message", v4{proto: protoICMP}.bytes(), ReasonTransport},
	}
	tr := translator(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantDrop(t, tr, testPath, tt.in, tt.reason) })
	}
	if res := tr.IPv4(v6{payload: udp(1)}.bytes(), testPath, new(packet.Batch)); res.Reason != ReasonVersion {
		t.Errorf("an IPv6 packet: %v", res.Reason)
	}
	if res := tr.IPv4(edit(func(b []byte) { b[0] = 0x55 }), testPath, new(packet.Batch)); res.Reason != ReasonVersion {
		t.Errorf("version 5: %v", res.Reason)
	}
}

// TestDropsOfIPv6 is the counterpart for RFC 7915 section 5.
func TestDropsOfIPv6(t *testing.T) {
	good := v6{payload: udp(8)}.bytes()
	chain := func(n int) []byte {
		var b []byte
		for range n - 1 {
			b = append(b, 60, 0, 1, 4, 0, 0, 0, 0)
		}
		return append(b, 17, 0, 1, 4, 0, 0, 0, 0)
	}
	tests := []struct {
		name   string
		in     []byte
		reason Reason
	}{
		{"empty", nil, ReasonTruncated},
		{"shorter than a header", good[:39], ReasonTruncated},
		{"shorter than its length", good[:len(good)-1], ReasonTruncated},
		{"extension header cut", v6{first: 60, before: []byte{17, 1, 1, 4, 0, 0, 0, 0}}.bytes(), ReasonExtensionHeaders},
		{"no room for an extension header", v6{proto: 43, payload: data(7)}.bytes(), ReasonExtensionHeaders},
		{"Fragment Header cut", v6{proto: 44, payload: data(7)}.bytes(), ReasonExtensionHeaders},
		{"nine extension headers", v6{first: 60, before: chain(9), payload: udp(1)}.bytes(), ReasonExtensionHeaders},
		{"fragment with a ragged end", v6{frag: true, mf: true, payload: data(15)}.bytes(), ReasonFragment},
		{"empty fragment", v6{frag: true, offset: 8}.bytes(), ReasonFragment},
		{"fragment beyond the largest packet", v6{frag: true, offset: 65528, payload: data(8)}.bytes(), ReasonFragment},
		{"loopback source", v6{src: "::1", payload: udp(8)}.bytes(), ReasonIllegalSource},
		{"unspecified source", v6{src: "::", payload: udp(8)}.bytes(), ReasonIllegalSource},
		{"multicast source", v6{src: "ff02::1", payload: udp(8)}.bytes(), ReasonIllegalSource},
		{"link-local source", v6{src: "fe80::1", payload: udp(8)}.bytes(), ReasonIllegalSource},
		{"multicast destination", v6{dst: "ff0e::1", payload: udp(8)}.bytes(), ReasonIllegalDestination},
		{"link-local destination", v6{dst: "febf::1", payload: udp(8)}.bytes(), ReasonIllegalDestination},
		{"embedded loopback as source", v6{src: "2001:db8:64::127.0.0.1", payload: udp(8)}.bytes(), ReasonIllegalSource},
		{"embedded broadcast as destination", v6{dst: "2001:db8:64::255.255.255.255", payload: udp(8)}.bytes(), ReasonIllegalDestination},
		{"UDP header cut", v6{payload: data(7)}.bytes(), ReasonTransport},
		{"TCP header cut in a first fragment", v6{proto: packet.ProtoTCP, frag: true, mf: true, payload: data(16)}.bytes(), ReasonTransport},
		{"ICMPv6 message cut", v6{proto: packet.ProtoICMPv6, payload: data(7)}.bytes(), ReasonTransport},
		{"ICMPv6 echo request cut", v6{proto: packet.ProtoICMPv6, payload: echo(128, 0)[:7]}.bytes(), ReasonTransport},
	}
	tr := translator(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantDrop(t, tr, testPath, tt.in, tt.reason) })
	}
	if res := tr.IPv6(v4{payload: udp(30)}.bytes(), testPath, new(packet.Batch)); res.Reason != ReasonVersion {
		t.Errorf("an IPv4 packet: %v", res.Reason)
	}
	if !illegal6(ptr("::")) || !illegal6(ptr("::1")) || !illegal6(ptr("::2")) || illegal6(ptr("2001:db8::1")) || illegal6(ptr("0:1::1")) {
		t.Error("illegal6 is wrong about an address")
	}
}

func ptr(s string) *[16]byte {
	a := netip.MustParseAddr(s).As16()
	return &a
}
