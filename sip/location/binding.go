// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package location

import (
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
)

// Binding is one contact of an address of record.
type Binding struct {
	URI message.URI
	// Params are those of the Contact field, but for q and expires.
	Params message.Params
	// Q is the preference in thousandths, the highest first.
	Q uint16
	// Expires is when the binding ends, Updated when it was last registered.
	Expires, Updated time.Time
	// CallID and CSeq are those of the last REGISTER.
	CallID string
	CSeq   uint32
	// Instance and RegID, if it is not 0, name the flow of a user agent (RFC 5626).
	Instance string
	RegID    uint32
	// Path are the proxies on the way to the contact, the nearest to the registrar first (RFC
	// 3327).
	Path []string
	// Flow is what the registrar knows the connection by over which the request came; empty:
	// the contact is reached by its URI.
	Flow string
}

// Contact is one contact of a REGISTER.
type Contact struct {
	URI    message.URI
	Params message.Params
	Q      uint16
	// Lifetime is how long the binding is to last; 0 removes it.
	Lifetime time.Duration
	// Instance and RegID as in [Binding]; RegID 0 where outbound is not applied.
	Instance string
	RegID    uint32
	// ByURI has it reached by its URI, whatever the flow of the registration.
	ByURI bool
}

// Registration is what a REGISTER asks for.
type Registration struct {
	CallID string
	CSeq   uint32
	// All removes every binding (Contact: *); there are no contacts then.
	All      bool
	Contacts []Contact
	Path     []string
	Flow     string
}

// same reports whether a contact is that of a binding: by flow where it names one (RFC 5626
// section 6), and by URI if not (RFC 3261 section 10.2.4).
func (c *Contact) same(b *Binding) bool {
	if c.RegID != 0 {
		return c.RegID == b.RegID && c.Instance == b.Instance
	}
	return c.URI.Equal(&b.URI)
}

// sameContact reports whether two bindings are of one contact.
func (b *Binding) sameContact(other Binding) bool {
	c := Contact{URI: b.URI, Instance: b.Instance, RegID: b.RegID}
	return (b.RegID == 0) == (other.RegID == 0) && c.same(&other)
}

// size is what a binding's texts take, in octets.
func (c *Contact) size(r *Registration) int {
	n := len(c.URI.String()) + len(c.Params.String()) + len(c.Instance) + len(r.CallID) + len(r.Flow)
	for _, p := range r.Path {
		n += len(p)
	}
	return n
}
