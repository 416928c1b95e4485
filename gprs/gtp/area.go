// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"encoding/binary"
	"fmt"
)

// PLMN is a network's code: three digits of country, two or three of network (TS 29.060
// section 7.7.3, TS 24.008 section 10.5.1.3). It is a key of maps.
type PLMN [3]byte

// MakePLMN makes the code of a country of three digits and a network of two or three.
func MakePLMN(mcc, mnc string) (PLMN, error) {
	if len(mcc) != 3 || len(mnc) != 2 && len(mnc) != 3 || !appendableBCD(mcc+mnc) {
		return PLMN{}, fmt.Errorf("a PLMN has 3 digits of country and 2 or 3 of network, not %q and %q", mcc, mnc)
	}
	var p PLMN
	fillBCD(p[:], mcc+mnc[len(mnc)-1:]+mnc[:2])
	if len(mnc) == 2 {
		p[1] |= 0xf0
	}
	return p, nil
}

// String returns country and network with a hyphen between.
func (p PLMN) String() string {
	const digits = "0123456789abcdef"
	text := []byte{digits[p[0]&0xf], digits[p[0]>>4], digits[p[1]&0xf], '-', digits[p[2]&0xf], digits[p[2]>>4]}
	if third := p[1] >> 4; third != 0xf {
		text = append(text, digits[third])
	}
	return string(text)
}

// RAI is a routeing area (TS 29.060 section 7.7.3).
type RAI struct {
	PLMN PLMN
	LAC  uint16
	RAC  uint8
}

// String returns the parts with hyphens between.
func (r RAI) String() string { return fmt.Sprintf("%s-%d-%d", r.PLMN, r.LAC, r.RAC) }

var routeingArea = format[RAI]{
	parse: func(v []byte) (r RAI, ok bool) {
		if len(v) != 6 {
			return r, false
		}
		return RAI{PLMN(v), binary.BigEndian.Uint16(v[3:]), v[5]}, true
	},
	append: func(b []byte, r RAI) []byte {
		b = append(b, r.PLMN[:]...)
		return append(binary.BigEndian.AppendUint16(b, r.LAC), r.RAC)
	},
}

// LocationKind is the kind of a [Location].
type LocationKind uint8

// Kinds of locations.
const (
	LocationCell    LocationKind = 0 // CGI: Code is a cell
	LocationService LocationKind = 1 // SAI: Code is a service area
	LocationRouting LocationKind = 2 // RAI: the upper octet of Code is a routeing area
)

// Location is where a user is (TS 29.060 section 7.7.51). Kinds of later releases are
// kept in Rest, as they are, and have no fields.
type Location struct {
	Kind LocationKind
	PLMN PLMN
	LAC  uint16
	Code uint16
	Rest []byte
}

// ParseLocation reads the value of the element, over which Rest lies.
func ParseLocation(v []byte) (l Location, ok bool) {
	if len(v) < 1 {
		return l, false
	}
	l.Kind = LocationKind(v[0])
	if l.Kind > LocationRouting {
		l.Rest = v[1:]
		return l, true
	}
	if len(v) < 8 {
		return Location{}, false
	}
	l.PLMN, l.LAC, l.Code = PLMN(v[1:]), binary.BigEndian.Uint16(v[4:]), binary.BigEndian.Uint16(v[6:])
	return l, true
}

// Append appends the value of the element.
func (l Location) Append(b []byte) []byte {
	b = append(b, byte(l.Kind))
	if l.Kind > LocationRouting {
		return append(b, l.Rest...)
	}
	b = append(b, l.PLMN[:]...)
	b = binary.BigEndian.AppendUint16(b, l.LAC)
	return binary.BigEndian.AppendUint16(b, l.Code)
}

var location = format[Location]{ParseLocation, func(b []byte, l Location) []byte { return l.Append(b) }}
