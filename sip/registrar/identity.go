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
	m.Headers = slices.DeleteFunc(m.Headers, func(h message.Header) bool {
		return slices.ContainsFunc(identities, func(name string) bool { return strings.EqualFold(name, h.Name) })
	})
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
