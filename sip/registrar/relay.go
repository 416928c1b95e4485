// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// goal is one target of a request (RFC 3261 section 16.5).
type goal struct {
	uri  string
	path []string // proxies on the way (RFC 3327)
	flow string   // the connection to take
	tls  bool     // nothing but TLS goes there
	q    uint16
	// binding is what a flow belongs to (RFC 5626), and others are further flows of the same
	// terminal, which are taken where this one fails.
	aor     string
	binding location.Binding
	others  []goal
}

// relay passes a request on to its targets, or redirects it to them.
func (p *Proxy) relay(s *transaction.Server, m *message.Message, by passage, now time.Time, out *Output) {
	goals, local, looped := p.goals(m, by, now)
	switch {
	case len(goals) == 0 && looped:
		p.answer(s, Loop, 482, "Loop Detected", out)
		return
	case len(goals) == 0:
		p.nowhere(s, m, now, out)
		return
	case local && p.settings.Redirect:
		p.redirect(s, goals, now, out)
		return
	}
	breadth, err := strconv.Atoi(m.Get("Max-Breadth"))
	if err != nil || breadth > defaultBreadth {
		breadth = defaultBreadth
	}
	if len(goals) > breadth { // RFC 5393 section 5.3
		p.answer(s, TooManyForks, 440, "Max-Breadth Exceeded", out)
		return
	}
	if len(goals) > 1 {
		m.Set("Max-Breadth", strconv.Itoa(breadth/len(goals)))
	}
	p.relayed[Relayed]++
	c := &call{server: s, request: m, goals: goals, origin: p.origin, flow: p.callerFlow(s.Request, p.origin), known: by.within(m), repeats: p.settings.Transactions.T2}
	s.User = c
	if m.Method == "INVITE" {
		s.Respond(message.Reply(s.Request, 100, "Trying", ""), now, &out.Output)
	}
	p.advance(c, now, out)
}

// nowhere answers a request for somebody who has no contact for it.
func (p *Proxy) nowhere(s *transaction.Server, m *message.Message, now time.Time, out *Output) {
	u, _ := message.ParseURI(m.URI)
	aor := aorOf(&u)
	switch {
	case p.directory.byAOR[aor] == nil:
		p.answer(s, NoBinding, 404, "Not Found", out)
	case u.Scheme == "sips" && len(p.bindings(aor, now)) > 0: // RFC 5630 section 5.3
		warning := fmt.Sprintf(`380 %s "SIPS Not Allowed"`, p.Engine.settings.Domains[0])
		p.answer(s, NoBinding, 480, "Temporarily Unavailable", out, message.Header{Name: "Warning", Value: warning})
	default: // who has an account but no contact can be called later (section 16.5)
		p.answer(s, NoBinding, 480, "Temporarily Unavailable", out)
	}
}

// defaultBreadth is how many branches a request may have that names no number.
const defaultBreadth = 60

// redirect answers with the contacts (RFC 3261 section 8.3), none of which is where the request has
// come to.
func (p *Proxy) redirect(s *transaction.Server, goals []goal, now time.Time, out *Output) {
	var fields []message.Header
	for _, g := range goals {
		if g.uri != s.Request.URI {
			u, _ := message.ParseURI(g.uri)
			a := message.Address{URI: u}
			if g.q != message.DefaultQ {
				a.Params = a.Params.With("q", writeQ(g.q))
			}
			fields = append(fields, message.Header{Name: "Contact", Value: a.String()})
		}
	}
	if len(fields) == 0 {
		p.answer(s, NoBinding, 480, "Temporarily Unavailable", out)
		return
	}
	p.answer(s, Redirected, 302, "Moved Temporarily", out, fields...)
}

// forward makes what goes to a target (RFC 3261 section 16.6), but for Via and Record-Route, and says
// by which URI it goes there.
func (p *Proxy) forward(m *message.Message, g *goal) (copied *message.Message, hop message.URI) {
	copied = m.Clone()
	target, _ := message.ParseURI(g.uri)
	target.Headers = "" // a contact may have some, a Request-URI none
	target.Params = target.Params.Without("method")
	copied.URI = target.String()
	if hops, there := m.MaxForwards(); there {
		copied.Set("Max-Forwards", strconv.Itoa(hops-1))
	} else {
		copied.Add("Max-Forwards", "70")
	}
	for i := len(g.path) - 1; i >= 0; i-- {
		copied.Prepend("Route", g.path[i])
	}
	hop = target
	if copied.Has("Route") {
		first, _ := message.ParseAddress(copied.Get("Route"))
		hop = first.URI
		if !hop.Params.Has("lr") { // a strict router wants itself as the target (number 6)
			copied.RemoveFirst("Route")
			copied.Add("Route", "<"+copied.URI+">")
			copied.URI = hop.String()
		}
	}
	if host, has := maddr(&hop); has {
		hop.Host = host
	}
	if g.tls || target.Scheme == "sips" { // whatever the route says (number 7)
		hop.Scheme = "sips"
	}
	return copied, hop
}

