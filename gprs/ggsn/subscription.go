// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// Subscription is what a subscriber may use.
type Subscription struct {
	// APNs are the names of access points, in small letters, each with the PDP types that contexts may have
	// there; 0: all that the access point has. nil: every access point.
	APNs map[string]Types
	// Rates are the highest of a context there; an access point that is not named has no limit by them.
	Rates map[string]Rates
}

// everyType are all PDP types.
const everyType = TypeIPv4 | TypeIPv6 | TypeIPv4v6

// subscribed returns the PDP types that a session may have by its subscription, and the cause of a refusal if
// it may have none: cause 222, which version 0 does not know (TS 29.060 section 7.7.1, TS 09.60 section
// 7.9.1). A terminal without an IMSI has no subscription.
func (e *Engine) subscribed(s *session, a *access) (Types, gtp.Cause) {
	if e.settings.Subscribers == nil {
		return everyType, 0
	}
	imsi, valid := s.tid.IMSI()
	subscription, known := e.settings.Subscribers[imsi]
	types, named := subscription.APNs[a.key()]
	switch all := subscription.APNs == nil; {
	case valid && known && s.marks&markIMEI == 0 && (all || named && types == 0):
		return everyType, 0
	case valid && known && s.marks&markIMEI == 0 && named:
		return types, 0
	case s.version == gtp.V0:
		return 0, gtp.CauseUnknownAPN
	}
	return 0, gtp.CauseAPNDenied
}

// subscribedRates returns the highest rates that a session's contexts may have by its subscription.
func (e *Engine) subscribedRates(s *session, a *access) Rates {
	imsi, _ := s.tid.IMSI()
	return e.settings.Subscribers[imsi].Rates[a.key()]
}
