// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// solicitations returns how many have been sent, each checked.
func (w *world) solicitations() (n int) {
	w.t.Helper()
	for w.seen < len(w.out.UDP) {
		_, h := w.next()
		p, _, ok := packet.ParseIPv6(h.Payload)
		m, valid := p.ICMPv6()
		if !ok || !valid || m[0] != packet.ICMPv6RouterSolicitation || len(m) != 8 || p.HopLimit() != 255 || p.Src() != linkLocal || p.Dst() != packet.AllRouters {
			w.t.Fatalf("no solicitation: %x", h.Payload)
		}
		n++
	}
	return n
}

// TestSolicitation asks three times, four seconds apart, and no more once a router has
// answered.
func TestSolicitation(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		w := newWorld(t, Settings{})
		key := w.attach(v, gtp.PDPTypeIPv6)
		for n := range maxSolicitations {
			if got := w.solicitations(); got != 1 {
				t.Fatalf("%d solicitations after %d waits", got, n)
			}
			w.wait(solicitationInterval - 1)
			w.none()
			w.wait(1)
		}
		w.event(NoRouter)
		w.none()
		w.wait(time.Hour)
		w.none()
		w.order(w.e.Solicit(key, w.now, &w.out))
		w.advertise(key, defaultRA())
		w.clear()
		w.wait(time.Hour)
		w.none()
	}
}

// TestAdvertisement takes prefix, router, MTU and name servers, and what is no advertisement
// not.
func TestAdvertisement(t *testing.T) {
	const hour = 3600
	servers := defaultRA().servers
	for _, row := range []struct {
		name   string
		change func(r *ra)
		want   []netip.Addr // addresses
		mtu    int
		router netip.Addr
		dns    []netip.Addr
		bad    bool
	}{
		{"all of it", func(*ra) {}, []netip.Addr{six}, 1400, router, servers, false},
		{"no router", func(r *ra) { r.lifetime = 0 }, []netip.Addr{six}, 1400, netip.Addr{}, servers, false},
		{"no prefix for addresses", func(r *ra) { r.flags = 0x80 }, nil, 1400, router, servers, false},
		{"a prefix of other length", func(r *ra) { r.bits = 56 }, nil, 1400, router, servers, false},
		{"preferred for longer than valid", func(r *ra) { r.valid = 10 }, nil, 1400, router, servers, false},
		{"no lifetime", func(r *ra) { r.valid, r.preferred = 0, 0 }, nil, 1400, router, servers, false},
		{"two prefixes: the first counts", func(r *ra) { r.of(hour, hour, prefix.String()+"/64", "2001:db8:6:8::/64") }, []netip.Addr{six}, 1400, router, servers, false},
		{"two options of one prefix: the first counts", func(r *ra) { r.of(hour, hour, prefix.String()+"/64").of(0, 0, prefix.String()+"/64") }, []netip.Addr{six}, 1400, router, servers, false},
		{"a prefix of the link itself", func(r *ra) { r.of(hour, hour, "fe80::/64") }, nil, 1400, router, servers, false},
		{"a prefix of groups", func(r *ra) { r.of(hour, hour, "ff0e::/64") }, nil, 1400, router, servers, false},
		{"an MTU that no link may have", func(r *ra) { r.mtu = 1279 }, []netip.Addr{six}, 0, router, servers, false},
		{"an MTU beyond any packet", func(r *ra) { r.mtu = 65536 }, []netip.Addr{six}, 0, router, servers, false},
		{"an unknown option", func(r *ra) { r.more = []byte{200, 1, 1, 2, 3, 4, 5, 6} }, []netip.Addr{six}, 1400, router, servers, false},
		{"an option of no length", func(r *ra) { r.more = make([]byte, 8) }, nil, 0, netip.Addr{}, nil, true},
		{"an option beyond the end", func(r *ra) { r.more = []byte{3, 4, 64, 0x40, 0, 0, 0, 0} }, nil, 0, netip.Addr{}, nil, true},
		{"from afar", func(r *ra) { r.hopLimit = 254 }, nil, 0, netip.Addr{}, nil, true},
		{"of another code", func(r *ra) {
			r.spoil = func(p packet.IPv6) packet.IPv6 { p[41] = 1; packet.FillICMPv6Checksum(p); return p }
		}, nil, 0, netip.Addr{}, nil, true},
		{"of another checksum", func(r *ra) { r.spoil = func(p packet.IPv6) packet.IPv6 { p[42] ^= 1; return p } }, nil, 0, netip.Addr{}, nil, true},
		{"cut short", func(r *ra) {
			r.spoil = func(p packet.IPv6) packet.IPv6 {
				return packet.AppendICMPv6(nil, router, packet.AllNodes, 255, packet.ICMPv6RouterAdvert, 0, p[44:55])
			}
		}, nil, 0, netip.Addr{}, nil, true},
		{"from no router of the link", func(r *ra) { r.source = host }, nil, 0, netip.Addr{}, nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			key := w.attach(gtp.V1, gtp.PDPTypeIPv6)
			r := defaultRA()
			row.change(r)
			w.advertise(key, r)
			i := w.info(key)
			var got []netip.Addr
			for _, a := range i.IPv6 {
				got = append(got, a.Address)
			}
			if !slices.Equal(got, row.want) || i.MTU6 != row.mtu || i.Router != row.router || !slices.Equal(i.DNS, row.dns) {
				t.Errorf("%+v", i)
			}
			if bad := w.drops("bad_advertisement") == 1; bad != row.bad || bad && len(w.out.IP) != 0 {
				t.Errorf("refused: %t, delivered %d", bad, len(w.out.IP))
			}
		})
	}
}

