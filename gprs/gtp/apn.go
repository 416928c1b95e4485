// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import (
	"fmt"
	"strings"
)

// maxAPN is the longest name in octets, with its lengths (TS 23.003 section 9.1).
const maxAPN = 100

// APN is an access point name as elements hold it: labels, each behind its length,
// without a root label (TS 29.060 section 7.7.30, TS 23.003 section 9.1). It aliases
// the datagram it was read from.
type APN []byte

// ParseAPN reads labels with dots between them.
func ParseAPN(name string) (APN, error) {
	if name == "" {
		return nil, fmt.Errorf("an APN is not empty")
	}
	var a APN
	for label := range strings.SplitSeq(name, ".") {
		if len(label) < 1 || len(label) > 63 {
			return nil, fmt.Errorf("label %q of APN %q has not 1 to 63 octets", label, name)
		}
		a = append(append(a, byte(len(label))), label...)
	}
	if !a.valid() {
		return nil, fmt.Errorf("APN %q exceeds %d octets", name, maxAPN)
	}
	return a, nil
}

// valid reports whether it is labels.
func (a APN) valid() bool {
	if len(a) == 0 || len(a) > maxAPN {
		return false
	}
	for b := []byte(a); len(b) > 0; {
		n := int(b[0])
		if n == 0 || n > 63 || n >= len(b) {
			return false
		}
		b = b[1+n:]
	}
	return true
}

// AppendKey appends the name in lower case with dots between the labels, for a look-up
// that allocates nothing: names differ not by case (TS 23.003 section 9.1).
func (a APN) AppendKey(b []byte) []byte {
	for len(a) > 0 {
		n := int(a[0])
		for _, c := range a[1 : 1+n] {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			b = append(b, c)
		}
		if a = a[1+n:]; len(a) > 0 {
			b = append(b, '.')
		}
	}
	return b
}

// String returns the name for people: as [APN.AppendKey], what is not printable ASCII
// as a backslash and three digits.
func (a APN) String() string {
	var text strings.Builder
	for _, c := range a.AppendKey(nil) {
		if c <= ' ' || c >= 0x7f {
			fmt.Fprintf(&text, "\\%03d", c)
		} else {
			text.WriteByte(c)
		}
	}
	return text.String()
}

var apn = format[APN]{
	parse:  func(v []byte) (APN, bool) { return APN(v), APN(v).valid() },
	append: func(b []byte, a APN) []byte { return append(b, a...) },
}
