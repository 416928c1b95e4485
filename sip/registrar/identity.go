// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/sip/message"
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
	return p.trusts(a)
}
