// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/internal/packet"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// TestRouterSource4: an ICMPv6 error from an address without IPv4 form gets one of the
// pool; without a pool the translator's own (RFC 6791 section 5).
func TestRouterSource4(t *testing.T) {
	in := v6{src: strange, dst: host6, hop: 64, proto: 58, payload: icmp(3, 0, 0, back6())}.bytes()
	out := func(src string) []byte {
		return v4{src: src, dst: host4, id: 1, ttl: 63, proto: 1, payload: icmp(11, 0, 0, v4{id: 1, ttl: 60, payload: udp(4)}.bytes())}.bytes()
	}
	pooled := translator(t, func(s *Settings) { s.Pool4 = prefixes("198.51.100.200/32", "203.0.113.4/30") })
	wantPackets(t, pooled, Path{IDs: fixedID(1)}, in, out("198.51.100.200"))
	// Five addresses, and so five routers that are distinguished, each time in the same way.
	path := Path{IDs: fixedID(1), Routers: NewRouters(7)}
	seen := make(map[string]string)
	for range 3 {
		for _, router := range []string{strange, "2001:db8:9::1", "2001:db8:9::2", "2001:db8:9::3", "2001:db8:a::1"} {
			_, got := run(pooled, v6{src: router, dst: host6, hop: 64, proto: 58, payload: icmp(3, 0, 0, back6())}.bytes(), path)
			if len(got) != 1 {
				t.Fatalf("%d packets came of the error of %s", len(got), router)
			}
			src := netip.AddrFrom4([4]byte(got[0][12:16])).String()
			if !bytes.Equal(got[0], out(src)) {
				t.Errorf("%x of %s, want %x", got[0], router, out(src))
			}
			if was, ok := seen[router]; ok && was != src {
				t.Errorf("%s was %s and is %s", router, was, src)
			}
			seen[router] = src
		}
	}
	if all := slices.Sorted(maps.Values(seen)); !slices.Equal(all, []string{"198.51.100.200", "203.0.113.4", "203.0.113.5", "203.0.113.6", "203.0.113.7"}) {
		t.Errorf("routers have the addresses %v", all)
	}
	wantPackets(t, translator(t, nil), Path{IDs: fixedID(1)}, in, out(own4))

	none := translator(t, func(s *Settings) { s.Own4 = invalid })
	wantDrop(t, none, testPath, in, ReasonSourceUnmapped)

	data := v6{src: strange, dst: host6, payload: udp(1)}.bytes()
	if res, got := run(pooled, data, testPath); res.Reason != ReasonSourceUnmapped || len(got) != 0 {
		t.Errorf("a packet that is no error got a source of the pool: %v", res.Reason)
	}
	query := v6{src: strange, dst: host6, proto: 58, payload: echo(128, 1)}.bytes()
	wantDrop(t, pooled, testPath, query, ReasonSourceUnmapped)
}

// TestRouterSource6 is the IPv4 side: no prefix, explicit mappings only.
func TestRouterSource6(t *testing.T) {
	only := func(s *Settings) {
		s.Prefixes = nil
		s.Mappings = table(t, host4, "2001:db8:1::2", node4, "2001:db8:2::33")
	}
	in := v4{src: router4, proto: 1, payload: icmp(11, 0, 0, quoted4())}.bytes()
	out := func(src string) []byte {
		quote := v6{src: "2001:db8:2::33", dst: "2001:db8:1::2", hop: 60, payload: udp(4)}
		return v6{src: src, dst: "2001:db8:2::33", proto: 58, payload: icmp(3, 0, 0, quote.bytes())}.bytes()
	}
	pooled := translator(t, func(s *Settings) { only(s); s.Pool6 = prefixes("2001:db8:9::/124") })
	wantPackets(t, pooled, Path{}, in, out("2001:db8:9::"))
	path := Path{Routers: NewRouters(3)}
	sources := make(map[string]bool)
	for i := range 32 {
		other := v4{src: fmt.Sprintf("203.0.113.%d", 200+i%8), proto: 1, payload: icmp(11, 0, 0, quoted4())}.bytes()
		_, got := run(pooled, other, path)
		if len(got) != 1 {
			t.Fatalf("%d packets came of an error", len(got))
		}
		sources[netip.AddrFrom16([16]byte(got[0][8:24])).String()] = true
	}
	if len(sources) != 8 {
		t.Errorf("eight routers have %d addresses", len(sources))
	}
	wantPackets(t, translator(t, only), Path{}, in, out(own6))
	none := translator(t, func(s *Settings) { only(s); s.Own6 = invalid })
	wantDrop(t, none, testPath, in, ReasonSourceUnmapped)
}

