// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

func fourPrefixes(s *Settings) { s.APNs[1].LinkPrefixes = 4 }

// advertised are the prefixes in the router advertisements that have come out, each with one.
func (w *world) advertised() (list []netip.Prefix) {
	w.Helper()
	for _, d := range ofType(w.out.UDP, gtp.TypeGPDU) {
		h, err := gtp.Decapsulate(d.Payload)
		p, _, ok := packet.ParseIPv6(h.Payload)
		if err != nil || !ok {
			w.Fatalf("%x", d.Payload)
		}
		if m, right := p.ICMPv6(); right && m[0] == packet.ICMPv6RouterAdvert && p.Src() == link.RouterAddress {
			list = append(list, prefixAt(binary.BigEndian.Uint64(p[72:])))
		}
	}
	return list
}

// TestLinkPrefixes: each prefix of a link has advertisements of its own, unasked and asked for, and packets
// of all of them are the context's, and of no other one, also after a restart.
func TestLinkPrefixes(t *testing.T) {
	w := newWorld(t, fourPrefixes)
	c := w.open(1, "inet6", gtp.PDPTypeIPv6)
	d := w.open(2, "inet6", gtp.PDPTypeIPv6)
	first := netip.PrefixFrom(c.six(), 64).Masked()
	var want []netip.Prefix
	for n := range uint64(4) {
		want = append(want, prefixAt(prefix6(first.Addr())+n))
	}
	w.tick(3 * time.Second)
	if got := w.advertised(); len(got) != 8 || !slices.Equal(got[:4], want) && !slices.Equal(got[4:], want) {
		t.Errorf("unasked: %v, want %v", got, want)
	}
	w.tick(time.Minute)
	w.up(c, packet.AppendICMPv6(nil, c.local(), netip.MustParseAddr("ff02::2"), 255, packet.ICMPv6RouterSolicitation, 0, make([]byte, 4)))
	if got := w.advertised(); !slices.Equal(got, want) {
		t.Errorf("asked for: %v, want %v", got, want)
	}
	check := func(when string) {
		t.Helper()
		for _, p := range want {
			if up, down := w.passes(c, at(p)); !up || !down {
				t.Errorf("%s, packets of %v pass: %v, %v; dropped %v", when, p, up, down, w.dropped())
			}
			before := w.e.stats.Dropped[SpoofedIPv6]
			w.up(d, udp6(at(p), host6, 64, 0))
			w.silent(SpoofedIPv6, before)
		}
		for _, p := range []netip.Prefix{prefixAt(prefix6(first.Addr()) - 1), prefixAt(prefix6(first.Addr()) + 4)} {
			if up, down := w.passes(c, at(p)); up || down {
				t.Errorf("%s, packets of %v pass: %v, %v", when, p, up, down)
			}
		}
	}
	check("at first")
	for _, p := range want { // accounts tell what it is listed with, each by itself
		w.e.Contexts(Selection{Address: p}, 0, 10, func(x ContextInfo) bool {
			if x.IMSI != testIMSI(1) || x.Prefix6 != want[0] || !slices.Equal(x.Further6, want[1:]) {
				t.Errorf("by %v is listed %v, with %v and %v", p, x.IMSI, x.Prefix6, x.Further6)
			}
			return true
		})
	}
	s := testSettings()
	fourPrefixes(&s)
	if lost := w.succeed(s, w.e.AppendState(nil)); lost != 0 {
		t.Fatalf("%d lost", lost)
	}
	check("after a restart")
}

// TestLinkPrefixesStatic: a static prefix is one.
func TestLinkPrefixesStatic(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		fourPrefixes(s)
		s.APNs[1].Static6 = prefixes("2001:db8:7200::/56")
	})
	m := w.createRequest(testIMSI(1), "inet6", gtp.PDPTypeIPv6)
	m.EndUserAddress.Value.IPv6 = netip.MustParseAddr("2001:db8:7200:8::1")
	if c := w.create(m); !c.Cause.Accepted() {
		t.Fatal(c.Cause)
	}
	if got := w.advertised(); !slices.Equal(got, prefixes("2001:db8:7200:8::/64")) {
		t.Errorf("%v", got)
	}
}
