// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"encoding/base64"
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
	host := u.Host
	if other, has := maddr(u); has {
		host = other
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return p.Engine.settings.serves(host) || slices.Contains(p.Engine.settings.Hosts, host)
	}
	return slices.ContainsFunc(p.settings.Listeners, func(l Listener) bool {
		return l.Address.Addr() == a && l.Address.Port() == u.ServicePort()
	})
}

// passage is what the routes of this proxy in a request tell.
type passage struct {
	// known: the request is of a dialog that was made through it, or for a terminal that has
	// registered through it.
	known bool
	// terminal: it is for a terminal, and for nobody else.
	terminal bool
	// flow is the connection to the terminal; without a transport there is none.
	flow transaction.Target
}

// failed reports whether a request for a terminal cannot reach it: its connection is gone, or the
// request is to go on elsewhere (RFC 5626 section 5.3.1).
func (b *passage) failed(m *message.Message) bool {
	return b.terminal && (b.flow.Transport == "" || m.Has("Route"))
}

// within reports whether a request is of a dialog. By Path new ones come as well (RFC 3327 section 5.3).
func (b *passage) within(m *message.Message) bool {
	to, _ := m.To()
	return b.known && (!b.terminal || to.Tag() != "")
}

// preprocess takes this proxy out of the route of a request (RFC 3261 section 16.4).
func (p *Proxy) preprocess(m *message.Message) (by passage) {
	u, err := message.ParseURI(m.URI)
	if err == nil && p.stripMaddr(&u) {
		m.URI = u.String()
	}
	if err == nil && p.own(&u) && p.opens(u.User, m, &by) {
		// A strict router has put us there; the target is the last route.
		if routes := m.All("Route"); len(routes) > 0 {
			last, _ := message.ParseAddress(routes[len(routes)-1])
			m.URI = last.URI.String()
			m.Remove("Route")
			for _, r := range routes[:len(routes)-1] {
				m.Add("Route", r)
			}
		} else {
			by = passage{}
		}
	}
	for m.Has("Route") {
		first, err := message.ParseAddress(m.Get("Route"))
		if err != nil || !p.own(&first.URI) {
			break
		}
		p.opens(first.URI.User, m, &by)
		m.RemoveFirst("Route")
	}
	return by
}

// A route of this proxy's own has as its user what the request may do: a code, so that no one else
// can have requests passed on by it, and the connection to a terminal, if there is one.
const (
	forDialog   = "dialog"   // in Record-Route: for one Call-ID
	forTerminal = "terminal" // in Path: for whoever comes that way
)

// token makes such a user.
func (p *Proxy) token(purpose, callID string, flow []byte) string {
	code := hex.EncodeToString(p.routes.seal(stamp{}, []byte(purpose), []byte(callID), flow)[stampSize:])
	if len(flow) > 0 {
		code += "-" + base64.RawURLEncoding.EncodeToString(flow)
	}
	return code
}

// opens reports whether a user is a token for a request, and notes what it tells. Of several the
// last one counts: that of the side to which the request goes.
func (p *Proxy) opens(user string, m *message.Message, by *passage) bool {
	_, text, _ := strings.Cut(user, "-")
	flow, err := base64.RawURLEncoding.DecodeString(text)
	terminal := err == nil && user == p.token(forTerminal, "", flow)
	if err != nil || !terminal && user != p.token(forDialog, m.CallID(), flow) {
		return false
	}
	by.known, by.terminal, by.flow = true, terminal, p.unpackFlow(flow, m)
	return true
}

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
