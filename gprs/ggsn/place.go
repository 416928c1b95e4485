// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"bytes"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Place is where a terminal is, as far as its SGSN has said.
type Place struct {
	RAT      gtp.Optional[gtp.RATType]
	Location gtp.Optional[Location]
	TimeZone gtp.Optional[gtp.TimeZone]
}

// Location is a User Location Information (TS 29.060 section 7.7.51) from its geographic location type on:
// of a cell, a service area or a routeing area.
type Location [8]byte

// place is where a terminal is. A location of a kind that has no fields yet is none.
func (o *Origin) place() Place {
	p := Place{RAT: o.RAT, TimeZone: o.TimeZone}
	if o.Location.Present && o.Location.Value.Kind <= gtp.LocationRouting {
		p.Location = gtp.Some(Location(o.Location.Value.Append(nil)))
	}
	return p
}

// movedTo notes where the terminal of a session is now, and by which radio access, and reports whether that is
// elsewhere. What is not said is as it was.
func (e *Engine) movedTo(h handle, said *Origin) bool {
	of := e.accounts[h]
	if of == nil {
		return false
	}
	now := *of.Account // what was told of does not change
	if said.RAT.Present {
		now.RAT = said.RAT
	}
	if said.Network.Present {
		now.Network = said.Network
	}
	if said.Location.Present {
		now.Location = ownLocation(said.Location)
	}
	if said.TimeZone.Present {
		now.TimeZone = said.TimeZone
	}
	if now.place() == of.place() && now.Network == of.Network && bytes.Equal(now.Location.Value.Rest, of.Location.Value.Rest) {
		return false
	}
	of.Account = &now
	return true
}

// ownLocation is a location in memory of its own.
func ownLocation(l gtp.Optional[gtp.Location]) gtp.Optional[gtp.Location] {
	l.Value.Rest = bytes.Clone(l.Value.Rest)
	return l
}

// networkOf is the network of an SGSN.
func networkOf(at gtp.Optional[gtp.RAI]) gtp.Optional[gtp.PLMN] {
	return gtp.Optional[gtp.PLMN]{Value: at.Value.PLMN, Present: at.Present}
}
