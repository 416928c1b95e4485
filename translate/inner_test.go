// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

var invalid netip.Addr

// TestInnerTo6 translates what an ICMP error quotes (RFC 7915 section 4.3).
func TestInnerTo6(t *testing.T) {
	cut := func(b []byte, n int) []byte { return b[:n] }
	from := func(p v4) []byte { p.src, p.dst = node4, host4; return p.bytes() }
	to := func(p v6) []byte { p.src, p.dst = node6, host6; return p.bytes() }
	tests := []struct {
		name        string
		quote, want []byte
	}{
		{"hop limit kept, even 1", from(v4{ttl: 1, payload: udp(3)}), to(v6{hop: 1, payload: udp(3)})},
		{"hop limit kept, even 0", func() []byte { b := from(v4{payload: udp(3)}); b[8] = 0; return b }(),
			func() []byte { b := to(v6{payload: udp(3)}); b[7] = 0; return b }()},
		{"TOS", from(v4{tos: 0xc3, payload: udp(3)}), to(v6{trafficClass: 0xc3, hop: 64, payload: udp(3)})},
		{"options", from(v4{options: []byte{131, 3, 4, 0}, payload: udp(3)}), to(v6{hop: 64, payload: udp(3)})},
		{"wrong header checksum, as some routers leave it", from(v4{badChecksum: true, payload: udp(3)}), to(v6{hop: 64, payload: udp(3)})},
		{"UDP header alone", cut(from(v4{payload: udp(100)}), 28), cut(to(v6{hop: 64, payload: udp(100)}), 48)},
		{"TCP ports and sequence alone", cut(from(v4{proto: 6, payload: tcp(100)}), 28), cut(to(v6{hop: 64, proto: 6, payload: tcp(100)}), 48)},
		{"TCP with its checksum", cut(from(v4{proto: 6, payload: tcp(100)}), 40), cut(to(v6{hop: 64, proto: 6, payload: tcp(100)}), 60)},
		{"no transport header at all", cut(from(v4{payload: udp(100)}), 20), cut(to(v6{hop: 64, payload: udp(100)}), 40)},
		{"UDP without checksum stays without", from(v4{payload: udp(3), keepSum: true}), to(v6{hop: 64, payload: udp(3), keepSum: true})},
		{"echo request", from(v4{proto: 1, payload: echo(8, 9)}), to(v6{hop: 64, proto: 58, payload: echo(128, 9)})},
		{"echo reply, cut", cut(from(v4{proto: 1, payload: echo(0, 9)}), 28), cut(to(v6{hop: 64, proto: 58, payload: echo(129, 9)}), 48)},
		{"echo up to its checksum", cut(from(v4{proto: 1, payload: echo(8, 9)}), 24), cut(to(v6{hop: 64, proto: 58, payload: echo(128, 9)}), 44)},
		{"type of an echo alone", cut(from(v4{proto: 1, payload: echo(8, 9)}), 21), cut(to(v6{hop: 64, proto: 58, payload: echo(128, 9)}), 41)},
		{"later fragment", from(v4{id: 77, offset: 16, payload: data(24)}), to(v6{hop: 64, frag: true, id: 77, offset: 16, payload: data(24)})},
		{"later fragment of an echo", from(v4{proto: 1, id: 77, offset: 16, payload: data(24)}), to(v6{hop: 64, proto: 58, frag: true, id: 77, offset: 16, payload: data(24)})},
		{"unknown transport", from(v4{proto: 132, payload: data(24)}), to(v6{hop: 64, proto: 132, payload: data(24)})},
		{"bytes behind its length", append(from(v4{payload: udp(3)}), 1, 2, 3, 4), append(to(v6{hop: 64, payload: udp(3)}), 1, 2, 3, 4)},
	}
	tr := translator(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := v4{src: router4, proto: 1, payload: icmp(11, 0, 0, tt.quote)}.bytes()
			wantPackets(t, tr, testPath, in, v6{src: router6, proto: 58, payload: icmp(3, 0, 0, tt.want)}.bytes())
		})
	}
}

