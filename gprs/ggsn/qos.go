// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// release99 is the length from which a profile has rates.
const release99 = 12

// negotiate lowers a profile to what the access point allows, at the length it came in. One
// that must not be negotiated stays as it is.
func (a *access) negotiate(q gtp.QoS, flags gtp.CommonFlags) gtp.QoS {
	if a.MaxUp == 0 && a.MaxDown == 0 || q.Len() < release99 || flags&gtp.FlagNoQoSNegotiation != 0 {
		return q
	}
	p := q.Profile()
	up, down := lower(p.MaxUp, a.MaxUp), lower(p.MaxDown, a.MaxDown)
	if up == p.MaxUp && down == p.MaxDown {
		return q
	}
	p.MaxUp, p.MaxDown = up, down
	p.GuaranteedUp, p.GuaranteedDown = within(p.GuaranteedUp, up), within(p.GuaranteedDown, down)
	return p.QoS(q.Len())
}

// lower returns a rate that is no higher than most; what is subscribed is not known here,
// and so becomes most.
func lower(r gtp.BitRate, most uint32) gtp.BitRate {
	n, ok := r.KilobitsPerSecond()
	if most == 0 || ok && n <= most {
		return r
	}
	return gtp.BitRate(most)
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
