// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

// pointerNextHeader is where the Next Header field stands (RFC 7915 section 4.2, code
// 2 of type 3).
const pointerNextHeader = 6

// pointerTo6 translates the pointer of a Parameter Problem (RFC 7915 figure 3). ok is
// false for fields that IPv6 does not have.
func pointerTo6(pointer uint8) (out uint8, ok bool) {
	switch {
	case pointer <= 1: // version and header length; type of service
		return pointer, true
	case pointer <= 3: // total length
		return 4, true
	case pointer == 8: // time to live
		return 7, true
	case pointer == 9: // protocol
		return pointerNextHeader, true
	case pointer >= 12 && pointer <= 15: // source
		return 8, true
	case pointer >= 16 && pointer <= 19: // destination
		return 24, true
	}
	return 0, false
}

// pointerTo4 is the way back (RFC 7915 figure 6).
func pointerTo4(pointer uint32) (out uint8, ok bool) {
	switch {
	case pointer <= 1: // version, traffic class
		return uint8(pointer), true
	case pointer == 4 || pointer == 5: // payload length
		return 2, true
	case pointer == pointerNextHeader:
		return 9, true
	case pointer == 7: // hop limit
		return 8, true
	case pointer >= 8 && pointer <= 23: // source
		return 12, true
	case pointer >= 24 && pointer <= 39: // destination
		return 16, true
	}
	return 0, false
}
