// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// nat64s are two prefixes of NAT64s.
var nat64s = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2001:db8:64::/48")}

// naming is an advertisement with PREF64 options.
func naming(lifetime time.Duration, prefixes ...netip.Prefix) *ra {
	r := defaultRA()
	for _, p := range prefixes {
		r.more, _ = pref64.AppendOption(r.more, pref64.Option{Prefix: p, Lifetime: lifetime})
	}
	return r
}

// hears is the advertisement that the terminal has got last.
func (w *world) hears(header int) (a pref64.Advertisement, p packet.IPv6) {
	w.t.Helper()
	if len(w.out.IP) == 0 {
		w.t.Fatal("the terminal hears nothing")
	}
	p = w.out.IP[len(w.out.IP)-1][header:]
	m, ok := p.ICMPv6()
	a, err := pref64.ParseAdvertisement(m)
	if !ok || err != nil || p.HopLimit() != 255 || p.Src() != stationRouter || p.Dst() != packet.AllNodes {
		w.t.Fatalf("%x: %v", p, err)
	}
	return a, p
}

// TestDeviceHears tells programs on a terminal's device of name servers and NAT64s, and the stack
// there nothing that it would make addresses, routes or an MTU of.
func TestDeviceHears(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.online(gtp.V1)
	solicit := func(src netip.Addr, hops byte) {
		w.clear()
		w.e.HandleUE(1, packet.AppendICMPv6(nil, src, packet.AllRouters, hops, packet.ICMPv6RouterSolicitation, 0, make([]byte, 4)), w.now, &w.out)
	}
	heard := func(lifetime time.Duration, prefixes ...netip.Prefix) {
		t.Helper()
		a, p := w.hears(0)
		var want []pref64.Option
		for _, p := range prefixes {
			want = append(want, pref64.Option{Prefix: p, Lifetime: lifetime})
		}
		ra, ok := parseAdvertisement(p)
		if !ok || ra.lifetime != 0 || ra.prefix.IsValid() || ra.mtu != 0 || p[packet.IPv6HeaderLen+4] != 0 || len(a.Resolvers) != 1 || !slices.Equal(a.Options, want) {
			t.Errorf("it hears %+v, want %v", a, want)
		}
		w.none() // the GGSN is not asked
	}
	w.clear()
	w.advertise(key, naming(30*time.Minute, nat64s...))
	heard(30*time.Minute, nat64s...)
	if got := w.info(key).NAT64; !slices.Equal(got, nat64s) {
		t.Errorf("known %v", got)
	}
	w.wait(10 * time.Minute)
	solicit(linkLocal, 255)
	heard(20*time.Minute, nat64s...)
	w.advertise(key, naming(30*time.Minute, nat64s...)) // nothing new, but for how long
	heard(30*time.Minute, nat64s...)
	w.advertise(key, naming(0, nat64s[0]))
	if a, _ := w.hears(0); len(a.Options) != 2 || a.Options[0].Lifetime != 0 || a.Options[1].Lifetime == 0 {
		t.Errorf("one withdrawn: %+v", a)
	}
	w.wait(31 * time.Minute)
	if got := w.info(key).NAT64; len(got) != 0 {
		t.Errorf("known after the end: %v", got)
	}
	heard(0, nat64s...)
	for _, bad := range []struct {
		src  netip.Addr
		hops byte
	}{{linkLocal, 64}, {six, 255}, {netip.IPv6Unspecified(), 255}, {netip.MustParseAddr("fe80::2"), 255}} {
		if solicit(bad.src, bad.hops); len(w.out.IP) != 0 {
			t.Errorf("asked from %s with hop limit %d: answered", bad.src, bad.hops)
		}
	}
	if n := w.drops("neighbor_discovery"); n != 4 {
		t.Errorf("%d counted", n)
	}
}

// TestNAT64sBounded forgets no prefix that holds for others, and has room again when some are
// over.
func TestNAT64sBounded(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.online(gtp.V1)
	nth := func(n byte) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 11: n}), 96)
	}
	for n := range byte(10) {
		w.advertise(key, naming(time.Hour, nth(n)))
	}
	if got := w.info(key).NAT64; len(got) != maxNAT64 || got[0] != nth(0) {
		t.Errorf("known %v", got)
	}
	w.advertise(key, naming(0, nth(1)))
	w.advertise(key, naming(time.Hour, nth(9)))
	if got := w.info(key).NAT64; len(got) != maxNAT64 || slices.Contains(got, nth(1)) || !slices.Contains(got, nth(9)) {
		t.Errorf("known %v", got)
	}
}

// TestStationHears has the stack behind a station hear of NAT64s, and of each renewal: what it
// has heard would end else.
func TestStationHears(t *testing.T) {
	w, key := stationed(t)
	w.advertise(key, naming(30*time.Minute, nat64s...))
	if a, _ := w.hears(ethernetLen); len(a.Options) != 2 || a.Options[0].Prefix != nat64s[0] || a.RouterLifetime == 0 {
		t.Errorf("it hears %+v", a)
	}
	w.clear()
	w.wait(10 * time.Minute)
	w.advertise(key, naming(30*time.Minute, nat64s...))
	if a, _ := w.hears(ethernetLen); len(a.Options) != 2 || a.Options[0].Lifetime != 30*time.Minute {
		t.Errorf("it hears %+v", a)
	}
}
