// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// Constants of hosts (RFC 4861 section 10), and what a terminal keeps at most of what routers
// advertise.
const (
	solicitationInterval = 4 * time.Second
	maxSolicitations     = 3
	maxPrefixes          = 32 // sixteen that a link has, and as many that it had before
	maxServers           = 8
	maxNAT64             = 4
)

// RouterTime is how long an open context of IPv6 waits for a router before [NoRouter] is told.
const RouterTime = maxSolicitations * solicitationInterval

// twoHours is how much of a valid lifetime a router cannot take away, unless it was less
// (RFC 4862 section 5.5.3 e).
const twoHours = 2 * time.Hour

// forever is the lifetime of all ones (RFC 4861 section 4.6.2).
const forever = time.Duration(packet.Infinite) * time.Second

// host6 is the terminal's side of IPv6: its link-local address is that of the interface
// identifier that the GGSN chose, and its others are made of what routers advertise (RFC 6459
// section 5.2). Neither needs duplicate address detection, since the prefix is the
// terminal's alone.
type host6 struct {
	linkLocal netip.Addr
	prefixes  []Address6
	router    netip.Addr
	until     time.Time // of the router; zero: none is there
	mtu       int       // 0: not told
	servers   []netip.Addr
	nat64     []nat64
	domains   []string // the search list
	dhcp      client6
	prefix    *prefix6       // nil: it asks for none
	overheard []netip.Prefix // that programs behind the link were told of

	solicited    int
	solicitation timer
	expiry       timer // of the first that ends of the router and the prefixes
}

// Address6 is an address that the terminal has made of a prefix of 64 bits.
type Address6 struct {
	Address netip.Addr
	// Preferred and Valid are when these lifetimes end; zero is never.
	Preferred, Valid time.Time
}

// nat64 is the prefix of a NAT64 on the way (RFC 8781). One that is over is told as such.
type nat64 struct {
	prefix netip.Prefix
	until  time.Time // zero: it is over
}

// begin takes the address of the GGSN's response. Its upper half is of no use: the prefix comes
// from the advertisement (RFC 6459 section 6.3).
func (h *host6) begin(a netip.Addr) {
	raw := a.As16()
	copy(raw[:8], []byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0})
	h.linkLocal = netip.AddrFrom16(raw)
}

// solicit asks for an advertisement, and again while there is none (RFC 4861 section 6.3.7).
func (e *Engine) solicit(s *session, now time.Time, out *Output) {
	h := &s.six
	if h.solicitation.fire == nil {
		h.solicitation.fire = func(now time.Time, out *Output) { e.solicit(s, now, out) }
	}
	if h.solicited == maxSolicitations {
		e.tell(s.contexts[0].event(NoRouter), out)
		return
	}
	h.solicited++
	var reserved [4]byte
	rs := packet.AppendICMPv6(out.Alloc(packet.IPv6HeaderLen+8), h.linkLocal, packet.AllRouters, packet.NDHopLimit, packet.ICMPv6RouterSolicitation, 0, reserved[:])
	e.send6(s, rs, now, out)
	e.timers.Set(&h.solicitation, now.Add(solicitationInterval))
}

// Solicit asks for an advertisement again, as a terminal does that has changed its link.
func (e *Engine) Solicit(key gtp.TID, now time.Time, out *Output) error {
	c := e.contexts[key]
	switch {
	case c == nil:
		return ErrUnknown
	case !c.session.six.linkLocal.IsValid() || c.session.contexts[0].state == Opening:
		return ErrBusy
	}
	c.session.six.solicited = 0
	e.solicit(c.session, now, out)
	return nil
}

// send6 sends a packet of the terminal's stack, which is this one.
func (e *Engine) send6(s *session, p []byte, now time.Time, out *Output) {
	e.encapsulate(s.contexts[0], p, now, out)
}

// discovery takes Neighbor Discovery of the GGSN. It reports whether the packet was such.
func (e *Engine) discovery(s *session, p packet.IPv6, now time.Time, out *Output) bool {
	if p.NextHeader() != packet.ProtoICMPv6 || len(p.Payload()) == 0 {
		return false
	}
	switch p.Payload()[0] {
	case packet.ICMPv6RouterAdvert:
		e.advertised(s, p, now, out)
	case packet.ICMPv6NeighborSolicitation:
		e.solicitedFor(s, p, now, out)
	case packet.ICMPv6RouterSolicitation, packet.ICMPv6NeighborAdvert, packet.ICMPv6Redirect:
		e.drops[dropDiscovery]++ // nobody was asked for, and the link has one router
	default:
		return false
	}
	return true
}