// TestInnerTo4 does so for RFC 7915 section 5.3.
func TestInnerTo4(t *testing.T) {
	cut := func(b []byte, n int) []byte { return b[:n] }
	def := func(p v4) []byte { p.id = 0x1234; return p.bytes() }
	tests := []struct {
		name        string
		quote, want []byte
	}{
		{"hop limit kept, even 1", v6{hop: 1, payload: udp(3)}.bytes(), def(v4{ttl: 1, payload: udp(3)})},
		{"traffic class", v6{hop: 64, trafficClass: 0x9a, flow: 7, payload: udp(3)}.bytes(), def(v4{tos: 0x9a, payload: udp(3)})},
		{"UDP header alone", cut(v6{hop: 64, payload: udp(100)}.bytes(), 48), cut(def(v4{payload: udp(100)}), 28)},
		{"TCP with its checksum", cut(v6{hop: 64, proto: 6, payload: tcp(100)}.bytes(), 60), cut(def(v4{proto: 6, payload: tcp(100)}), 40)},
		{"large packet has DF", cut(v6{hop: 64, payload: udp(1300)}.bytes(), 100), cut(def(v4{df: true, payload: udp(1300)}), 80)},
		{"echo request", v6{hop: 64, proto: 58, payload: echo(128, 9)}.bytes(), def(v4{proto: 1, payload: echo(8, 9)})},
		{"echo reply, cut", cut(v6{hop: 64, proto: 58, payload: echo(129, 90)}.bytes(), 48), cut(def(v4{proto: 1, payload: echo(0, 90)}), 28)},
		{"first fragment", v6{hop: 64, frag: true, mf: true, id: 0x70077, proto: 132, payload: data(24)}.bytes(), v4{id: 0x77, mf: true, proto: 132, payload: data(24)}.bytes()},
		{"later fragment", v6{hop: 64, frag: true, id: 77, offset: 16, payload: data(24)}.bytes(), v4{id: 77, offset: 16, payload: data(24)}.bytes()},
		{"the largest that IPv4 has", v6{hop: 64, length: 65515, proto: 132, payload: data(8)}.bytes(), v4{id: 0x1234, df: true, total: 65535, proto: 132, payload: data(8)}.bytes()},
		{"destination options", v6{hop: 64, first: 60, before: []byte{17, 0, 1, 4, 0, 0, 0, 0}, payload: udp(3)}.bytes(), def(v4{payload: udp(3)})},
		{"routing header with segments left", v6{hop: 64, first: 43, before: []byte{17, 0, 0, 1, 0, 0, 0, 0}, payload: udp(3)}.bytes(), def(v4{payload: udp(3)})},
	}
	tr := translator(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := v6{src: node6, dst: host6, hop: 64, proto: 58, payload: icmp(3, 0, 0, tt.quote)}.bytes()
			wantPackets(t, tr, testPath, in,
				v4{src: node4, dst: host4, ttl: 63, id: 0x1234, proto: 1, payload: icmp(11, 0, 0, tt.want)}.bytes())
		})
	}
}

