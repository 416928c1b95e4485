// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// allowed reports whether a request that no dialog of this proxy has brought may be passed on. If not,
// it has answered.
func (p *Proxy) allowed(s *transaction.Server, m *message.Message, now time.Time, out *Output) bool {
	target, _ := message.ParseURI(m.URI)
	switch {
	case m.Method == "REGISTER" && p.registers(&target): // whom it is for asks for proof
		m.Remove("Route")
		return true
	case p.astray(m, &target) && !p.trusts(s.From.Remote.Addr()):
		p.answer(s, Unmatched, 481, "Call/Transaction Does Not Exist", out)
		return false
	case p.settings.NextHop == "":
		return p.trusts(s.From.Remote.Addr()) || p.proved(s, m, now, out)
	case m.Method == "REGISTER", m.Has("Route") && !p.inward(m), p.trusts(s.From.Remote.Addr()):
		// Neither does it carry for other networks, nor back what comes from its own.
		p.answer(s, ForeignTarget, 403, "Forbidden", out)
		return false
	}
	s.Spare() // its network asks for proof
	return true
}

// registers reports whether a URI is that of a registrar here.
func (p *Proxy) registers(u *message.URI) bool {
	return p.Engine.settings.serves(u.Host) && !u.Params.Has("maddr")
}

// astray reports whether a request says that it is of a dialog with somebody here, but has not come by the
// route that the dialogs of this proxy have. It is no new call, and who knows no more of a dialog than its
// tags is not one of its ends. Without Record-Route there are dialogs with addresses of record as targets
// (RFC 3261 section 8.1.1.8), which come like that.
func (p *Proxy) astray(m *message.Message, target *message.URI) bool {
	to, _ := m.To()
	return p.settings.RecordRoute && !p.settings.Redirect && m.Method != "REGISTER" && to.Params.Has("tag") && !m.Has("Route") && p.local(target)
}

// trusts reports whether an address is that of a proxy beside this one.
func (p *Proxy) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(p.settings.Trusted, func(t netip.Prefix) bool { return t.Contains(a.Unmap()) })
}

// inward reports whether the route of a request from a terminal leads to the next hop, or to a proxy
// beside this one, such as the one that Service-Route has named.
func (p *Proxy) inward(m *message.Message) bool {
	first, err := message.ParseAddress(m.Get("Route"))
	next, _ := message.ParseURI(p.settings.NextHop)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(first.URI.Host)
	return first.URI.Host == next.Host || err == nil && p.trusts(a)
}

// rations reports whether those who prove nothing share half of all places: where nobody here is asked for a proof,
// as before or between other proxies, there is no one to keep the other half for.
func (p *Proxy) rations() bool { return p.settings.NextHop == "" && p.settings.Prove }

// hosts reports whether there is room for a request of somebody who proves nothing. If not, it has answered.
func (p *Proxy) hosts(s *transaction.Server, out *Output) bool {
	if n := p.settings.Transactions.Servers; p.rations() && p.layer.Spared() >= n-n/2 {
		p.answer(s, Overloaded, 503, "Service Unavailable", out, message.Header{Name: "Retry-After", Value: "10"})
		return false
	}
	s.Spare()
	return true
}

// proved reports whether the one who sends a request may have it passed on: to addresses of record
// here everybody may, unless he gives himself out for one who has an account; elsewhere only who
// has one. If not, it has answered (RFC 3261 section 22.3).
func (p *Proxy) proved(s *transaction.Server, m *message.Message, now time.Time, out *Output) bool {
	target, _ := message.ParseURI(m.URI)
	from, _ := m.From()
	caller := aorOf(&from.URI)
	inside := p.local(&target) && !m.Has("Route")
	ours := p.Engine.settings.serves(from.URI.Host) || p.directory.byAOR[caller] != nil
	if inside && !(ours && p.settings.Prove) {
		return p.hosts(s, out)
	}
	v := p.auth.authenticate(m, "Proxy-Authorization", &p.directory, now)
	switch {
	case v.account != nil && slices.Contains(v.account.aors, caller):
		p.auth.consume(m, "Proxy-Authorization")
		return true
	case v.account != nil:
		p.answer(s, ForeignTarget, 403, "Forbidden", out)
		return false
	case !inside && !ours: // a stranger who calls strangers
		p.answer(s, ForeignTarget, 403, "Forbidden", out)
		return false
	}
	list, err := p.auth.challenges(p.directory.byAOR[caller], v.stale, now)
	if err != nil || len(list) == 0 {
		p.answer(s, Unproved, 403, "Forbidden", out)
		return false
	}
	var fields []message.Header
	for _, c := range list {
		fields = append(fields, message.Header{Name: "Proxy-Authenticate", Value: c.String()})
	}
	p.answer(s, Unproved, 407, "Proxy Authentication Required", out, fields...)
	return false
}
