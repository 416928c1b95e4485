// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"errors"
	"fmt"
	"strings"
)

// Address is the value of From, To, Contact, Route and their like (RFC 3261 section 20.10).
type Address struct {
	// Display is the name as it came, with quotation marks if it has them.
	Display string
	URI     URI
	// Params are those of the field, not of the URI.
	Params Params
}

var errAddress = errors.New("the address is malformed")

// ParseAddress reads the value of such a field.
func ParseAddress(s string) (a Address, err error) {
	s = strings.TrimSpace(s)
	uri, params := "", ""
	if n := quotation(s); n > 0 {
		a.Display = s[:n]
		s = strings.TrimSpace(s[n:])
		if !strings.HasPrefix(s, "<") {
			return a, errAddress
		}
	}
	display, rest, bracketed := strings.Cut(s, "<")
	if bracketed {
		if a.Display == "" {
			a.Display = strings.TrimSpace(display)
		}
		for word := range strings.FieldsSeq(display) {
			if !IsToken(word) {
				return a, fmt.Errorf("%q is no display name: %w", display, errAddress)
			}
		}
		if uri, params, bracketed = strings.Cut(rest, ">"); !bracketed {
			return a, errAddress
		}
	} else {
		end := strings.IndexByte(s, ';')
		if end < 0 {
			end = len(s)
		}
		uri, params = strings.TrimSpace(s[:end]), s[end:]
		// Without brackets a URI must have none of these (section 20).
		if strings.ContainsAny(uri, ",?") {
			return a, fmt.Errorf("%q must stand in <>: %w", uri, errAddress)
		}
	}
	if a.URI, err = ParseURI(uri); err != nil {
		return a, err
	}
	if params = strings.TrimSpace(params); params == "" {
		return a, nil
	}
	if params[0] != ';' {
		return a, errAddress
	}
	a.Params, err = headerParams(params[1:])
	return a, err
}

// Tag is the parameter tag; empty: there is none.
func (a *Address) Tag() string {
	tag, _ := a.Params.Get("tag")
	return tag
}

// DefaultQ is the preference of a contact that names none, in thousandths: the highest.
const DefaultQ = 1000

// Q is the preference that a contact names, in thousandths (RFC 3261 section 20.10). Not ok: what it
// names is none.
func (a *Address) Q() (q uint16, ok bool) {
	s, there := a.Params.Get("q")
	if !there {
		return DefaultQ, true
	}
	whole, fraction, _ := strings.Cut(s, ".")
	n, ok := number(whole+(fraction + "000")[:3], DefaultQ)
	if !ok || len(whole) != 1 || len(fraction) > 3 {
		return 0, false
	}
	return uint16(n), true
}

// String writes the address, always with angle brackets.
func (a Address) String() string {
	display := a.Display
	if display != "" {
		display += " "
	}
	return display + "<" + a.URI.String() + ">" + a.Params.String()
}

// From is the address of From; ok is true of every message that [Parse] has found no fault with.
func (m *Message) From() (a Address, ok bool) {
	a, err := m.from.of(m.Get("From"), ParseAddress)
	return a, err == nil
}

// To is the address of To, likewise.
func (m *Message) To() (a Address, ok bool) {
	a, err := m.to.of(m.Get("To"), ParseAddress)
	return a, err == nil
}

// Addresses are those of all fields of a name, such as Contact or Record-Route. Contact: * is none.
func (m *Message) Addresses(name string) (all []Address) {
	for _, value := range m.All(name) {
		if a, err := ParseAddress(value); err == nil {
			all = append(all, a)
		}
	}
	return all
}
