// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// Place is where a terminal is, as far as its SGSN has said.
type Place struct {
	RAT      gtp.Optional[gtp.RATType]
	Location gtp.Optional[Location]
	TimeZone gtp.Optional[gtp.TimeZone]
}

// Location is a User Location Information (TS 29.060 section 7.7.51) from its geographic location type on:
// of a cell, a service area or a routeing area.
type Location [8]byte

// placeOf is what a request says. A location of a kind that has no fields yet is none.
func placeOf(rat gtp.Optional[gtp.RATType], at gtp.Optional[gtp.Location], zone gtp.Optional[gtp.TimeZone]) Place {
	p := Place{RAT: rat, TimeZone: zone}
	if at.Present && at.Value.Kind <= gtp.LocationRouting {
		p.Location = gtp.Some(Location(at.Value.Append(nil)))
	}
	return p
}

// then is where a terminal is that was at p before it was told of the next place: what that leaves out is as it was.
func (p Place) then(next Place) Place {
	if next.RAT.Present {
		p.RAT = next.RAT
	}
	if next.Location.Present {
		p.Location = next.Location
	}
	if next.TimeZone.Present {
		p.TimeZone = next.TimeZone
	}
	return p
}

// movedTo notes for the account of a session where its terminal is now, and reports whether that is
// elsewhere.
func (e *Engine) movedTo(h handle, to Place) bool {
	of := e.accounts[h]
	if of == nil || of.Place.then(to) == of.Place {
		return false
	}
	now := *of.Account // what was told of does not change
	now.Place = now.Place.then(to)
	of.Account = &now
	return true
}