// TestSeveralPrefixes makes an address of each prefix of a link, also of those that it had before and that nothing new
// is to begin from, up to a bound.
func TestSeveralPrefixes(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv6)
	for n := range maxPrefixes + 1 {
		r, raw := defaultRA(), prefix.As16()
		raw[7] = byte(n)
		if r.prefix = netip.AddrFrom16(raw); n >= maxPrefixes/2 {
			r.valid, r.preferred = 10800, 0
		}
		w.advertise(key, r)
	}
	list := w.info(key).IPv6
	if len(list) != maxPrefixes {
		t.Errorf("it has %v", list)
	}
	for n, a := range list {
		raw, deprecated := a.Address.As16(), a.Preferred.Equal(w.now)
		if int(raw[7]) != n || deprecated != (n >= maxPrefixes/2) || w.e.sources[source{1, network(a.Address)}] == nil {
			t.Errorf("number %d: %+v", n, a)
		}
	}
}

// TestLifetimes ends what is over, and lets no router shorten an address's life below two hours
// (RFC 4862 section 5.5.3 e).
func TestLifetimes(t *testing.T) {
	const hour = 3600
	for _, row := range []struct {
		name          string
		first, second [2]uint32 // valid and preferred
		left          time.Duration
	}{
		{"it ends by itself", [2]uint32{hour, hour}, [2]uint32{}, time.Hour},
		{"it is renewed", [2]uint32{hour, hour}, [2]uint32{3 * hour, hour}, 3 * time.Hour},
		{"it is shortened to more than two hours", [2]uint32{9 * hour, hour}, [2]uint32{3 * hour, hour}, 3 * time.Hour},
		{"it is shortened below two hours", [2]uint32{9 * hour, hour}, [2]uint32{60, 60}, 2 * time.Hour},
		{"it is withdrawn, with less than two hours left", [2]uint32{hour, hour}, [2]uint32{1, 0}, time.Hour},
		{"it was to last for ever", [2]uint32{1<<32 - 1, 1<<32 - 1}, [2]uint32{1, 0}, 2 * time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			key := w.attach(gtp.V1, gtp.PDPTypeIPv6)
			for i, lifetimes := range [...][2]uint32{row.first, row.second} {
				if i == 1 && lifetimes[0] == 0 {
					break
				}
				r := defaultRA()
				r.valid, r.preferred = lifetimes[0], lifetimes[1]
				w.advertise(key, r)
			}
			w.wait(row.left - 1)
			if len(w.info(key).IPv6) != 1 {
				t.Fatal("it ended too soon")
			}
			w.wait(1)
			if w.event(Configured); len(w.info(key).IPv6) != 0 || w.e.sources[source{1, prefix}] != nil {
				t.Error("it has not ended")
			}
		})
	}
}

