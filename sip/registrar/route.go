// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// own reports whether a URI is one of this proxy's (RFC 3261 section 16.4).
func (p *Proxy) own(u *message.URI) bool {
	a, err := netip.ParseAddr(u.Host)
	if err != nil {
		return p.Engine.settings.serves(u.Host) || slices.Contains(p.Engine.settings.Hosts, u.Host)
	}
	return slices.ContainsFunc(p.settings.Listeners, func(l Listener) bool {
		return l.Address.Addr() == a && l.Address.Port() == u.ServicePort()
	})
}

// preprocess takes this proxy out of the route of a request (RFC 3261 section 16.4), and reports
// whether the request is of a dialog that was made through it.
func (p *Proxy) preprocess(m *message.Message) (known bool) {
	if u, err := message.ParseURI(m.URI); err == nil && p.own(&u) && p.isToken(u.User, m) {
		// A strict router has put us there; the target is the last route.
		if routes := m.All("Route"); len(routes) > 0 {
			last, _ := message.ParseAddress(routes[len(routes)-1])
			m.URI = last.URI.String()
			m.Remove("Route")
			for _, r := range routes[:len(routes)-1] {
				m.Add("Route", r)
			}
			known = true
		}
	}
	for m.Has("Route") {
		first, err := message.ParseAddress(m.Get("Route"))
		if err != nil || !p.own(&first.URI) {
			break
		}
		known = known || p.isToken(first.URI.User, m)
		m.RemoveFirst("Route")
	}
	return known
}

// token is the user of the URIs that this proxy puts into Record-Route: a code for the dialog, so
// that no one else can have requests passed on by it.
func (p *Proxy) token(m *message.Message) string {
	return hex.EncodeToString(p.auth.seal(stamp{}, []byte("route"), []byte(m.CallID()))[stampSize:])
}

func (p *Proxy) isToken(user string, m *message.Message) bool { return user == p.token(m) }

// loopCode is what a request goes by here: if it comes again with the same, it goes round (RFC
// 5393 section 4.2).
func (p *Proxy) loopCode(m *message.Message) string {
	from, _ := m.From()
	to, _ := m.To()
	parts := [][]byte{[]byte("loop"), []byte(m.URI), []byte(from.Tag()), []byte(to.Tag()), []byte(m.CallID()), []byte(m.Get("CSeq")), []byte(strings.Join(m.All("Route"), ","))}
	return hex.EncodeToString(p.auth.seal(stamp{}, parts...)[stampSize:][:8])
}

// loops reports whether a request has been here before with the same target.
func (p *Proxy) loops(m *message.Message) bool {
	code := ""
	for _, value := range m.All("Via") {
		v, err := message.ParseVia(value)
		if err != nil {
			continue
		}
		if _, its, ours := strings.Cut(v.Branch(), loopMark); ours {
			if code == "" {
				code = p.loopCode(m)
			}
			if its == code {
				return true
			}
		}
	}
	return false
}

// loopMark parts a branch from the loop's code in it.
const loopMark = ".isthmus."

// branch makes the branch of a request that goes on, which no one can guess.
func (p *Proxy) branch(loop string, now time.Time) string {
	unique := p.auth.seal(p.auth.stamp(now), []byte("branch"))[stampSize:]
	return message.Cookie + hex.EncodeToString(unique) + loopMark + loop
}

// flowOf is the connection of a user agent that registers, by which it is reached in place of its
// contact: one that it holds open, or that a NAT shows to be elsewhere than it thinks. Empty: it is
// reached by its contact.
func flowOf(m *message.Message, from transaction.Target) string {
	if len(m.All("Via")) != 1 {
		return ""
	}
	for _, value := range m.All("Contact") {
		a, err := message.ParseAddress(value)
		if err != nil || value == "*" {
			continue
		}
		host, err := netip.ParseAddr(a.URI.Host)
		translated := err == nil && host.Unmap() != from.Remote.Addr().Unmap()
		if a.Params.Has("reg-id") || from.Reliable() || translated {
			return writeFlow(from)
		}
	}
	return ""
}
