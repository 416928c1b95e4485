// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// linkSettings are what the router of an access point's links says.
func (a *APN) linkSettings(uuid [16]byte) link.Settings {
	return link.Settings{MTU: a.MTU, DNS: a.DNS6, Domains: a.Domains, PREF64: a.PREF64, DHCP: a.DHCP, Delegate: a.Delegate > 0 || a.routes6(), UUID: uuid, Interval: a.AdvertInterval}
}

// toRouter answers a packet that is for the router of the link, or for a group of it.
func (e *Engine) toRouter(c call, x handle, s *session, p packet.IPv6) Reason {
	l := e.link(s)
	if e.accessPoint(s).said.Delegate {
		e.delegator = delegator{e: e, call: c, context: x, given: e.delegator.given[:0]}
		l.Delegations = &e.delegator
	}
	b, v := e.accessPoint(s).router.Answer(c.out.Alloc(link.Room(p)), l, &s.linkState, p, c.now)
	e.stats.Link[v]++
	if l.Delegations != nil && e.delegator.changed {
		e.tell(c, ContextUpdated, x, 0)
	}
	switch {
	case v.Answered():
		e.encapsulate(c, x, s, b)
		if v == link.Advertised {
			e.advertiseFurther(s, x, l, packet.IPv6(b).Dst(), c)
		}
	case v != link.ListenerReport && v != link.OtherNeighbor && v != link.AdvertisedLately:
		return LinkControl
	}
	return none
}

// greet sends the first router advertisement, as soon as the context is there: it may come
// before the terminal listens, and so is not the only one (RFC 4861 section 6.2.4).
func (e *Engine) greet(x handle, c call) {
	h := e.contexts.at(x).session
	if s := e.sessions.at(h); s.has.has(TypeIPv6) {
		e.advertise(s, c)
		e.schedule(h, s, c)
	}
}

// advertDue sends a router advertisement that is due.
func (e *Engine) advertDue(h handle, s *session, c call) {
	if s.advertAt != 0 && s.advertAt <= c.at {
		e.renumber(h, s, c)
		e.advertise(s, c)
	}
}

// advertSpread is the time over which the router advertisements after a restart are spread, or those of other
// prefixes.
const advertSpread = 5 * time.Minute

// firstAdvert is the longest time until the first router advertisement after a restart: by then what the last one
// before it said must not be over (RFC 4861 section 6.2.1).
func (a *access) firstAdvert() time.Duration {
	return min(advertSpread, cmp.Or(a.AdvertInterval, link.DefaultInterval))
}

// advertiseFurther sends the advertisements of further prefixes behind that of the first, and of former ones.
func (e *Engine) advertiseFurther(s *session, x handle, l link.Link, to netip.Addr, c call) {
	for n := 1; n <= l.More+len(l.Further); n++ {
		e.encapsulate(c, x, s, e.accessPoint(s).router.AdvertiseFurther(c.out.Alloc(packet.MinMTU), l, n, to))
	}
	for _, f := range l.Former {
		for n := range f.More + 1 {
			e.encapsulate(c, x, s, e.accessPoint(s).router.AdvertiseFormer(c.out.Alloc(packet.MinMTU), l, f, n, to))
		}
	}
}

func (e *Engine) advertise(s *session, c call) {
	l := e.link(s)
	b, next := e.accessPoint(s).router.Advertise(c.out.Alloc(packet.MinMTU), l, &s.linkState, e.random.Uint64(), c.now)
	if len(b) > 0 {
		e.stats.Adverts++
		e.encapsulate(c, s.first, s, b)
		e.advertiseFurther(s, s.first, l, packet.AllNodes, c)
	}
	s.advertAt = next.Sub(e.epoch)
}