// TestPrefixes makes an address of the prefix of each advertisement, as many as a terminal has, each with the identifier of
// its link-local address (RFC 6459 section 5.2); packets from each are its own, and there is room again when one is over.
func TestPrefixes(t *testing.T) {
	const hour = 3600
	w := newWorld(t, Settings{})
	key := w.online(gtp.V1)
	addresses := []netip.Addr{six}
	var beyond netip.Addr
	for n := range maxPrefixes {
		p := netip.MustParsePrefix(fmt.Sprintf("2001:db8:7:%x::/64", n))
		w.advertise(key, defaultRA().of(hour, hour, p.String()))
		raw, id := p.Addr().As16(), linkLocal.As16()
		beyond = netip.AddrFrom16([16]byte(slices.Concat(raw[:8], id[8:])))
		if len(addresses) < maxPrefixes {
			addresses = append(addresses, beyond)
		}
	}
	has := func(want ...netip.Addr) {
		t.Helper()
		var got []netip.Addr
		for _, a := range w.info(key).IPv6 {
			got = append(got, a.Address)
		}
		if !slices.Equal(got, want) {
			t.Errorf("it has %v, want %v", got, want)
		}
	}
	has(addresses...)
	for _, a := range append(slices.Clone(addresses), beyond) {
		w.clear()
		w.e.HandleUE(1, udp6(a, host, 8), w.now, &w.out)
		w.down(key, udp6(host, a, 8))
		if own := slices.Contains(addresses, a); len(w.out.UDP) != len(w.out.IP) || len(w.out.UDP) == 1 != own {
			t.Errorf("of %v %d packets went and %d came", a, len(w.out.UDP), len(w.out.IP))
		}
	}
	w.wait(time.Hour)
	has(six)
	w.advertise(key, defaultRA().of(hour, hour, netip.PrefixFrom(beyond, 64).Masked().String()))
	has(six, beyond)
}

// TestRenumbered: a prefix that is deprecated stays until its end, for what has begun, and a terminal tells of it (RFC
// 4192 section 2.3); so it does when the time is over for which an address is preferred.
func TestRenumbered(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.online(gtp.V1)
	deprecated := func(want ...bool) {
		t.Helper()
		var got []bool
		for _, a := range w.info(key).IPv6 {
			got = append(got, !a.Preferred.IsZero() && !a.Preferred.After(w.now))
		}
		if !slices.Equal(got, want) {
			t.Errorf("deprecated %v, want %v", got, want)
		}
	}
	deprecated(false)
	w.advertise(key, defaultRA().of(7200, 1800, "2001:db8:7::/64"))
	w.clear()
	w.advertise(key, defaultRA().of(7200, 0, prefix.String()+"/64"))
	w.event(Configured)
	deprecated(true, false)
	w.clear()
	w.advertise(key, defaultRA().of(7200, 0, prefix.String()+"/64"))
	if len(w.out.Events) > 0 {
		t.Errorf("told again: %+v", w.out.Events)
	}
	w.wait(30*time.Minute - 1)
	if len(w.out.Events) > 0 {
		t.Errorf("too soon: %+v", w.out.Events)
	}
	w.wait(1)
	w.event(Configured)
	deprecated(true, true)
	w.clear()
	w.e.HandleUE(1, udp6(six, host, 8), w.now, &w.out)
	if len(w.out.UDP) != 1 {
		t.Error("a packet of the former prefix was dropped before its end")
	}
	w.advertise(key, defaultRA().of(7200, 1800, "2001:db8:7::/64"))
	w.event(Configured)
	deprecated(true, false)
	w.wait(90 * time.Minute)
	if got := w.info(key).IPv6; len(got) != 1 || got[0].Address == six {
		t.Errorf("it has %v", got)
	}
	w.clear()
	w.e.HandleUE(1, udp6(six, host, 8), w.now, &w.out)
	if w.none(); w.drops("foreign_source") != 1 {
		t.Error("a packet of the former prefix passed after its end")
	}
}

// TestRouterExpires has the router end with its lifetime.
func TestRouterExpires(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.attach(gtp.V1, gtp.PDPTypeIPv6)
	r := defaultRA()
	r.lifetime = 1800
	w.advertise(key, r)
	w.clear()
	w.wait(30*time.Minute - 1)
	if len(w.out.Events) != 0 {
		t.Fatal("too soon")
	}
	w.wait(1)
	if w.event(Configured); w.info(key).Router.IsValid() {
		t.Error("the router is still there")
	}
}

