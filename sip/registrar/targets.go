// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
)

// maddr is the host that a URI names in place of its own (RFC 3261 section 19.1.1).
func maddr(u *message.URI) (host string, has bool) {
	host, has = u.Params.Get("maddr")
	return strings.ToLower(strings.Trim(host, "[]")), has
}

// stripMaddr takes the maddr from a Request-URI that names this proxy by it, with port and transport,
// which were those of the way here, and reports whether there was one (section 16.4).
func (p *Proxy) stripMaddr(u *message.URI) bool {
	if !u.IsSIP() || !u.Params.Has("maddr") || !p.own(u) {
		return false
	}
	u.Port, u.Params = 0, u.Params.Without("maddr", "transport")
	return true
}

// onward is the route on which requests leave that are not this proxy's business: to the next hop,
// or to the registrar that serves the one whom a request is for. Empty: there is none.
func (p *Proxy) onward(m *message.Message) string {
	if p.settings.NextHop != "" {
		return p.routeTo(p.settings.NextHop)
	}
	u, _ := message.ParseURI(m.URI)
	if m.Method == "REGISTER" {
		to, _ := m.To()
		return p.servedBy(aorOf(&to.URI))
	}
	if u.Params.Has("maddr") {
		return "" // the only target (section 16.5)
	}
	return p.byICSCF(p.servedBy(aorOf(&u)))
}

// servedBy is the route to the registrar that serves an address of record. Empty: it is this one.
func (p *Proxy) servedBy(aor string) string {
	if a := p.directory.byAOR[aor]; a != nil {
		return p.routeTo(a.Server)
	}
	return ""
}

// byICSCF is the route to a registrar that is not this one, by way of the I-CSCF if there is one.
func (p *Proxy) byICSCF(registrar string) string {
	if i := p.routeTo(p.settings.ICSCF); i != "" && registrar != "" {
		return i
	}
	return registrar
}

// routeTo is a route to a server. Empty: it is this one, or there is none.
func (p *Proxy) routeTo(server string) string {
	u, err := message.ParseURI(server)
	if err != nil || p.own(&u) {
		return ""
	}
	u.Params = u.Params.Without("lr").WithBare("lr")
	return "<" + u.String() + ">"
}

// goals are the targets of a request (section 16.5), the preferred ones first, without duplicates; local
// ones are those of an address of record here. Looped says that some of these led back to it.
func (p *Proxy) goals(m *message.Message, by passage, now time.Time) (goals []goal, local, looped bool) {
	u, _ := message.ParseURI(m.URI)
	switch {
	case m.Has("Route"):
		return []goal{{uri: m.URI}}, false, false
	case by.flow.Transport != "":
		return []goal{{uri: m.URI, flow: writeFlow(by.flow)}}, false, false
	case by.known && p.settings.NextHop != "":
		return []goal{{uri: m.URI}}, false, false
	}
	if server := p.onward(m); server != "" {
		return []goal{{uri: m.URI, path: []string{server}}}, false, false
	}
	if !p.local(&u) {
		if !u.IsSIP() {
			return nil, false, false
		}
		return []goal{{uri: m.URI}}, false, false
	}
	s := p.search(aorOf(&u), u.Scheme == "sips", now)
	return s.goals, true, s.looped
}

// ackGoal is where the ACK of a 2xx goes. A terminal may have named its address of record as its contact.
func (p *Proxy) ackGoal(m *message.Message, by *passage, now time.Time) goal {
	goals, local, _ := p.goals(m, *by, now)
	if !local || len(goals) == 0 {
		return goal{uri: m.URI}
	}
	if flow, ok := ParseFlow(goals[0].flow); ok && len(goals[0].path) == 0 {
		by.flow = flow
	}
	return goals[0]
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

// search collects the contacts of an address of record. One that is an address of record here itself, such as
// who forwards his calls registers, has its own contacts in its place: no name server knows more.
type search struct {
	p         *Proxy
	now       time.Time
	secure    bool // sips
	goals     []goal
	instances map[string]int
	seen      map[string]bool // addresses of record that were followed; true: this one leads on from it
	looped    bool
}

// search finds the contacts of an address of record.
func (p *Proxy) search(aor string, secure bool, now time.Time) *search {
	s := &search{p: p, now: now, secure: secure, seen: map[string]bool{}, instances: map[string]int{}}
	s.follow(aor)
	return s
}

// follow adds the contacts of an address of record.
func (s *search) follow(aor string) {
	leads, seen := s.seen[aor]
	if seen || len(s.seen) >= s.p.settings.MaxForks {
		s.looped = s.looped || leads || !seen
		return
	}
	s.seen[aor] = true
	for _, b := range s.p.bindings(aor, s.now) {
		if !s.secure || b.URI.Scheme == "sips" {
			s.add(aor, b)
		}
	}
	s.seen[aor] = false
}

// add adds a contact, or where it leads.
func (s *search) add(aor string, b location.Binding) {
	uri, tls := s.secured(&b)
	if flow, ok := ParseFlow(b.Flow); ok && (!s.p.connected(flow) || tls && flow.Transport != "TLS") {
		if b.RegID != 0 { // RFC 5626 section 5.3
			return
		}
		b.Flow = ""
	}
	one := goal{uri: uri.String(), path: b.Path, flow: b.Flow, tls: tls, q: b.Q, aor: aor, binding: b}
	if b.Flow == "" && len(b.Path) == 0 && s.p.forwards(&b.URI) {
		server := s.p.byICSCF(s.p.servedBy(aorOf(&b.URI)))
		if server == "" {
			s.forwarded(aorOf(&b.URI), b.Q)
			return
		}
		one.path = []string{server}
	}
	// Of one terminal one flow at a time, the latest (RFC 5626 section 7).
	if at, there := s.instances[b.Instance]; there && b.RegID != 0 {
		s.goals[at].others = append(s.goals[at].others, one)
		return
	}
	if len(s.goals) < s.p.settings.MaxForks && !slices.ContainsFunc(s.goals, func(g goal) bool { return g.uri == one.uri && g.flow == b.Flow }) {
		if b.RegID != 0 {
			s.instances[b.Instance] = len(s.goals)
		}
		s.goals = append(s.goals, one)
	}
}

// forwarded adds the contacts of another address of record, all by the preference of the contact that has led
// to it.
func (s *search) forwarded(aor string, q uint16) {
	begin := len(s.goals)
	s.follow(aor)
	for i := range s.goals[begin:] {
		s.goals[begin+i].q = q
	}
}

// forwards reports whether a contact is an address of record here, and not a host of that name with a port of
// its own. A redirect server says such a contact to the caller.
func (p *Proxy) forwards(u *message.URI) bool {
	return !p.settings.Redirect && p.local(u) &&
		(u.Port == 0 || slices.ContainsFunc(p.settings.Listeners, func(l Listener) bool { return l.Address.Port() == u.Port }))
}
