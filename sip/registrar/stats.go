// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

// Reason is why a request was refused.
type Reason uint8

// Reasons.
const (
	Challenged Reason = iota // no credentials have come
	BadCredentials
	BadHeader // of credentials
	ForeignRealm
	ForeignNonce // not of this engine, or altered
	StaleNonce
	ReplayedNonce
	OtherURI // credentials for another request
	Resynchronised
	NotAllowed // the address of record of somebody else
	UnknownDomain
	UnknownAOR
	BadAOR
	BadExtension
	BadContact
	TooBrief
	NoOutbound
	OutOfOrder
	TooManyContacts
	TableFull
	NumReasons int = iota
)

var reasonNames = [NumReasons]string{
	"challenged", "bad_credentials", "malformed_credentials", "foreign_realm", "foreign_nonce", "stale_nonce", "replayed_nonce", "other_uri",
	"resynchronised", "not_allowed", "unknown_domain", "unknown_aor", "bad_aor", "bad_extension", "bad_contact", "too_brief", "no_outbound",
	"out_of_order", "too_many_contacts", "table_full",
}

// String returns the name of the counter.
func (r Reason) String() string { return reasonNames[r] }

// Stats counts what the engine has done.
type Stats struct {
	// Registered are registrations that have changed bindings, Queried those that have asked
	// for them, Expired bindings.
	Registered, Queried, Expired uint64
	// Refused are requests by reason.
	Refused [NumReasons]uint64
}
