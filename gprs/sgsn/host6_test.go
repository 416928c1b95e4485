// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
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
		{"an MTU that no link may have", func(r *ra) { r.mtu = 1279 }, []netip.Addr{six}, 0, router, servers, false},
		{"an unknown option", func(r *ra) { r.more = []byte{200, 1, 1, 2, 3, 4, 5, 6} }, []netip.Addr{six}, 1400, router, servers, false},
		{"an option of no length", func(r *ra) { r.more = make([]byte, 8) }, nil, 0, netip.Addr{}, nil, true},
		{"an option beyond the end", func(r *ra) { r.more = []byte{3, 4, 64, 0x40, 0, 0, 0, 0} }, nil, 0, netip.Addr{}, nil, true},
		{"from afar", func(r *ra) { r.hopLimit = 254 }, nil, 0, netip.Addr{}, nil, true},
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
