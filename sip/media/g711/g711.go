// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package g711 turns samples of 16 bits into the octets of ITU-T G.711 and back, by either
// law, 8,000 a second (RFC 3551 section 4.5.14).
//
//house:codec
package g711

import "math/bits"

// Rate is how many samples there are in a second.
const Rate = 8000

// Law is a companding law.
type Law uint8

// Laws, by the names that RTP has for them.
const (
	PCMU Law = iota // mu-law
	PCMA            // A-law
)

// String returns the encoding name of RTP.
func (l Law) String() string {
	switch l {
	case PCMU:
		return "PCMU"
	case PCMA:
		return "PCMA"
	}
	return "unknown"
}

// Silence is the octet of a sample of nothing.
func (l Law) Silence() byte {
	if l == PCMA {
		return 0xd5
	}
	return 0xff
}

// Decode returns the sample of an octet.
func (l Law) Decode(octet byte) int16 {
	if l == PCMA {
		return alaw[octet]
	}
	return mulaw[octet]
}

// Encode returns the octet of a sample.
func (l Law) Encode(sample int16) byte {
	if l == PCMA {
		return encodeA(sample)
	}
	return encodeMu(sample)
}

// Translate returns the octet that the other law has for the sound of one.
func (l Law) Translate(octet byte, to Law) byte {
	if l == to {
		return octet
	}
	return to.Encode(l.Decode(octet))
}

// The samples of all octets.
var mulaw, alaw = tables()

func tables() (mu, a [256]int16) {
	for i := range 256 {
		mu[i], a[i] = decodeMu(byte(i)), decodeA(byte(i))
	}
	return mu, a
}

// muBias makes the segments of mu-law begin at powers of two (in units of 14 bits).
const muBias = 33

// decodeMu is table 2 of G.711: sign, segment and interval, all bits inverted; the output is
// the middle of the interval, in 14 bits.
func decodeMu(octet byte) int16 {
	octet = ^octet
	segment, interval := octet>>4&7, int(octet&15)
	magnitude := (2*interval+muBias)<<segment - muBias
	return signed(magnitude<<2, octet&0x80 != 0)
}

func encodeMu(sample int16) byte {
	magnitude, sign := apart(sample)
	biased := min(magnitude>>2, 8158) + muBias // 8159 is where the last interval ends
	segment := bits.Len(uint(biased)) - 6
	return ^(sign | byte(segment<<4) | byte(biased>>(segment+1)&15))
}

// decodeA is table 1 of G.711, in 13 bits, every other bit inverted.
func decodeA(octet byte) int16 {
	octet ^= 0x55
	segment, interval := octet>>4&7, int(octet&15)
	magnitude := 2*interval + 1
	if segment > 0 {
		magnitude = (magnitude + 32) << (segment - 1)
	}
	return signed(magnitude<<3, octet&0x80 == 0)
}

func encodeA(sample int16) byte {
	magnitude, sign := apart(sample)
	magnitude >>= 3
	segment := max(bits.Len(uint(magnitude))-5, 0)
	return (sign ^ 0x80 | byte(segment<<4) | byte(magnitude>>max(segment, 1)&15)) ^ 0x55
}

// apart returns the magnitude of a sample, as one's complement has it, and its sign bit.
func apart(sample int16) (magnitude int, sign byte) {
	if sample < 0 {
		return int(^sample), 0x80
	}
	return int(sample), 0
}

func signed(magnitude int, negative bool) int16 {
	if negative {
		return int16(-magnitude)
	}
	return int16(magnitude)
}