// ways are the listeners and the address for a URI whose host is an address, the preferred one
// first. If there are none, the transport is what a name is looked up for.
func (p *Proxy) ways(hop *message.URI, size int) (ways []transaction.Target, transport string) {
	asked, _ := hop.Params.Get("transport")
	transport = strings.ToUpper(asked)
	transports := []string{transport}
	switch {
	case hop.Scheme == "sips":
		transports = []string{"TLS"}
	case transport == "" && size > message.MaxDatagram(p.settings.MTU):
		transports = []string{"TCP", "UDP"} // section 18.1.1: UDP where the other end has no TCP
	case transport == "":
		transports = []string{"UDP"}
	}
	a, err := netip.ParseAddr(hop.Host)
	for _, t := range transports {
		if to, ok := p.via(t, netip.AddrPortFrom(a.Unmap(), hop.ServicePort())); ok && err == nil {
			ways = append(ways, to)
		}
	}
	return ways, transports[0]
}

// via finds the listener for an address: of several the one whose address has most in common with it
// (RFC 6724 section 5, rule 8).
func (p *Proxy) via(transport string, to netip.AddrPort) (t transaction.Target, ok bool) {
	if !to.Addr().IsValid() || to.Addr().IsUnspecified() || to.Addr().IsMulticast() {
		return t, false
	}
	most := -1
	for _, l := range p.settings.Listeners {
		if l.Transport != transport || l.Address.Addr().Is4() != to.Addr().Is4() {
			continue
		}
		if n := inCommon(l.Address.Addr(), to.Addr()); n > most {
			most, t = n, transaction.Target{Transport: transport, Local: l.Address, Remote: to}
		}
	}
	return t, most >= 0
}

// inCommon is how many leading bits two addresses of one family have in common.
func inCommon(a, b netip.Addr) (n int) {
	x, y := a.As16(), b.As16()
	for i := range x {
		if x[i] != y[i] {
			return n + bits.LeadingZeros8(x[i]^y[i])
		}
		n += 8
	}
	return n
}

// side is where a request comes from, or goes to, with the connection to a terminal there.
type side struct {
	transaction.Target
	flow []byte
}

// sign puts Via on what goes out by a listener, and Record-Route or Path.
func (p *Proxy) sign(m *message.Message, loop string, from, to side, now time.Time) {
	switch {
	case m.Method == "REGISTER" && p.settings.NextHop != "":
		p.keepPath(m, from.Target, to.Target)
	case p.settings.RecordRoute && m.Method != "ACK" && m.Method != "CANCEL" && m.Method != "REGISTER":
		p.recordRoute(m, from, to)
	}
	v := message.Via{Transport: to.Transport, Host: to.Local.Addr().String(), Port: to.Local.Port()}
	v.Params = v.Params.With("branch", p.branch(loop, now))
	if !to.Reliable() {
		v.Params = v.Params.WithBare("rport")
	}
	m.Prepend("Via", v.String())
}

// recordRoute puts one route on top, or two where family or transport differ on both sides, or where
// one of them is a connection: that of the side that the request goes to is on top (RFC 6157 section
// 3.1.1, RFC 5658). Where the request goes on by sips, so does the dialog on each side that has TLS (RFC 3261 section
// 16.6, number 4).
func (p *Proxy) recordRoute(m *message.Message, from, to side) {
	sides := []side{to}
	if from.Transport != to.Transport || from.Local.Addr().Is4() != to.Local.Addr().Is4() || from.flow != nil || to.flow != nil {
		sides = []side{from, to}
	}
	for _, one := range sides {
		u := route(one.Target, p.token(forDialog, m.CallID(), one.flow))
		if one.Transport == "TLS" && goesSecurely(m) {
			makeSecure(&u)
		}
		m.Prepend("Record-Route", message.Address{URI: u}.String())
	}
}

func makeSecure(u *message.URI) { u.Scheme, u.Params = "sips", u.Params.Without("transport") }

// goesSecurely reports whether the target of a request, or the first proxy on its way, is one of sips.
func goesSecurely(m *message.Message) bool {
	u, _ := message.ParseURI(m.URI)
	first, _ := message.ParseAddress(m.Get("Route"))
	return u.Scheme == "sips" || first.URI.Scheme == "sips"
}

// keepPath has requests for a terminal come by this proxy, which knows the way (RFC 3327 section 5.2,
// RFC 5626 section 5.1).
func (p *Proxy) keepPath(m *message.Message, from, to transaction.Target) {
	contact, err := message.ParseAddress(m.Get("Contact"))
	if err != nil || len(m.All("Via")) != 1 {
		return
	}
	u := route(to, p.token(forTerminal, "", p.packFlow(from, &contact.URI)))
	if to.Transport == "TLS" && isSecure(m.URI) { // or the registrar takes no contact of sips
		makeSecure(&u)
	}
	u.Params = u.Params.WithBare("ob")
	m.Prepend("Path", message.Address{URI: u}.String())
}

// route is one to a listener of this proxy.
func route(at transaction.Target, user string) message.URI {
	u := message.URI{Scheme: "sip", User: user, Host: at.Local.Addr().String(), Port: at.Local.Port()}
	if at.Transport != "UDP" {
		u.Params = u.Params.With("transport", strings.ToLower(at.Transport))
	}
	u.Params = u.Params.WithBare("lr")
	return u
}