// TestPrivateRouterSource: the well-known prefix may not carry a private router's
// address (RFC 6052 section 3.1), so one of the pool stands for it, and a traceroute
// sees that there is a hop. What arrives with such an address is dropped.
func TestPrivateRouterSource(t *testing.T) {
	tr := translator(t, func(s *Settings) {
		s.Prefixes = []Prefix{prefix(t, "64:ff9b::/96")}
		s.Mappings = table(t, node4, "2001:db8::33")
		s.Pool6 = prefixes("2001:db8:9::7/128")
	})
	quote4 := v4{src: node4, dst: "8.8.8.8", ttl: 60, payload: udp(4)}.bytes()
	quote6 := v6{src: "2001:db8::33", dst: "64:ff9b::8.8.8.8", hop: 60, payload: udp(4)}.bytes()
	wantPackets(t, tr, testPath, v4{src: "10.0.0.1", proto: 1, payload: icmp(11, 0, 0, quote4)}.bytes(),
		v6{src: "2001:db8:9::7", dst: "2001:db8::33", proto: 58, payload: icmp(3, 0, 0, quote6)}.bytes())
	wantDrop(t, tr, testPath, v6{src: "64:ff9b::10.0.0.1", dst: "64:ff9b::8.8.8.8", proto: 58, payload: icmp(3, 0, 0, quote6)}.bytes(), ReasonNonGlobal)
}

// TestIllegalRouterSource: an illegal source is translated in an ICMPv4 error, for
// trouble shooting (RFC 7915 section 4.1).
func TestIllegalRouterSource(t *testing.T) {
	wantPackets(t, translator(t, nil), testPath, v4{src: "127.0.0.1", proto: 1, payload: icmp(11, 0, 0, quoted4())}.bytes(),
		v6{src: "2001:db8:64::127.0.0.1", proto: 58, payload: icmp(3, 0, 0, quoted6())}.bytes())
}

// TestSettingsRefused says what New does not take.
func TestSettingsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Settings)
	}{
		{"empty prefix", func(s *Settings) { s.Prefixes = []Prefix{{}} }},
		{"prefix twice", func(s *Settings) { s.Prefixes = []Prefix{prefix(t, testNSP), prefix(t, testNSP)} }},
		{"lowest MTU below 1280", func(s *Settings) { s.LowestIPv6MTU = 1279 }},
		{"lowest MTU above 65535", func(s *Settings) { s.LowestIPv6MTU = 65536 }},
		{"plateaus not sorted", func(s *Settings) { s.Plateaus = []int{1280, 1500} }},
		{"own IPv4 address of the other family", func(s *Settings) { s.Own4 = netip.MustParseAddr(own6) }},
		{"own IPv4 address is multicast", func(s *Settings) { s.Own4 = netip.MustParseAddr("224.0.0.1") }},
		{"own IPv6 address of the other family", func(s *Settings) { s.Own6 = netip.MustParseAddr(own4) }},
		{"own IPv6 address is link-local", func(s *Settings) { s.Own6 = netip.MustParseAddr("fe80::1") }},
		{"unknown hairpin mode", func(s *Settings) { s.Hairpin = 9 }},
		{"unknown checksum mode", func(s *Settings) { s.UDPZeroChecksum = 9 }},
		{"pool of the other family", func(s *Settings) { s.Pool4 = prefixes("2001:db8::/126") }},
		{"pool of the other family, too", func(s *Settings) { s.Pool6 = prefixes("192.0.2.0/30") }},
		{"pool with bits behind its length", func(s *Settings) { s.Pool4 = prefixes("192.0.2.1/30") }},
		{"pool too large", func(s *Settings) { s.Pool6 = prefixes("2001:db8::/64") }},
		{"pool of multicast", func(s *Settings) { s.Pool4 = prefixes("224.0.0.0/30") }},
		{"pool of link-local addresses", func(s *Settings) { s.Pool6 = prefixes("fe80::/120") }},
		{"the zero pool", func(s *Settings) { s.Pool6 = []netip.Prefix{{}} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Settings{Prefixes: []Prefix{prefix(t, testNSP)}}
			tt.change(&s)
			if _, err := New(s); err == nil {
				t.Error("accepted")
			} else {
				t.Log(err)
			}
		})
	}
	for _, s := range []Settings{
		{},
		{LowestIPv6MTU: 1280},
		{LowestIPv6MTU: 65535},
		{Pool6: prefixes("2001:db8::/96"), Pool4: prefixes("198.51.100.0/30", "203.0.113.1/32")},
	} {
		if _, err := New(s); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// TestUnmapped: without a rule nothing passes, and the sender hears of it.
func TestUnmapped(t *testing.T) {
	nothing := translator(t, func(s *Settings) { s.Prefixes = nil })
	onlySource := translator(t, func(s *Settings) {
		s.Prefixes = nil
		s.Mappings = table(t, host4, "2001:db8:1::2")
	})
	four := v4{payload: udp(1)}.bytes()
	six := v6{src: "2001:db8:1::2", payload: udp(1)}.bytes()
	for _, tt := range []struct {
		tr     *Translator
		in     []byte
		reason Reason
	}{
		{nothing, four, ReasonSourceUnmapped},
		{nothing, six, ReasonSourceUnmapped},
		{onlySource, four, ReasonDestinationUnmapped},
		{onlySource, six, ReasonDestinationUnmapped},
	} {
		if res, got := run(tt.tr, tt.in, testPath); res.Verdict != Error || res.Reason != tt.reason || len(got) != 0 {
			t.Errorf("%x: %v %v", tt.in[:1], res.Verdict, res.Reason)
		}
	}
	if res := nothing.IPv4(four, testPath, new(packet.Batch)); res.Verdict.String() != "error" || res.Reason.String() != "source_unmapped" {
		t.Errorf("result reads %v %v", res.Verdict, res.Reason)
	}
}
