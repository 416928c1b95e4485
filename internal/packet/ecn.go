// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

// Code points of the ECN field (RFC 3168 section 5), which are the last two bits of a traffic class.
const (
	NotECT uint8 = 0b00 // the transport does not know marks
	ECT1   uint8 = 0b01
	ECT0   uint8 = 0b10
	CE     uint8 = 0b11 // congestion was met
	ECN    uint8 = 0b11 // all bits of the field
)

// Emerged is what [Emerge] found.
type Emerged uint8

// The findings.
const (
	// EmergedWell: the two fields go together.
	EmergedWell Emerged = iota
	// EmergedOddly: no tunnel makes such a pair, or none that is known. The packet goes on.
	EmergedOddly
	// EmergedLost: congestion outside, of a transport that knows it by loss alone: the packet must be dropped.
	EmergedLost
)

// emerging is figure 4 of RFC 6040 section 4.2: by the field inside, then the one outside, that of
// the packet that goes on.
var emerging = [4][4]struct {
	field uint8
	found Emerged
}{
	NotECT: {NotECT: {NotECT, EmergedWell}, ECT1: {NotECT, EmergedOddly}, ECT0: {NotECT, EmergedOddly}, CE: {NotECT, EmergedLost}},
	ECT1:   {NotECT: {ECT1, EmergedWell}, ECT1: {ECT1, EmergedWell}, ECT0: {ECT1, EmergedOddly}, CE: {CE, EmergedWell}},
	ECT0:   {NotECT: {ECT0, EmergedWell}, ECT1: {ECT1, EmergedWell}, ECT0: {ECT0, EmergedWell}, CE: {CE, EmergedWell}},
	CE:     {NotECT: {CE, EmergedWell}, ECT1: {CE, EmergedOddly}, ECT0: {CE, EmergedWell}, CE: {CE, EmergedWell}},
}

// Emerge gives a packet that leaves a tunnel the ECN field that it goes on with, by the traffic class of
// the packet that carried it.
func Emerge(p []byte, outer uint8) Emerged {
	inner := TrafficClass(p)
	to := emerging[inner&ECN][outer&ECN]
	if to.field != inner&ECN {
		SetTrafficClass(p, inner&^ECN|to.field)
	}
	return to.found
}
