// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "math/bits"

// maxQoS is the longest profile, that of release 9 and later.
const maxQoS = 21

// qosV0Len is the length of a profile of release 97, without the priority before it.
const qosV0Len = 3

// QoS is a quality of service profile as elements hold it (TS 29.060 section 7.7.34, TS
// 24.008 section 10.5.6.5): allocation and retention priority, then 3 octets of release
// 97, 11 of release 99, 12, 14, 16 or 20 of later ones. It is as long as it was
// received, up to 21 octets, so that it can be sent back at no greater length. Version
// 0 has the octets of release 97 alone. [QoS.Profile] reads it.
type QoS struct {
	octets [maxQoS]byte
	n      uint8
}

// Len returns the length, the priority's octet included.
func (q QoS) Len() int { return int(q.n) }

// ParseQoS reads the value of an element of version 1. What stands behind the octets of
// release 9 is ignored.
func ParseQoS(v []byte) (q QoS, ok bool) {
	if len(v) < 1+qosV0Len {
		return q, false
	}
	q.n = uint8(copy(q.octets[:], v))
	return q, true
}

func parseQoSV0(v []byte) (q QoS, ok bool) {
	if len(v) < qosV0Len {
		return q, false
	}
	q.n = uint8(1 + copy(q.octets[1:], v[:qosV0Len]))
	return q, true
}

// qosFormat is the format of the version: another element and no priority in version 0.
func qosFormat(v Version) (ElementType, format[QoS]) {
	if v == V0 {
		return ElementQoSV0, format[QoS]{parseQoSV0, func(b []byte, q QoS) []byte {
			return append(b, q.octets[min(1, int(q.n)):min(int(q.n), 1+qosV0Len)]...)
		}}
	}
	return ElementQoS, format[QoS]{ParseQoS, func(b []byte, q QoS) []byte { return append(b, q.octets[:q.n]...) }}
}

// TrafficClass is a class of release 99 (TS 23.107 section 6.3).
type TrafficClass uint8

// Traffic classes.
const (
	ClassSubscribed     TrafficClass = 0
	ClassConversational TrafficClass = 1
	ClassStreaming      TrafficClass = 2
	ClassInteractive    TrafficClass = 3
	ClassBackground     TrafficClass = 4
)

// Profile are the attributes of a [QoS]. Of attributes that its length has not, the
// value is zero, and zero is "subscribed".
type Profile struct {
	Priority uint8 // allocation and retention, 1 highest

	// Release 97.
	Delay, Reliability, Peak, Precedence, Mean uint8

	// Release 99.
	Class            TrafficClass
	DeliveryOrder    uint8 // 1 with, 2 without
	ErroneousSDU     uint8 // 1 no detection, 2 delivered, 3 not delivered
	MaxSDU           uint8 // see MaxSDUOctets
	MaxUp, MaxDown   BitRate
	ResidualBER      uint8
	SDUError         uint8
	TransferDelay    uint8 // see DelayMilliseconds
	HandlingPriority uint8 // of interactive traffic, 1 highest
	GuaranteedUp     BitRate
	GuaranteedDown   BitRate
	Signalling       bool  // release 5: optimised for signalling
	SourceStatistics uint8 // release 5: 1 speech
}

// Profile reads the attributes.
func (q QoS) Profile() Profile {
	o := &q.octets // octets beyond the length are zero
	return Profile{
		Priority: o[0],
		Delay:    o[1] >> 3 & 7, Reliability: o[1] & 7,
		Peak: o[2] >> 4, Precedence: o[2] & 7,
		Mean:  o[3] & 0x1f,
		Class: TrafficClass(o[4] >> 5), DeliveryOrder: o[4] >> 3 & 3, ErroneousSDU: o[4] & 7,
		MaxSDU:      o[5],
		MaxUp:       bitRate(o[6], o[15], o[19]),
		MaxDown:     bitRate(o[7], o[13], o[17]),
		ResidualBER: o[8] >> 4, SDUError: o[8] & 0xf,
		TransferDelay: o[9] >> 2, HandlingPriority: o[9] & 3,
		GuaranteedUp:   bitRate(o[10], o[16], o[20]),
		GuaranteedDown: bitRate(o[11], o[14], o[18]),
		Signalling:     o[12]&0x10 != 0, SourceStatistics: o[12] & 0xf,
	}
}

// QoS writes the attributes at a length of 4 to 21 octets, 12 and more for those of
// release 99. Rates that the length has no octets for are cut to what it has.
func (p Profile) QoS(length int) QoS {
	q := QoS{n: uint8(min(max(length, 1+qosV0Len), maxQoS))}
	o := &q.octets
	o[0] = p.Priority
	o[1] = p.Delay&7<<3 | p.Reliability&7
	o[2] = p.Peak<<4 | p.Precedence&7
	o[3] = p.Mean & 0x1f
	o[4] = byte(p.Class)<<5 | p.DeliveryOrder&3<<3 | p.ErroneousSDU&7
	o[5] = p.MaxSDU
	o[6], o[15], o[19] = p.MaxUp.octets(q.has(15), q.has(19))
	o[7], o[13], o[17] = p.MaxDown.octets(q.has(13), q.has(17))
	o[8] = p.ResidualBER<<4 | p.SDUError&0xf
	o[9] = p.TransferDelay<<2 | p.HandlingPriority&3
	o[10], o[16], o[20] = p.GuaranteedUp.octets(q.has(16), q.has(20))
	o[11], o[14], o[18] = p.GuaranteedDown.octets(q.has(14), q.has(18))
	if p.Signalling {
		o[12] = 0x10
	}
	o[12] |= p.SourceStatistics & 0xf
	clear(o[q.n:])
	return q
}

// has reports whether the profile is long enough for the octet.
func (q QoS) has(at uint8) bool { return q.n > at }

// PeakRate returns the rate of the peak throughput class in kbit/s, 0 for what is subscribed or
// reserved (TS 23.107 section 9.1.2.3).
func (p Profile) PeakRate() uint32 {
	if p.Peak < 1 || p.Peak > maxPeak {
		return 0
	}
	return 8 << (p.Peak - 1)
}

// maxPeak is the class of 2048 kbit/s.
const maxPeak = 9

// PeakOf returns the highest peak throughput class of no more than a rate in kbit/s, the lowest
// one for rates below it.
func PeakOf(rate uint32) uint8 {
	return uint8(min(max(bits.Len32(rate/8), 1), maxPeak))
}

// MaxSDUOctets returns the size of the largest packet, 0 for what is subscribed or
// reserved.
func (p Profile) MaxSDUOctets() int {
	switch {
	case p.MaxSDU <= 0x96:
		return 10 * int(p.MaxSDU)
	case p.MaxSDU == 0x97:
		return 1502
	case p.MaxSDU == 0x98:
		return 1510
	case p.MaxSDU == 0x99:
		return 1520
	}
	return 0
}

// DelayMilliseconds returns the transfer delay, 0 for what is subscribed or reserved.
func (p Profile) DelayMilliseconds() int {
	switch d := int(p.TransferDelay); {
	case d < 0x10:
		return 10 * d
	case d < 0x20:
		return 200 + 50*(d-0x10)
	case d < 0x3f:
		return 1000 + 100*(d-0x20)
	}
	return 0
}

// Octets returns a copy of what [ParseQoS] reads.
func (q QoS) Octets() []byte { return append([]byte(nil), q.octets[:q.n]...) }
