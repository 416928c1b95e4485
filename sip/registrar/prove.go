// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// proved reports whether the one who sends a request may have it passed on: to addresses of record
// here everybody may, unless he gives himself out for one who has an account; elsewhere only who
// has one. If not, it has answered (RFC 3261 section 22.3).
func (p *Proxy) proved(s *transaction.Server, m *message.Message, now time.Time, out *Output) bool {
	target, _ := message.ParseURI(m.URI)
	from, _ := m.From()
	caller, _ := from.URI.AOR()
	inside := p.local(&target) && !m.Has("Route")
	ours := p.Engine.settings.serves(from.URI.Host)
	if inside && !(ours && p.settings.Prove) {
		return true
	}
	v := p.auth.authenticate(m, "Proxy-Authorization", &p.directory, now)
	switch {
	case v.account != nil && slices.Contains(v.account.aors, caller):
		m.Remove("Proxy-Authorization") // it is of no one's business behind
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
