// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// AOR is a URI as the key of an address of record, which sip and sips have in common: it is one user (RFC 5630 section
// 5.2). Not ok: it cannot be one.
func AOR(u *message.URI) (aor string, ok bool) {
	aor, ok = u.AOR()
	return oneScheme(aor), ok
}

func oneScheme(aor string) string {
	if rest, secure := strings.CutPrefix(aor, "sips:"); secure {
		return "sip:" + rest
	}
	return aor
}

func aorOf(u *message.URI) string {
	aor, _ := AOR(u)
	return aor
}

func isSecure(uri string) bool {
	u, _ := message.ParseURI(uri)
	return u.Scheme == "sips"
}

// bindsSecurely reports whether a REGISTER is of sips throughout, as far as it binds a contact of sips: else what is
// not secure would pass for a secure one (RFC 5630 section 5.2). Its From and To do not matter.
func bindsSecurely(m *message.Message, contacts []location.Contact) bool {
	live := slices.DeleteFunc(slices.Clone(contacts), func(c location.Contact) bool { return c.Lifetime <= 0 })
	secure := func(c location.Contact) bool { return c.URI.Scheme == "sips" }
	if !slices.ContainsFunc(live, secure) {
		return true
	}
	for _, path := range m.All("Path") {
		if a, err := message.ParseAddress(path); err != nil || a.URI.Scheme != "sips" {
			return false
		}
	}
	return isSecure(m.URI) && !slices.ContainsFunc(live, func(c location.Contact) bool { return !secure(c) })
}

// secured is the target that a contact of sips is: a request for a URI of sip goes there by TLS as well, but under sip,
// for the way until here was not secure (RFC 5630 section 5.3). A redirect server says what it knows (section 5.4).
func (s *search) secured(b *location.Binding) (uri message.URI, tls bool) {
	uri = b.URI
	if uri.Scheme != "sips" {
		return uri, false
	}
	if !s.secure && !s.p.settings.Redirect {
		uri.Scheme = "sip"
	}
	return uri, true
}

// byTLS leaves of the ways of a request those by TLS, where its URI or its target asks for that: whatever the route
// says, there is no other for it (RFC 3261 section 16.6, number 7, RFC 5630 section 5.3).
func byTLS(uri string, g *goal, ways []transaction.Target) []transaction.Target {
	if !g.tls && !isSecure(uri) {
		return ways
	}
	return slices.DeleteFunc(ways, func(t transaction.Target) bool { return t.Transport != "TLS" })
}
