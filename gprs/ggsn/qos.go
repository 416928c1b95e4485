// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// release99 is the length from which a profile has rates.
const release99 = 12

// Rates are those of the two directions, in kbit/s; 0: any.
type Rates struct{ Up, Down uint32 }

// within returns the lower of two limits for each direction.
func (r Rates) within(most Rates) Rates { return Rates{lower(r.Up, most.Up), lower(r.Down, most.Down)} }

func lower(n, most uint32) uint32 {
	if n == 0 || most != 0 && n > most {
		return most
	}
	return n
}

// limitsOf are the highest rates of a session's contexts, by its access point and its subscription.
func (e *Engine) limitsOf(s *session) Rates {
	a := e.accessPoint(s)
	return Rates{a.MaxUp, a.MaxDown}.within(s.limits)
}

// grantedAMBR answers a request with rates for all contexts together.
func (e *Engine) grantedAMBR(s *session, asked gtp.Optional[gtp.AMBR]) gtp.Optional[gtp.AMBR] {
	if !asked.Present {
		return asked
	}
	r := Rates(asked.Value).within(e.ambrOf(s))
	return gtp.Some(gtp.AMBR(r))
}

// negotiate lowers a profile to some limits, at the length it came in (TS 23.107 section 9.1.2.2
// has the rate of one without rates in its peak throughput). Where it may be upgraded, one without
// guaranteed rates gets the limits also if it has less.
func negotiate(q gtp.QoS, most Rates, upgrade bool) gtp.QoS {
	p := q.Profile()
	upgrade = upgrade && !guaranteed(&p)
	if q.Len() < release99 {
		if most.Up == 0 || most.Down == 0 {
			return q // one direction may have any
		}
		if highest := gtp.PeakOf(max(most.Up, most.Down)); p.Peak == 0 || p.Peak > highest || upgrade {
			p.Peak = highest
		}
		return p.QoS(q.Len())
	}
	change := lowerRate
	if upgrade {
		change = upgradeRate
	}
	up, down := change(p.MaxUp, most.Up), change(p.MaxDown, most.Down)
	if up == p.MaxUp && down == p.MaxDown {
		return q
	}
	p.MaxUp, p.MaxDown = up, down
	p.GuaranteedUp, p.GuaranteedDown = within(p.GuaranteedUp, up), within(p.GuaranteedDown, down)
	return p.QoS(q.Len())
}

// lowerRate returns a rate that is no higher than most; what is subscribed is not known here,
// and so becomes most.
func lowerRate(r gtp.BitRate, most uint32) gtp.BitRate {
	n, ok := r.KilobitsPerSecond()
	if most == 0 || ok && n <= most {
		return r
	}
	return gtp.BitRate(most)
}

// upgradeRate returns the limit, if there is one, of a rate that is not to be none at all.
func upgradeRate(r gtp.BitRate, most uint32) gtp.BitRate {
	if most == 0 || r == gtp.RateZero {
		return r
	}
	return gtp.BitRate(most)
}

// guaranteed reports whether a profile is of a class with guaranteed rates (TS 23.107 section 6.3).
func guaranteed(p *gtp.Profile) bool {
	return p.Class == gtp.ClassConversational || p.Class == gtp.ClassStreaming
}

// within returns a guaranteed rate that is no higher than the highest; there may be none.
func within(r, most gtp.BitRate) gtp.BitRate {
	n, ok := r.KilobitsPerSecond()
	highest, bounded := most.KilobitsPerSecond()
	if ok && bounded && n > highest {
		return most
	}
	return r
}

// grant gives a context the profile that was asked for, within its limits, or a better one where its SGSN can
// have that. One that must not be negotiated (TS 29.060 section 7.7.48) stays as it is, and is held to the
// limits all the same. x is 0 of a context that is yet to be.
func (e *Engine) grant(x handle, s *session, u *pdpContext, asked gtp.QoS, flags gtp.CommonFlags) {
	u.asked, u.fixed, u.upgrade = asked, flags&gtp.FlagNoQoSNegotiation != 0, flags&gtp.FlagUpgradeQoS != 0
	u.qos = e.grantable(s, u)
	e.police(x, s, u)
}

// grantable is the profile that a context has by the limits of today.
func (e *Engine) grantable(s *session, u *pdpContext) gtp.QoS {
	if u.fixed {
		return u.asked
	}
	return negotiate(u.asked, e.limitsOf(s), u.upgrade && e.accessPoint(s).UpgradeQoS)
}

// police has a context held to its limits, and to what it was granted within them. Where there is
// no limit, nothing is counted.
func (e *Engine) police(x handle, s *session, u *pdpContext) {
	e.forget(x)
	p, most := u.qos.Profile(), e.limitsOf(s)
	up, down := p.MaxUp, p.MaxDown
	if u.qos.Len() < release99 {
		up, down = gtp.BitRate(p.PeakRate()), gtp.BitRate(p.PeakRate())
	}
	u.up.police(up, most.Up)
	u.down.police(down, most.Down)
	u.aggregate = !guaranteed(&p)
	u.mark = e.accessPoint(s).Marks.of(&p, u.qos.Len())
	e.policeAll(s)
}

// way is what a context has in one direction.
type way struct {
	policer
	Traffic
	over uint64 // packets that were dropped above the rate
}

// police holds the direction to a limit, and to what was granted within it.
func (w *way) police(granted gtp.BitRate, most uint32) {
	rate, ok := lowerRate(granted, most).KilobitsPerSecond()
	w.setRate(rate, most != 0 && ok)
}

// pass reports whether a packet is within the rate of a context and, if it counts there, within that of
// all of its terminal together: own is the first of these, where it is spent from now.
func (w *way) pass(own, all *policer, octets int, c call) bool {
	return own.Cost == 0 && all == nil || w.spend(own, all, octets, c)
}

// spend is it where there is a rate.
func (w *way) spend(own, all *policer, octets int, c call) bool {
	if all != nil && !all.open(c.at) || !own.take(octets, c.at) {
		w.over++
		return false
	}
	if all != nil {
		all.take(octets, c.at)
	}
	return true
}

// requalify holds all contexts to what the settings allow now, and has SGSNs whose profiles are
// other ones by it asked, some in a second. What a subscriber may have counts from his next session on.
func (e *Engine) requalify(c call) {
	at := c.at
	for h := handle(1); h <= e.sessions.last; h++ {
		s := e.sessions.at(h)
		for x := s.first; x != 0; x = e.contexts.at(x).next {
			e.police(x, s, e.contexts.at(x))
		}
		if to, waiting := e.changes[h]; waiting {
			to.again = true
			e.changes[h] = to
		} else if e.changeLimits(h, s, s.first, at) {
			e.schedule(h, s, c)
			at += requalifyGap
		}
	}
}

// changeLimits has a change asked for of the first context of a session, from x on, whose profile
// is another one by the limits of today.
func (e *Engine) changeLimits(h handle, s *session, x handle, at time.Duration) bool {
	if s.version == gtp.V0 || s.marked(markReleasing|markDeleting|markEnding) {
		return false
	}
	for ; x != 0; x = e.contexts.at(x).next {
		if u := e.contexts.at(x); !u.fixed && e.grantable(s, u) != u.qos {
			e.changes[h] = change{context: x, limits: true, at: at}
			return true
		}
	}
	return false
}