// advertised takes a router advertisement.
func (e *Engine) advertised(s *session, p packet.IPv6, now time.Time, out *Output) {
	ra, ok := parseAdvertisement(p)
	if !ok {
		e.drops[dropAdvertisement]++
		return
	}
	e.stats.Advertisements++
	h := &s.six
	e.timers.Stop(&h.solicitation)
	options, dhcp := withdrawn(&s.given.dns, ra.ended), withdrawn(&h.dhcp.servers, ra.ended)
	if h.take(&ra, now) || options || dhcp {
		link := s.wanted.Link
		for _, p := range h.prefixes {
			e.sources[source{link, network(p.Address)}] = s
		}
		e.tell(s.contexts[0].event(Configured), out)
	}
	e.advertise(s, now, out)
	e.expireLater(s, now)
	if ra.more && (dhcp || h.dhcp.timer.fire == nil) && s.wanted.Link != LoadLink {
		e.inform(s, now)
	}
}

// take takes what an advertisement says. It reports whether anything is new beside lifetimes.
func (h *host6) take(ra *advertisement, now time.Time) (news bool) {
	was := h.until.IsZero()
	h.router, h.until = ra.router, now.Add(ra.lifetime)
	if ra.lifetime == 0 {
		h.router, h.until = netip.Addr{}, time.Time{}
	}
	news = was != h.until.IsZero()
	if ra.mtu != 0 && ra.mtu != h.mtu {
		h.mtu, news = ra.mtu, true
	}
	if ra.servers != nil && !slices.Equal(ra.servers, h.servers) {
		h.servers, news = ra.servers, true
	}
	if ra.domains != nil && !slices.Equal(ra.domains, h.domains) {
		h.domains, news = ra.domains, true
	}
	if ra.prefix.IsValid() {
		news = h.takePrefix(ra, now) || news
	}
	for _, o := range ra.nat64 {
		news = h.takeNAT64(o, now) || news
	}
	return news
}

// takeNAT64 takes the prefix of a NAT64, or the word that it is one no more.
func (h *host6) takeNAT64(o pref64.Option, now time.Time) (news bool) {
	var until time.Time
	if o.Lifetime > 0 {
		until = now.Add(o.Lifetime)
	}
	i := slices.IndexFunc(h.nat64, func(n nat64) bool { return n.prefix == o.Prefix })
	if i >= 0 {
		news = h.nat64[i].until.IsZero() != until.IsZero()
		h.nat64[i].until = until
		return news
	}
	if len(h.nat64) == maxNAT64 {
		h.nat64 = slices.DeleteFunc(h.nat64, func(n nat64) bool { return n.until.IsZero() })
	}
	if until.IsZero() || len(h.nat64) == maxNAT64 {
		return false
	}
	h.nat64 = append(h.nat64, nat64{o.Prefix, until})
	return true
}

// takePrefix makes an address, or renews one (RFC 4862 section 5.5.3).
func (h *host6) takePrefix(ra *advertisement, now time.Time) (news bool) {
	i := slices.IndexFunc(h.prefixes, func(a Address6) bool { return network(a.Address) == ra.prefix })
	if i < 0 {
		if ra.valid == 0 || len(h.prefixes) == maxPrefixes {
			return false
		}
		raw, id := ra.prefix.As16(), h.linkLocal.As16()
		copy(raw[8:], id[8:])
		h.prefixes = append(h.prefixes, Address6{netip.AddrFrom16(raw), end(now, ra.preferred), end(now, ra.valid)})
		return true
	}
	a := &h.prefixes[i]
	deprecated := !a.Preferred.IsZero() && !a.Preferred.After(now)
	a.Preferred = end(now, ra.preferred)
	valid := end(now, ra.valid)
	if ra.valid <= twoHours && (a.Valid.IsZero() || a.Valid.After(valid)) {
		if kept := now.Add(twoHours); a.Valid.IsZero() || a.Valid.After(kept) {
			valid = kept
		} else {
			valid = a.Valid
		}
	}
	a.Valid = valid
	return deprecated != (ra.preferred == 0)
}