// TestNeighborSolicitation answers for the terminal's addresses.
func TestNeighborSolicitation(t *testing.T) {
	for _, row := range []struct {
		name   string
		target netip.Addr
		answer bool
	}{
		{"the link-local address", linkLocal, true},
		{"the global address", six, true},
		{"somebody else's", host, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			key := w.online(gtp.V1)
			raw := row.target.As16()
			w.down(key, packet.AppendICMPv6(nil, router, packet.SolicitedNode(row.target), 255, packet.ICMPv6NeighborSolicitation, 0, make([]byte, 4), raw[:]))
			if !row.answer {
				w.none()
				return
			}
			_, h := w.next()
			p, _, _ := packet.ParseIPv6(h.Payload)
			m, ok := p.ICMPv6()
			if !ok || m[0] != packet.ICMPv6NeighborAdvert || m[4] != 0x60 || p.Dst() != router || p.Src() != row.target || p.HopLimit() != 255 || len(m) != 24 {
				t.Errorf("%x", h.Payload)
			}
		})
	}
}

// TestDiscoveryIgnored: a solicitation that is not right (RFC 4861 section 7.1.1), and what nobody has asked for, have no
// effect; neither comes to the stack behind the link.
func TestDiscoveryIgnored(t *testing.T) {
	raw := linkLocal.As16()
	target := append(make([]byte, 4), raw[:]...)
	solicit := func(src netip.Addr, hops, code byte, body []byte) packet.IPv6 {
		return packet.AppendICMPv6(nil, src, linkLocal, hops, packet.ICMPv6NeighborSolicitation, code, body)
	}
	for _, row := range []struct {
		name string
		p    packet.IPv6
	}{
		{"from afar", solicit(router, 254, 0, target)},
		{"of another code", solicit(router, 255, 1, target)},
		{"without a target", solicit(router, 255, 0, target[:19])},
		{"with an option of no length", solicit(router, 255, 0, append(slices.Clone(target), make([]byte, 8)...))},
		{"with an option cut short", solicit(router, 255, 0, append(slices.Clone(target), 1, 2, 0, 0, 0, 0, 0, 0))},
		{"from no node of the link", solicit(host, 255, 0, target)},
		{"of another checksum", func() packet.IPv6 { p := solicit(router, 255, 0, target); p[42] ^= 1; return p }()},
		{"a router's solicitation", packet.AppendICMPv6(nil, router, packet.AllRouters, 255, packet.ICMPv6RouterSolicitation, 0, make([]byte, 4))},
		{"a neighbour that is told of", packet.AppendICMPv6(nil, router, linkLocal, 255, packet.ICMPv6NeighborAdvert, 0, target)},
		{"a redirect", packet.AppendICMPv6(nil, router, linkLocal, 255, packet.ICMPv6Redirect, 0, append(slices.Clone(target), raw[:]...))},
	} {
		w := newWorld(t, Settings{})
		key := w.online(gtp.V1)
		before := w.info(key)
		w.down(key, row.p)
		w.none()
		after := w.info(key)
		if len(w.out.IP) > 0 || len(w.out.Events) > 0 || w.drops("neighbor_discovery") != 1 || !slices.Equal(after.IPv6, before.IPv6) || after.Router != before.Router {
			t.Errorf("%s: %d packets came, events %+v, %d dropped", row.name, len(w.out.IP), w.out.Events, w.drops("neighbor_discovery"))
		}
	}
}

// TestTrafficOfLink counts what a terminal says and hears on its link as the GGSN does, which has accounts of it.
func TestTrafficOfLink(t *testing.T) {
	w := newWorld(t, Settings{})
	key := w.online(gtp.V1)
	want := Traffic{UpPackets: 1, UpOctets: packet.IPv6HeaderLen + 8, DownPackets: 1, DownOctets: uint64(len(defaultRA().packet()))}
	if got := w.info(key).Traffic; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	w.down(key, udp6(host, linkLocal.Next(), 8)) // nobody's
	w.e.Abandon(w.now, &w.out)
	if got := w.event(Ended).Traffic; got != want {
		t.Errorf("at the end %+v, want %+v", got, want)
	}
}
