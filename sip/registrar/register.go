// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
)

// supported are the extensions of the registrar.
var supported = []string{"path", "outbound"}

// flowTimer is how often a user agent is to show that its flow works, in seconds (RFC 5626 section
// 4.4): as often as NATs want to see something of a connection.
const flowTimer = "120"

// Register answers a REGISTER that [message.Parse] has found no fault with, by the steps of RFC
// 3261 section 10.3 in their order.
func (e *Engine) Register(m *message.Message, from Source, now time.Time) *message.Message {
	target, err := message.ParseURI(m.URI)
	if err != nil || !target.IsSIP() || !e.settings.serves(target.Host) {
		return e.refuse(m, UnknownDomain, 404, "Not Found")
	}
	if tags := m.Unsupported("Require", supported...); len(tags) > 0 {
		r := e.refuse(m, BadExtension, 420, "Bad Extension")
		r.Add("Unsupported", strings.Join(tags, ", "))
		return r
	}
	to, _ := m.To()
	aor, ok := AOR(&to.URI)
	if !ok || !to.URI.IsSIP() && to.URI.Scheme != "tel" { // RFC 4475 section 3.3.4
		return e.refuse(m, BadAOR, 400, "Bad Address of Record")
	}
	owner := e.directory.byAOR[aor]
	v := e.auth.authenticate(m, "Authorization", &e.directory, now)
	switch {
	case v.account == nil:
		return e.challenge(m, v, owner, now)
	case owner == nil: // told to who has an account alone
		return e.refuse(m, UnknownAOR, 404, "Not Found")
	case owner != v.account:
		return e.refuse(m, NotAllowed, 403, "Forbidden")
	}
	return e.bind(m, aor, owner, from, now)
}

// challenge asks for credentials.
func (e *Engine) challenge(m *message.Message, v verdict, owner *account, now time.Time) *message.Message {
	list, err := e.auth.challenges(owner, v.stale, now)
	if err != nil || len(list) == 0 {
		return e.refuse(m, v.reason, 403, "Forbidden")
	}
	r := e.refuse(m, v.reason, 401, "Unauthorized")
	for _, c := range list {
		r.Add("WWW-Authenticate", c.String())
	}
	return r
}

// bind changes the bindings of an address of record and lists them.
func (e *Engine) bind(m *message.Message, aor string, owner *account, from Source, now time.Time) *message.Message {
	registration, outbound, refused := e.registration(m, from)
	if refused != nil {
		return refused
	}
	if !registration.All && len(registration.Contacts) == 0 {
		e.stats.Queried++
		return e.accepted(m, aor, owner, false, now)
	}
	err := e.table.Register(aor, registration, now)
	switch {
	case err == nil:
	case errors.Is(err, location.ErrOutOfOrder):
		return e.refuse(m, OutOfOrder, 500, "Request Out of Order")
	case errors.Is(err, location.ErrFull):
		r := e.refuse(m, TableFull, 503, "Service Unavailable")
		r.Add("Retry-After", "60")
		return r
	case errors.Is(err, location.ErrPerAOR):
		return e.refuse(m, TooManyContacts, 403, "Too Many Contacts")
	default:
		return e.refuse(m, BadContact, 400, "Bad Contact")
	}
	e.stats.Registered++
	return e.accepted(m, aor, owner, outbound, now)
}

// accepted lists all bindings (RFC 3261 section 10.3, number 8).
func (e *Engine) accepted(m *message.Message, aor string, owner *account, outbound bool, now time.Time) *message.Message {
	r := e.reply(m, 200, "OK")
	for _, b := range e.table.Lookup(aor, now) {
		a := message.Address{URI: b.URI, Params: append(slices.Clip(b.Params), message.Param{Name: "expires", Value: seconds(b.Expires.Sub(now))})}
		if b.Q != message.DefaultQ {
			a.Params = append(a.Params, message.Param{Name: "q", Value: writeQ(b.Q)})
		}
		r.Add("Contact", a.String())
	}
	if m.HasToken("Supported", "path") { // RFC 3327 section 5.3
		for _, path := range m.All("Path") {
			r.Add("Path", path)
		}
	}
	for _, route := range e.settings.ServiceRoute {
		r.Add("Service-Route", route)
	}
	if len(owner.Public) > 1 { // RFC 7315 section 4.1
		for _, public := range owner.Public {
			r.Add("P-Associated-URI", "<"+public+">")
		}
	}
	if outbound {
		r.Add("Require", "outbound")
		r.Add("Flow-Timer", flowTimer)
	}
	r.Add("Supported", strings.Join(supported, ", "))
	r.Add("Date", now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"))
	return r
}
