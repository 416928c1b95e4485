// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "math"

// BitRate is a rate in kbit/s. Zero is what the user has subscribed to; [RateZero] is
// no traffic at all.
type BitRate uint32

// RateZero is a rate of 0 kbit/s.
const RateZero BitRate = math.MaxUint32

// KilobitsPerSecond returns the rate. ok is false of what is subscribed.
func (r BitRate) KilobitsPerSecond() (rate uint32, ok bool) {
	if r == RateZero {
		return 0, true
	}
	return uint32(r), r != 0
}

// rateStep is one part of a scale: from the octet first on, rates grow by step above
// base.
type rateStep struct {
	first, last byte
	base, step  uint32 // kbit/s; the octet first is base + step
}

// The scales of TS 24.008 section 10.5.6.5. An octet of an extended scale counts if it
// is not zero, and replaces the one below it.
var (
	baseRates = []rateStep{
		{0x01, 0x3f, 0, 1},
		{0x40, 0x7f, 56, 8},
		{0x80, 0xfe, 512, 64},
	}
	extendedRates = []rateStep{
		{0x01, 0x4a, 8600, 100},
		{0x4b, 0xba, 16_000, 1000},
		{0xbb, 0xfa, 128_000, 2000},
	}
	extended2Rates = []rateStep{
		{0x01, 0x3d, 256_000, 4000},
		{0x3e, 0xa1, 500_000, 10_000},
		{0xa2, 0xf6, 1_500_000, 100_000},
	}
)

// Octets of a scale whose rate is in the scale above.
const (
	baseFull     = 0xfe
	extendedFull = 0xfa
	baseZero     = 0xff
)

// bitRate reads a rate from its octets of the three scales; those that the profile is
// too short for are zero.
func bitRate(base, extended, extended2 byte) BitRate {
	switch {
	case extended2 != 0:
		return rateOf(extended2Rates, extended2)
	case extended != 0:
		return rateOf(extendedRates, extended)
	case base == baseZero:
		return RateZero
	}
	return rateOf(baseRates, base)
}

// rateOf returns the rate of an octet; reserved ones are the highest of the scale.
func rateOf(scale []rateStep, octet byte) BitRate {
	if octet == 0 {
		return 0
	}
	for _, s := range scale {
		if octet <= s.last {
			return BitRate(s.base + s.step*uint32(octet-s.first+1))
		}
	}
	s := scale[len(scale)-1]
	return BitRate(s.base + s.step*uint32(s.last-s.first+1))
}

// octets writes a rate, rounded down to one that the scales have: nothing is granted
// beyond it.
func (r BitRate) octets(hasExtended, hasExtended2 bool) (base, extended, extended2 byte) {
	if r == RateZero {
		return baseZero, 0, 0
	}
	base = octetOfRate(baseRates, r)
	if hasExtended {
		if extended = octetOfRate(extendedRates, r); extended != 0 {
			base = baseFull
		}
	}
	if hasExtended && hasExtended2 {
		if extended2 = octetOfRate(extended2Rates, r); extended2 != 0 {
			extended = extendedFull
		}
	}
	return base, extended, extended2
}

// octetOfRate returns the octet of the highest rate of the scale that is not above r, 0
// if all are.
func octetOfRate(scale []rateStep, r BitRate) (octet byte) {
	for _, s := range scale {
		if uint32(r) >= s.base+s.step {
			octet = s.first + byte(min((uint32(r)-s.base)/s.step-1, uint32(s.last-s.first)))
		}
	}
	return octet
}