// TestInnerRefused: translation stops at the first embedded packet, and what cannot be
// read is dropped (RFC 7915 sections 4.3, 5.3).
func TestInnerRefused(t *testing.T) {
	four := func(quote []byte) []byte {
		return v4{src: router4, proto: 1, payload: icmp(11, 0, 0, quote)}.bytes()
	}
	six := func(quote []byte) []byte {
		return v6{src: node6, dst: host6, proto: 58, payload: icmp(3, 0, 0, quote)}.bytes()
	}
	tests := []struct {
		name   string
		in     []byte
		reason Reason
	}{
		{"error about an error", four(v4{proto: 1, payload: icmp(3, 3, 0, quoted4())}.bytes()), ReasonInnerError},
		{"error about a redirect", four(v4{proto: 1, payload: icmp(5, 3, 0, quoted4())}.bytes()), ReasonInnerError},
		{"error about a timestamp", four(v4{proto: 1, payload: icmp(13, 0, 0)}.bytes()), ReasonInnerICMP},
		{"error about ICMP without a type", four(v4{proto: 1, payload: icmp(8, 0, 0)}.bytes()[:20]), ReasonInner},
		{"no quote", four(nil), ReasonInner},
		{"quote shorter than a header", four(quoted4()[:19]), ReasonInner},
		{"quote of the other version", four(quoted6()), ReasonInner},
		{"quote with options cut", four(v4{options: []byte{1, 1, 1, 1}, payload: udp(1)}.bytes()[:22]), ReasonInner},
		{"quote with a lying length", four(v4{total: 10, payload: udp(1)}.bytes()), ReasonInner},
		{"quote with a protocol of IPv6", four(v4{proto: packet.ProtoRouting, payload: udp(1)}.bytes()), ReasonInner},

		{"IPv6: error about an error", six(v6{proto: 58, payload: icmp(1, 4, 0, back6())}.bytes()), ReasonInnerError},
		{"IPv6: error about an unknown error", six(v6{proto: 58, payload: icmp(127, 4, 0, back6())}.bytes()), ReasonInnerError},
		{"IPv6: error about Neighbor Discovery", six(v6{proto: 58, payload: icmp(135, 0, 0)}.bytes()), ReasonInnerICMP},
		{"IPv6: error about ICMPv6 without a type", six(v6{proto: 58, payload: icmp(128, 0, 0)}.bytes()[:40]), ReasonInner},
		{"IPv6: no quote", six(nil), ReasonInner},
		{"IPv6: quote shorter than a header", six(back6()[:39]), ReasonInner},
		{"IPv6: quote of the other version", six(append(back4(), data(20)...)), ReasonInner},
		{"IPv6: extension header cut", six(v6{first: 60, before: []byte{17, 0, 1, 4, 0, 0, 0, 0}}.bytes()[:46]), ReasonInner},
		{"IPv6: length below the extension headers", six(v6{length: 4, first: 60, before: []byte{17, 0, 1, 4, 0, 0, 0, 0}}.bytes()), ReasonInner},
		{"IPv6: too large for IPv4", six(v6{length: 65530, payload: udp(1)}.bytes()), ReasonInner},
		{"IPv6: ICMPv4 inside", six(v6{proto: 1, payload: echo(8, 1)}.bytes()), ReasonInner},
		{"IPv6: source nobody maps", six(v6{src: "2001:db8:1::1", payload: udp(1)}.bytes()), ReasonInnerUnmapped},
		{"IPv6: destination nobody maps", six(v6{dst: "2001:db8:1::1", payload: udp(1)}.bytes()), ReasonInnerUnmapped},
	}
	tr := translator(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantDrop(t, tr, testPath, tt.in, tt.reason) })
	}
	only := translator(t, func(s *Settings) {
		s.Prefixes = nil
		s.Mappings = table(t, router4, "2001:db8::9", node4, "2001:db8::33")
	})
	wantDrop(t, only, testPath, four(quoted4()), ReasonInnerUnmapped)
}

// TestErrorSizes: what the headers add is cut off at the end of the quoted packet:
// ICMPv6 errors hold 1280 octets (RFC 4443 section 2.4 c), ICMP errors 576 (RFC 1812
// section 4.3.2.3).
func TestErrorSizes(t *testing.T) {
	tr := translator(t, nil)
	quote := v4{src: node4, dst: host4, payload: udp(1400)}.bytes()
	want := icmp(3, 0, 0, v6{src: node6, dst: host6, hop: 64, payload: udp(1400)}.bytes())
	wantPackets(t, tr, testPath, v4{src: router4, proto: 1, payload: icmp(11, 0, 0, quote)}.bytes(),
		v6{src: router6, proto: 58, payload: want[:1240]}.bytes())

	quote = v6{hop: 64, payload: udp(1000)}.bytes()
	want = icmp(11, 0, 0, v4{id: 0x1234, payload: udp(1000)}.bytes())
	wantPackets(t, tr, testPath, v6{src: node6, dst: host6, proto: 58, hop: 64, payload: icmp(3, 0, 0, quote)}.bytes(),
		v4{src: node4, dst: host4, id: 0x1234, ttl: 63, proto: 1, payload: want[:556]}.bytes())
}
