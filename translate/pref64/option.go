// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pref64

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate"
)

const (
	optionType   = 38 // RFC 8781 section 4
	optionLen    = 16 // octets
	optionUnits  = 2  // the same in the units of its length field
	lifetimeUnit = 8 * time.Second
	maxScaled    = 1<<13 - 1
	plcBits      = 3
)

// MaxLifetime is the longest that an option can say: 65528 s.
const MaxLifetime = maxScaled * lifetimeUnit

// prefixBits are the lengths by their code.
var prefixBits = [...]int{96, 64, 56, 48, 40, 32}

// Option is the PREF64 option of a Router Advertisement (RFC 8781 section 4).
type Option struct {
	Prefix netip.Prefix
	// Lifetime is how long the prefix may be used; 0: no longer. In an option it is a
	// multiple of 8 s: it is rounded up, and cut at MaxLifetime.
	Lifetime time.Duration
}

// AppendOption appends the octets of an option:
//
//	38 | 2 | lifetime/8 s (13 bits), length code (3 bits) | bits 0 to 95 of the prefix
func AppendOption(b []byte, o Option) ([]byte, error) {
	if _, err := translate.NewPrefix(o.Prefix); err != nil {
		return b, err
	}
	if o.Lifetime < 0 {
		return b, fmt.Errorf("the lifetime %v is negative; 0 withdraws a prefix", o.Lifetime)
	}
	b = append(b, optionType, optionUnits)
	for code, bits := range prefixBits {
		if bits == o.Prefix.Bits() {
			b = binary.BigEndian.AppendUint16(b, scaled(o.Lifetime)<<plcBits|uint16(code))
		}
	}
	prefix := o.Prefix.Addr().As16()
	return append(b, prefix[:12]...), nil
}

// scaled is a lifetime in units of 8 s, rounded up, so that no time but 0 becomes 0
// (RFC 8781 section 4.1).
func scaled(d time.Duration) uint16 {
	return uint16(min((min(d, MaxLifetime)+lifetimeUnit-1)/lifetimeUnit, maxScaled))
}

// DefaultLifetime is that of an option in advertisements sent at most interval apart
// (RFC 8781 section 4.1).
func DefaultLifetime(interval time.Duration) time.Duration { return min(3*interval, MaxLifetime) }

// ParseOption reads the octets of an option. ok is false for another option, and for
// what a receiver must ignore: another length, an unknown length code, and a prefix that
// no translator can use. Bits behind the prefix's length do not matter.
func ParseOption(b []byte) (o Option, ok bool) {
	if len(b) != optionLen || b[0] != optionType || b[1] != optionUnits {
		return o, false
	}
	field := binary.BigEndian.Uint16(b[2:])
	code := int(field & (1<<plcBits - 1))
	if code >= len(prefixBits) {
		return o, false
	}
	var raw [16]byte
	copy(raw[:], b[4:optionLen])
	o.Prefix = netip.PrefixFrom(netip.AddrFrom16(raw), prefixBits[code]).Masked()
	o.Lifetime = time.Duration(field>>plcBits) * lifetimeUnit
	_, err := translate.NewPrefix(o.Prefix)
	return o, err == nil
}
