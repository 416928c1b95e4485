// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"slices"
	"strings"
)

// maxCSeq is the largest sequence number (RFC 3261 section 8.1.1.5).
const maxCSeq = 1<<31 - 1

// unique are fields that a message has once, and mandatory those of them that it must have (RFC
// 3261 sections 8.1.1 and 20).
var (
	mandatory = []string{"From", "To", "Call-ID", "CSeq"}
	unique    = append([]string{"Max-Forwards", "Expires", "Content-Type", "Min-Expires"}, mandatory...)
)

// methods are those that RFCs define.
var methods = strings.Fields("ACK BYE CANCEL INFO INVITE MESSAGE NOTIFY OPTIONS PRACK PUBLISH REFER REGISTER SUBSCRIBE UPDATE")

// IsMethod reports whether a method is one that an RFC defines.
func IsMethod(name string) bool { return slices.Contains(methods, name) }

// check looks at the fields that every message has.
func (p *parser) check() {
	m := p.m
	for _, name := range unique {
		switch n := len(m.All(name)); {
		case n > 1:
			p.fail(faultTwice)
		case n == 0 && slices.Contains(mandatory, name):
			p.fail(faultMissing)
		}
	}
	if !m.Has("Via") {
		p.fail(faultMissing)
	}
	if m.Has("Call-ID") && m.Get("Call-ID") == "" {
		p.fail(faultMissing)
	}
	p.checkVias()
	p.checkCSeq()
	p.checkAddresses()
	if value := m.Get("Max-Forwards"); m.Has("Max-Forwards") {
		if _, ok := number(value, 255); !ok { // section 20.22
			p.fail(faultMaxForwards)
		}
	}
}

func (p *parser) checkVias() {
	all := p.m.All("Via")
	if len(all) == 0 {
		return
	}
	v, ok := p.m.Via()
	if !ok {
		p.fail(faultVia)
	}
	if v.Branch() == Cookie {
		p.fail(faultBranch)
	}
	for _, value := range all[1:] {
		if _, err := ParseVia(value); err != nil {
			p.fail(faultVia)
		}
	}
}

func (p *parser) checkCSeq() {
	if !p.m.Has("CSeq") {
		return
	}
	_, method, ok := p.m.CSeq()
	switch {
	case !ok:
		p.fail(faultCSeq)
	case !p.m.IsRequest() || method == p.m.Method:
	case IsMethod(p.m.Method):
		p.fail(faultMethod)
	default: // RFC 4475 section 3.1.2.18
		p.fail(faultUnknown)
	}
}

// checkAddresses looks at those that are looked at whenever they are there.
func (p *parser) checkAddresses() {
	_, from := p.m.From()
	_, to := p.m.To()
	if p.m.Has("From") && !from || p.m.Has("To") && !to {
		p.fail(faultAddress)
	}
	for _, name := range []string{"Contact", "Route", "Record-Route", "Path", "Service-Route"} {
		for _, value := range p.m.All(name) {
			if name == "Contact" && value == "*" {
				continue
			}
			if _, err := ParseAddress(value); err != nil {
				p.fail(faultAddress)
			}
		}
	}
}

// CSeq is the sequence number with its method; ok is true of every message that [Parse] has
// found no fault with.
func (m *Message) CSeq() (n uint32, method string, ok bool) {
	words := strings.Fields(m.Get("CSeq"))
	if len(words) != 2 || !IsToken(words[1]) {
		return 0, "", false
	}
	number, ok := number(words[0], maxCSeq)
	return uint32(number), words[1], ok
}

// CallID is that of the message.
func (m *Message) CallID() string { return m.Get("Call-ID") }

// MaxForwards is how often the request may still be sent on. Not ok: it does not say.
func (m *Message) MaxForwards() (n int, ok bool) {
	value, ok := number(m.Get("Max-Forwards"), 255)
	return int(value), ok
}

// Unsupported are the option tags of Require, or of another such field, that are not among those
// supported (RFC 3261 section 8.2.2.3).
func (m *Message) Unsupported(field string, supported ...string) (tags []string) {
	for _, tag := range m.Tokens(field) {
		if !slices.ContainsFunc(supported, func(s string) bool { return strings.EqualFold(s, tag) }) {
			tags = append(tags, tag)
		}
	}
	return tags
}