// end is when a lifetime ends; zero is never.
func end(now time.Time, lifetime time.Duration) time.Time {
	if lifetime == forever {
		return time.Time{}
	}
	return now.Add(lifetime)
}

// expireLater sets the timer of the next lifetime that ends.
func (e *Engine) expireLater(s *session, now time.Time) {
	h := &s.six
	if h.expiry.fire == nil {
		h.expiry.fire = func(now time.Time, out *Output) { e.expire(s, now, out) }
	}
	next := h.until
	sooner := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, p := range h.prefixes {
		sooner(p.Preferred)
		sooner(p.Valid)
	}
	for _, n := range h.nat64 {
		sooner(n.until)
	}
	for _, d := range h.leases() {
		sooner(d.Valid)
	}
	if e.timers.Stop(&h.expiry); !next.IsZero() {
		e.timers.Set(&h.expiry, next)
	}
}

// expire ends what is over: a router, an address, or that one is preferred.
func (e *Engine) expire(s *session, now time.Time, out *Output) {
	h := &s.six
	if !h.until.IsZero() && !h.until.After(now) {
		h.router, h.until = netip.Addr{}, time.Time{}
	}
	h.prefixes = slices.DeleteFunc(h.prefixes, func(a Address6) bool {
		over := !a.Valid.IsZero() && !a.Valid.After(now)
		if over {
			delete(e.sources, source{s.wanted.Link, network(a.Address)})
		}
		return over
	})
	for i := range h.nat64 {
		if n := &h.nat64[i]; !n.until.After(now) {
			n.until = time.Time{}
		}
	}
	if h.prefix != nil {
		h.prefix.leases = slices.DeleteFunc(slices.Clone(h.prefix.leases), func(d Delegated) bool { return !d.Valid.IsZero() && !d.Valid.After(now) })
	}
	e.tell(s.contexts[0].event(Configured), out)
	e.advertise(s, now, out)
	e.expireLater(s, now)
}

// solicitedFor answers a solicitation for an address of the terminal, without a link-layer
// address, which the link has not (RFC 4861 section 4.4).
func (e *Engine) solicitedFor(s *session, p packet.IPv6, now time.Time, out *Output) {
	m, ok := p.ICMPv6()
	if !ok || p.HopLimit() != packet.NDHopLimit || m[1] != 0 || len(m) < 24 || !packet.NDOptionsWellFormed(m[24:]) || !p.Src().IsLinkLocalUnicast() {
		e.drops[dropDiscovery]++
		return
	}
	target := netip.AddrFrom16([16]byte(m[8:24]))
	if !s.has6(target) {
		e.drops[dropDiscovery]++
		return
	}
	flags := [4]byte{0x60} // solicited, override
	e.send6(s, packet.AppendICMPv6(out.Alloc(packet.IPv6HeaderLen+24), target, p.Src(), packet.NDHopLimit, packet.ICMPv6NeighborAdvert, 0, flags[:], m[8:24]), now, out)
}

// has6 reports whether packets for the address are the terminal's.
func (s *session) has6(a netip.Addr) bool {
	if a == s.six.linkLocal {
		return true
	}
	own := network(a)
	return slices.ContainsFunc(s.six.prefixes, func(p Address6) bool { return network(p.Address) == own })
}

// resolvers are the name servers beside those that are known: of DHCP first, then of
// advertisements (RFC 8106 section 5.3.1).
func (h *host6) resolvers(known []netip.Addr) (list []netip.Addr) {
	for _, a := range slices.Concat(h.dhcp.servers, h.servers) {
		if !slices.Contains(known, a) && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// withdrawn forgets name servers of a list that are not to be used any more (RFC 8106 section 5.1), and
// reports whether it had some.
func withdrawn(list *[]netip.Addr, servers []netip.Addr) bool {
	before := len(*list)
	*list = slices.DeleteFunc(*list, func(a netip.Addr) bool { return slices.Contains(servers, a) })
	return len(*list) != before
}

// searchList is the one of both, in the same order.
func (h *host6) searchList() (list []string) {
	for _, name := range slices.Concat(h.dhcp.domains, h.domains) {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}
