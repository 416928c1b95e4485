// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// Via is one value of Via (RFC 3261 section 20.42).
type Via struct {
	Transport string // in capitals
	Host      string // in small letters; an IPv6 address without brackets
	Port      uint16 // 0: none is named
	Params    Params
}

// Cookie begins a branch that tells transactions apart (RFC 3261 section 8.1.1.7).
const Cookie = "z9hG4bK"

var errVia = errors.New("the Via is malformed")

// ParseVia reads one value of Via.
func ParseVia(s string) (v Via, err error) {
	name, rest, one := strings.Cut(s, "/")
	version, rest, two := strings.Cut(rest, "/")
	if !one || !two || !strings.EqualFold(strings.TrimSpace(name), "SIP") || strings.TrimSpace(version) != "2.0" {
		return v, errVia
	}
	rest, params, there := strings.Cut(strings.TrimSpace(rest), ";")
	transport, by, spaced := strings.Cut(strings.ReplaceAll(strings.TrimSpace(rest), "\t", " "), " ")
	if !spaced || !IsToken(transport) {
		return v, errVia
	}
	v.Transport = strings.ToUpper(transport)
	if v.Host, v.Port, err = hostPort(strings.ReplaceAll(by, " ", "")); err != nil {
		return v, err
	}
	if there {
		v.Params, err = headerParams(params)
	}
	return v, err
}

// Branch is the parameter branch; empty: there is none.
func (v *Via) Branch() string {
	branch, _ := v.Params.Get("branch")
	return branch
}

// SentBy is where the sender says that it is.
func (v Via) SentBy() string { return JoinHostPort(v.Host, v.Port) }

// String writes the value.
func (v Via) String() string {
	return Version + "/" + v.Transport + " " + v.SentBy() + v.Params.String()
}

// Via is the topmost one; ok is true of every message that [Parse] has found no fault with.
func (m *Message) Via() (v Via, ok bool) {
	v, err := m.via.of(m.Get("Via"), ParseVia)
	return v, err == nil
}

// Receive notes in the topmost Via of a request where it has come from (RFC 3261 section 18.2.1,
// RFC 3581 section 4): received wherever that differs from what Via says, and always beside
// rport. What the sender wrote there itself is dropped.
func (m *Message) Receive(from netip.AddrPort) {
	v, ok := m.Via()
	if !ok {
		return
	}
	from = netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port())
	rport := v.Params.Has("rport")
	v.Params = v.Params.Without("received")
	if a, err := netip.ParseAddr(v.Host); rport || err != nil || a.Unmap() != from.Addr() {
		v.Params = v.Params.With("received", from.Addr().String())
	}
	if rport {
		v.Params = v.Params.With("rport", strconv.Itoa(int(from.Port())))
	}
	m.Set("Via", v.String())
}

// ReplyTo is where the response to a request goes that came in a datagram: back to its source, at
// the port of the source where rport asks for that and else at that of Via (RFC 3261 section
// 18.2.2, RFC 3581 section 4). No other host gets an answer, whatever Via names.
func (m *Message) ReplyTo(from netip.AddrPort) netip.AddrPort {
	v, ok := m.Via()
	switch {
	case !ok || v.Params.Has("rport"):
		return from
	case v.Port == 0:
		return netip.AddrPortFrom(from.Addr(), 5060)
	}
	return netip.AddrPortFrom(from.Addr(), v.Port)
}
