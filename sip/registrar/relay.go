// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"net/netip"
	"slices"
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
	q    uint16
}

// relay passes a request on to its targets, or redirects it to them.
func (p *Proxy) relay(s *transaction.Server, m *message.Message, now time.Time, out *Output) {
	goals, local := p.goals(m, now)
	switch {
	case len(goals) == 0:
		// Who has an account but no contact can be called later (section 16.5).
		if u, _ := message.ParseURI(m.URI); p.directory.byAOR[aorOf(&u)] != nil {
			p.answer(s, NoBinding, 480, "Temporarily Unavailable", out)
		} else {
			p.answer(s, NoBinding, 404, "Not Found", out)
		}
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
	c := &call{server: s, request: m, goals: goals}
	s.User = c
	if m.Method == "INVITE" {
		s.Respond(message.Reply(s.Request, 100, "Trying", ""), now, &out.Output)
	}
	p.advance(c, now, out)
}

// defaultBreadth is how many branches a request may have that names no number.
const defaultBreadth = 60

func aorOf(u *message.URI) string {
	aor, _ := u.AOR()
	return aor
}

// goals are the targets of a request, the preferred ones first, without duplicates; local ones are
// those of an address of record here.
func (p *Proxy) goals(m *message.Message, now time.Time) (goals []goal, local bool) {
	u, _ := message.ParseURI(m.URI)
	if m.Has("Route") || !p.local(&u) {
		if !u.IsSIP() && !m.Has("Route") {
			return nil, false
		}
		return []goal{{uri: m.URI}}, false
	}
	instances := map[string]bool{}
	for _, b := range p.bindings(aorOf(&u), now) {
		// Of one terminal one flow at a time, the latest (RFC 5626 section 7).
		if b.RegID != 0 && instances[b.Instance] || u.Scheme == "sips" && b.URI.Scheme != "sips" {
			continue
		}
		instances[b.Instance] = instances[b.Instance] || b.RegID != 0
		if uri := b.URI.String(); len(goals) < p.settings.MaxForks && !slices.ContainsFunc(goals, func(g goal) bool { return g.uri == uri && g.flow == b.Flow }) {
			goals = append(goals, goal{uri, b.Path, b.Flow, b.Q})
		}
	}
	return goals, true
}

// local reports whether a URI is the business of this proxy: in one of its domains, or the number of
// an account.
func (p *Proxy) local(u *message.URI) bool {
	return p.own(u) || u.Scheme == "tel" && p.directory.byAOR[aorOf(u)] != nil
}

// bindings are those of an address of record, or if it has none of another one of the same account:
// to register one of them is to register all, as P-Associated-URI has told (TS 24.229 section
// 5.4.1.2).
func (p *Proxy) bindings(aor string, now time.Time) []location.Binding {
	found := p.table.Lookup(aor, now)
	if a := p.directory.byAOR[aor]; a != nil {
		for i := 0; len(found) == 0 && i < len(a.aors); i++ {
			found = p.table.Lookup(a.aors[i], now)
		}
	}
	return found
}

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
	return copied, hop
}

// way finds the listener and the address for a URI whose host is an address. Not ok: there is none,
// and the transport is what a name is looked up for.
func (p *Proxy) way(hop *message.URI, size int) (t transaction.Target, transport string, ok bool) {
	asked, _ := hop.Params.Get("transport")
	transport = strings.ToUpper(asked)
	switch {
	case hop.Scheme == "sips":
		transport = "TLS"
	case transport == "" && size > message.MaxDatagram(p.settings.MTU):
		transport = "TCP" // section 18.1.1
	case transport == "":
		transport = "UDP"
	}
	a, err := netip.ParseAddr(hop.Host)
	if err != nil {
		return t, transport, false
	}
	return p.via(transport, netip.AddrPortFrom(a.Unmap(), hop.ServicePort()))
}

// via finds the listener for an address.
func (p *Proxy) via(transport string, to netip.AddrPort) (t transaction.Target, _ string, ok bool) {
	for _, l := range p.settings.Listeners {
		if l.Transport == transport && l.Address.Addr().Is4() == to.Addr().Is4() {
			return transaction.Target{Transport: transport, Local: l.Address, Remote: to}, transport, to.Addr().IsValid() && !to.Addr().IsUnspecified() && !to.Addr().IsMulticast()
		}
	}
	return t, transport, false
}

// sign puts Via and Record-Route on what goes out by a listener.
func (p *Proxy) sign(m *message.Message, loop string, from, to transaction.Target, now time.Time) {
	if p.settings.RecordRoute && m.Method != "ACK" && m.Method != "CANCEL" && m.Method != "REGISTER" {
		p.recordRoute(m, from, to)
	}
	v := message.Via{Transport: to.Transport, Host: to.Local.Addr().String(), Port: to.Local.Port()}
	v.Params = v.Params.With("branch", p.branch(loop, now))
	if !to.Reliable() {
		v.Params = v.Params.WithBare("rport")
	}
	m.Prepend("Via", v.String())
}

// recordRoute puts one route on top, or two where family or transport differ on both sides: that of
// the side that the request goes to is on top (RFC 6157 section 3.1.1, RFC 5658).
func (p *Proxy) recordRoute(m *message.Message, from, to transaction.Target) {
	sides := []transaction.Target{to}
	if from.Transport != to.Transport || from.Local.Addr().Is4() != to.Local.Addr().Is4() {
		sides = []transaction.Target{from, to}
	}
	for _, side := range sides {
		u := message.URI{Scheme: "sip", User: p.token(m), Host: side.Local.Addr().String(), Port: side.Local.Port()}
		if side.Transport != "UDP" {
			u.Params = u.Params.With("transport", strings.ToLower(side.Transport))
		}
		u.Params = u.Params.WithBare("lr")
		m.Prepend("Record-Route", message.Address{URI: u}.String())
	}
}
