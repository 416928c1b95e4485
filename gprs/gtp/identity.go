// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "fmt"

// IMSI is an international mobile subscriber identity as elements hold it (TS 29.060
// section 7.7.2): up to 15 digits, the first in the low half of the first octet, and
// ones behind the last. It is a key of maps.
type IMSI [8]byte

// ParseIMSI reads 1 to 15 digits.
func ParseIMSI(digits string) (IMSI, error) {
	var m IMSI
	if len(digits) == 0 || len(digits) > 15 || !appendableBCD(digits) {
		return m, fmt.Errorf("an IMSI has 1 to 15 digits, not %q", digits)
	}
	fillBCD(m[:], digits)
	return m, nil
}

// String returns the digits.
func (m IMSI) String() string { return digitsOf(m[:]) }

// Is reports whether it has these digits, of which there must be some.
func (m IMSI) Is(digits string) bool { return hasDigits(m[:], digits) }

// valid reports whether it is digits, and then nothing but ones.
func (m IMSI) valid() bool { return m[7]>>4 == 0xf && validBCD(m[:]) }

// IMEI is the identity of a terminal, with its software version or with a filler (TS
// 29.060 section 7.7.53).
type IMEI [8]byte

// ParseIMEI reads 15 or 16 digits.
func ParseIMEI(digits string) (IMEI, error) {
	var m IMEI
	if len(digits) != 15 && len(digits) != 16 || !appendableBCD(digits) {
		return m, fmt.Errorf("an IMEI has 15 digits, an IMEISV 16, not %q", digits)
	}
	fillBCD(m[:], digits)
	return m, nil
}

// String returns the digits.
func (m IMEI) String() string { return digitsOf(m[:]) }

// TID is the tunnel identifier of GTPv0 (TS 09.60 section 12): the IMSI, and the NSAPI
// in the upper half of the last octet. As a key it is opaque, since a widespread peer
// writes its octets in the reverse order.
type TID [8]byte

// MakeTID makes the identifier of a context. The NSAPI is below 16.
func MakeTID(m IMSI, nsapi uint8) TID {
	t := TID(m)
	t[7] = t[7]&0x0f | nsapi<<4
	return t
}

// NSAPI returns that of the context.
func (t TID) NSAPI() uint8 { return t[7] >> 4 }

// IMSI returns the subscriber's identity. ok is false if there are no digits where the
// standard has them; the [TID.Reversed] one may have them.
func (t TID) IMSI() (m IMSI, ok bool) {
	m = IMSI(t)
	m[7] |= 0xf0
	return m, m.valid()
}

// Reversed returns the octets in reverse order, as OpenGGSN and its descendants write
// them on machines of small byte order.
func (t TID) Reversed() TID {
	for i, j := 0, 7; i < j; i, j = i+1, j-1 {
		t[i], t[j] = t[j], t[i]
	}
	return t
}

// String returns the digits of the IMSI and the NSAPI.
func (t TID) String() string {
	m, _ := t.IMSI()
	return fmt.Sprintf("%s/%d", m, t.NSAPI())
}

// MSISDN is a subscriber's number (TS 29.060 section 7.7.33): an octet with kind and
// plan of the number (0x91 is international, E.164), and up to 16 digits.
type MSISDN struct {
	octets [9]byte
	n      uint8
}

// kindInternational is an international number of the plan of E.164 (TS 29.002 section
// 17.7.8).
const kindInternational = 0x91

// ParseMSISDN reads the digits of an international number, without a plus sign.
func ParseMSISDN(digits string) (MSISDN, error) {
	var m MSISDN
	if len(digits) == 0 || len(digits) > 15 || !appendableBCD(digits) {
		return m, fmt.Errorf("an MSISDN has 1 to 15 digits, not %q", digits)
	}
	m.octets[0], m.n = kindInternational, uint8(1+(len(digits)+1)/2)
	fillBCD(m.octets[1:m.n], digits)
	return m, nil
}

// String returns the digits.
func (m MSISDN) String() string {
	if m.n < 2 {
		return ""
	}
	return digitsOf(m.octets[1:m.n])
}

// Octets returns those of the element.
func (m MSISDN) Octets() []byte { return m.octets[:m.n] }

// MSISDNOf is the reverse of [MSISDN.Octets].
func MSISDNOf(v []byte) (m MSISDN, ok bool) {
	if len(v) < 1 || len(v) > len(m.octets) {
		return m, false
	}
	m.n = uint8(copy(m.octets[:], v))
	return m, true
}

// Is reports whether it has these digits, of which there must be some.
func (m MSISDN) Is(digits string) bool { return m.n > 1 && hasDigits(m.octets[1:m.n], digits) }

func appendMSISDN(b []byte, m MSISDN) []byte { return append(b, m.octets[:m.n]...) }

// fillBCD writes digits, the first in the low half of an octet, and ones behind them.
func fillBCD(b []byte, digits string) {
	for i := range b {
		b[i] = 0xff
	}
	for i := range len(digits) {
		d, shift := digits[i]-'0', 4*(i%2)
		b[i/2] = b[i/2]&^(0xf<<shift) | d<<shift
	}
}

func appendableBCD(digits string) bool {
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return true
}

// validBCD reports whether b is a digit or more, and then nothing but ones.
func validBCD(b []byte) bool {
	ended := false
	for i := range 2 * len(b) {
		switch d := b[i/2] >> (4 * (i % 2)) & 0xf; {
		case d == 0xf:
			ended = true
		case ended || d > 9:
			return false
		}
	}
	return b[0] != 0xff
}

// hasDigits reports whether [digitsOf] returns some text, which is not empty.
func hasDigits(b []byte, text string) bool {
	for i := range len(text) {
		if i >= 2*len(b) {
			return false
		}
		if d := b[i/2] >> (4 * (i % 2)) & 0xf; d == 0xf || bcd[d] != text[i] {
			return false
		}
	}
	n := len(text)
	return n > 0 && (n == 2*len(b) || b[n/2]>>(4*(n%2))&0xf == 0xf)
}

// bcd are the digits; what is none is written as in TS 29.002 section 17.7.8.
const bcd = "0123456789*#abc"

// digitsOf returns the digits before the filler.
func digitsOf(b []byte) string {
	text := make([]byte, 0, 18)
	for i := range 2 * len(b) {
		d := b[i/2] >> (4 * (i % 2)) & 0xf
		if d == 0xf {
			break
		}
		text = append(text, bcd[d])
	}
	return string(text)
}
