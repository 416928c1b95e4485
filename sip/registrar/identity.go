// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// identities are the fields by which proxies that trust each other say who calls or answers: those of RFC 3325, and
// the one before it that telephones still show.
var identities = []string{"P-Asserted-Identity", "P-Preferred-Identity", "Remote-Party-ID"}

// disown takes from a request or response what it says of its sender, if it comes from nobody that is believed (RFC
// 3325 section 5). Subscribers are not either: what they prove is their From.
func (p *Proxy) disown(m *message.Message, from netip.Addr) {
	if p.believes(from) {
		return
	}
	removeIdentities(m)
}

func removeIdentities(m *message.Message) {
	m.Headers = slices.DeleteFunc(m.Headers, func(h message.Header) bool {
		return slices.ContainsFunc(identities, func(name string) bool { return strings.EqualFold(name, h.Name) })
	})
}

// withhold takes from a request or response what it says of its sender, if he has asked for that (Privacy: id) and it
// goes to nobody who is believed (RFC 3325 sections 7 and 9.3). What has been done is not asked of others (RFC 3323
// section 5); what was not, for nothing was said, is left to those behind who may know him.
func (p *Proxy) withhold(m *message.Message, to netip.Addr) {
	asked := privacy(m)
	if !slices.Contains(asked, "id") || p.believes(to) {
		return
	}
	before := len(m.Headers)
	if removeIdentities(m); len(m.Headers) == before {
		return
	}
	m.Remove("Privacy")
	rest := slices.DeleteFunc(asked, func(s string) bool { return s == "id" })
	if slices.ContainsFunc(rest, func(s string) bool { return s != "critical" }) {
		m.Add("Privacy", strings.Join(rest, ";"))
	}
}

// privacy is what a sender asks to be kept private (RFC 3323 section 4.2), in small letters.
func privacy(m *message.Message) (asked []string) {
	for _, value := range m.All("Privacy") {
		for one := range strings.SplitSeq(strings.ReplaceAll(value, ",", ";"), ";") {
			asked = append(asked, strings.ToLower(strings.TrimSpace(one)))
		}
	}
	return asked
}

// believes reports whether an address is that of a proxy beside this one or behind it.
func (p *Proxy) believes(a netip.Addr) bool {
	next, err := message.ParseURI(p.settings.NextHop)
	if err == nil {
		if host, err := netip.ParseAddr(next.Host); err == nil && host.Unmap() == a.Unmap() {
			return true
		}
	}
	for _, found := range p.nextHop {
		if slices.Contains(found, a.Unmap()) {
			return true
		}
	}
	return p.trusts(a)
}

// noting has the addresses of the next hop noted when its name has been looked up, by transport, for each may have
// servers of its own. While the name cannot be found, those that it had are believed.
func (p *Proxy) noting(host, transport string, then foundFunc) foundFunc {
	next, err := message.ParseURI(p.settings.NextHop)
	if err != nil || next.Host != host {
		return then
	}
	hop := p.settings.NextHop
	return func(ways []transaction.Target, now time.Time, out *Output) {
		if len(ways) > 0 && p.settings.NextHop == hop {
			p.nextHop[transport] = nil
			for _, way := range ways {
				p.nextHop[transport] = append(p.nextHop[transport], way.Remote.Addr().Unmap())
			}
		}
		then(ways, now, out)
	}
}
