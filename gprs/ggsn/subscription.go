// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// Subscription is what a subscriber may use: these access points; nil: every one.
type Subscription struct{ APNs []Service }

// Service is what a subscriber has at an access point.
type Service struct {
	APN   string // its name, in small letters
	Types Types  // that contexts may have there; 0: all that the access point has
	Rates Rates  // the highest of a context
	// Address4 and Prefix6 are the subscriber's alone, of the static ones of the access point, and what its
	// contexts get; not valid: any of a pool.
	Address4 netip.Addr
	Prefix6  netip.Prefix
}

// owned are the addresses that the service has, as leases.
func (s *Service) owned(yield func(netip.Prefix) bool) {
	if s.Address4.IsValid() && !yield(netip.PrefixFrom(s.Address4, 32)) {
		return
	}
	if s.Prefix6.IsValid() {
		yield(s.Prefix6)
	}
}

// at returns what the subscription has at an access point; nil: nothing of its own.
func (s *Subscription) at(a *access) *Service {
	key := a.key()
	if i := slices.IndexFunc(s.APNs, func(one Service) bool { return one.APN == key }); i >= 0 {
		return &s.APNs[i]
	}
	return nil
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
	subscription, known := e.subscription(s)
	service := subscription.at(a)
	switch {
	case known && (subscription.APNs == nil || service != nil && service.Types == 0):
		return everyType, 0
	case known && service != nil:
		return service.Types, 0
	case s.version == gtp.V0:
		return 0, gtp.CauseUnknownAPN
	}
	return 0, gtp.CauseAPNDenied
}

// subscription returns that of a session; false: it has none.
func (e *Engine) subscription(s *session) (Subscription, bool) {
	imsi, valid := s.tid.IMSI()
	if e.settings.Subscribers == nil || !valid || s.marked(markIMEI) {
		return Subscription{}, false
	}
	i, known := e.settings.Subscribers.by[imsi]
	if !known {
		return Subscription{}, false
	}
	return e.settings.Subscribers.all[i].Subscription, true
}

// service returns what a session's subscriber has at its access point; the zero value: nothing of its own.
func (e *Engine) service(s *session, a *access) Service {
	subscription, _ := e.subscription(s)
	if service := subscription.at(a); service != nil {
		return *service
	}
	return Service{}
}

// Subscriber is one of [Subscribers].
type Subscriber struct {
	IMSI gtp.IMSI
	Subscription
}

// Subscribers are those who may have contexts, and whose addresses are theirs alone. It does not change.
type Subscribers struct {
	all []Subscriber
	by  map[gtp.IMSI]int32 // where they are in all
	// holders are those who have addresses, by the names of access points.
	holders map[string]*holders
}

// holders are those who have the addresses of an access point, by the families and numbers of [numberOf].
type holders [2]map[uint64]gtp.IMSI

// NewSubscribers returns why two of them cannot have what is said. The list is not the caller's any more.
func NewSubscribers(list []Subscriber) (*Subscribers, error) {
	all := &Subscribers{all: list, by: make(map[gtp.IMSI]int32, len(list)), holders: roomFor(list)}
	for i := range list {
		one := &list[i]
		if _, again := all.by[one.IMSI]; again {
			return nil, fmt.Errorf("subscriber %s is there twice", one.IMSI)
		}
		all.by[one.IMSI] = int32(i)
		for j := range one.APNs {
			service := &one.APNs[j]
			at := all.holders[service.APN]
			for p := range service.owned {
				family, n := numberOf(p)
				if other, taken := at[family][n]; taken {
					return nil, fmt.Errorf("subscribers %s and %s have the same address: %s at access point %s", other, one.IMSI, p, service.APN)
				}
				at[family][n] = one.IMSI
			}
		}
	}
	return all, nil
}

// roomFor makes tables of holders in their size: one that grows as it is filled costs twice as much.
func roomFor(list []Subscriber) map[string]*holders {
	sizes := map[string]*[2]int{}
	for i := range list {
		for j := range list[i].APNs {
			service := &list[i].APNs[j]
			at := sizes[service.APN]
			if at == nil {
				at = new([2]int)
				sizes[service.APN] = at
			}
			for p := range service.owned {
				family, _ := numberOf(p)
				at[family]++
			}
		}
	}
	room := make(map[string]*holders, len(sizes))
	for apn, n := range sizes {
		room[apn] = &holders{make(map[uint64]gtp.IMSI, n[0]), make(map[uint64]gtp.IMSI, n[1])}
	}
	return room
}

// All returns what each of them may use, which is not to be changed; of nil, nothing.
func (s *Subscribers) All() []Subscriber {
	if s == nil {
		return nil
	}
	return s.all
}

// Len is how many there are.
func (s *Subscribers) Len() int { return len(s.all) }

// CheckSubscribers returns why subscribers cannot have the addresses that are theirs. Access points that
// there are none of may be another node's. It looks at each of them, so an engine, whose packets would wait
// meanwhile, leaves it to its user; what is no address of the access point is given to nobody.
func (s *Settings) CheckSubscribers() error {
	apns := make(map[string]*APN, len(s.APNs))
	for i := range s.APNs {
		apns[s.APNs[i].key()] = &s.APNs[i]
	}
	all := s.Subscribers.All()
	for i := range all {
		for j := range all[i].APNs {
			service := &all[i].APNs[j]
			at := apns[service.APN]
			for p := range service.owned {
				if at == nil {
					break
				}
				if err := at.checkOwned(p); err != nil {
					return fmt.Errorf("subscriber %s: %w", all[i].IMSI, err)
				}
			}
		}
	}
	return nil
}

// checkOwned returns why a lease cannot be a subscriber's.
func (a *APN) checkOwned(p netip.Prefix) error {
	static, bits := a.Static6, prefixBits
	if p.Addr().Is4() {
		static, bits = a.Static4, 32
	}
	switch {
	case p != p.Masked() || p.Bits() != bits:
		return fmt.Errorf("%s is no prefix of %d bits", p, bits)
	case !slices.ContainsFunc(static, func(q netip.Prefix) bool { return q.Contains(p.Addr()) }):
		return fmt.Errorf("%s is none of the static addresses of access point %s: give it one of those, or add it to them", p, a.Name)
	}
	return nil
}

// foreign reports whether a lease is a subscriber's, and not a session's own.
func (e *Engine) foreign(s *session, a *access, p netip.Prefix) bool {
	if e.settings.Subscribers == nil {
		return false
	}
	at := e.settings.Subscribers.holders[a.key()]
	if at == nil {
		return false
	}
	family, n := numberOf(p)
	holder, held := at[family][n]
	imsi, valid := s.tid.IMSI()
	return held && (!valid || s.marked(markIMEI) || holder != imsi)
}
