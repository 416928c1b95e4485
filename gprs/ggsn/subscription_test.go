// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestSubscriptions: a context is made where the subscriber may have it, of a type that both it and the
// access point allow (TS 29.060 sections 7.3.2 and 7.7.1).
func TestSubscriptions(t *testing.T) {
	at := func(apn string, types Types) *Subscription {
		return &Subscription{APNs: []Service{{APN: apn, Types: types}}}
	}
	for _, tt := range []struct {
		name         string
		subscription *Subscription
		apn          string
		kind         gtp.PDPType
		want         gtp.Cause
	}{
		{"nobody", nil, "internet", gtp.PDPTypeIPv4, gtp.CauseAPNDenied},
		{"every access point", &Subscription{}, "dual", gtp.PDPTypeIPv4v6, gtp.CauseAccepted},
		{"this one, with every type", at("dual", 0), "dual", gtp.PDPTypeIPv4v6, gtp.CauseAccepted},
		{"by the operator's name", at("internet", 0), "Internet.mnc001.mcc240.gprs", gtp.PDPTypeIPv4, gtp.CauseAccepted},
		{"another one", at("inet6", 0), "internet", gtp.PDPTypeIPv4, gtp.CauseAPNDenied},
		{"none that there is", at("inet6", 0), "nowhere", gtp.PDPTypeIPv4, gtp.CauseUnknownAPN},
		{"the type", at("dual", TypeIPv6), "dual", gtp.PDPTypeIPv6, gtp.CauseAccepted},
		{"another type", at("dual", TypeIPv6), "dual", gtp.PDPTypeIPv4, gtp.CauseUnknownPDPType},
		{"one of both that are asked for", at("dual", TypeIPv4), "dual", gtp.PDPTypeIPv4v6, gtp.CauseNewPDPTypeNetwork},
		{"both, apart", at("dual", TypeIPv4|TypeIPv6), "dual", gtp.PDPTypeIPv4v6, gtp.CauseNewPDPTypeSingle},
		{"both at once, and one is asked for", at("dual", TypeIPv4v6), "dual", gtp.PDPTypeIPv4, gtp.CauseAccepted},
		{"a type that the access point has not", at("internet", TypeIPv6), "internet", gtp.PDPTypeIPv4v6, gtp.CauseUnknownPDPType},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(s *Settings) {
				by := map[gtp.IMSI]Subscription{}
				if tt.subscription != nil {
					by[imsi1] = *tt.subscription
				}
				s.Subscribers = subscribersOf(by)
			})
			m := w.createRequest(imsi1, tt.apn, tt.kind)
			if c := w.create(m); c.Cause != tt.want {
				t.Errorf("cause %v, want %v", c.Cause, tt.want)
			}
			if want := btoi(tt.want.Accepted()); w.e.contexts.used() != want {
				t.Errorf("%d contexts, want %d", w.e.contexts.used(), want)
			}
		})
	}
}

// TestSubscriptionNot: whoever has no IMSI has no subscription, and version 0 has no cause of its own for it.
func TestSubscriptionNot(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		s.Subscribers = subscribersOf(map[gtp.IMSI]Subscription{imsi1: {APNs: []Service{{APN: "internet"}}}, gtp.IMSI{1, 2, 3, 4, 5, 6, 7, 0xf8}: {}})
	})
	m := w.createRequest(imsi1, "internet", gtp.PDPTypeIPv4)
	m.IMSI.Present, m.IMEI = false, gtp.Some(gtp.IMEI{1, 2, 3, 4, 5, 6, 7, 0xf8})
	if c := w.create(m); c.Cause != gtp.CauseAPNDenied {
		t.Errorf("an IMEI: %v", c.Cause)
	}
	if _, r := w.createV0(gtp.MakeTID(imsi1, 5), "inet6", gtp.PDPTypeIPv6); r.Cause != gtp.CauseUnknownAPN {
		t.Errorf("version 0: %v", r.Cause)
	}
	if _, r := w.createV0(gtp.MakeTID(imsi1, 5), "internet", gtp.PDPTypeIPv4); r.Cause != gtp.CauseAccepted {
		t.Errorf("version 0, what it may: %v", r.Cause)
	}
}

// TestSubscriptionTaken: a change counts for contexts to come, and a request that comes again is answered as
// it was.
func TestSubscriptionTaken(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		s.Subscribers = subscribersOf(map[gtp.IMSI]Subscription{imsi1: {APNs: []Service{{APN: "dual", Types: TypeIPv4}}}})
	})
	m := w.createRequest(imsi1, "dual", gtp.PDPTypeIPv4v6)
	if c := w.create(m); c.Cause != gtp.CauseNewPDPTypeNetwork {
		t.Fatal(c.Cause)
	}
	next := testSettings()
	next.Subscribers = subscribersOf(nil)
	if err := w.e.Reconfigure(next, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	w.seq--
	if c := w.create(m); c.Cause != gtp.CauseNewPDPTypeNetwork || w.e.contexts.used() != 1 {
		t.Errorf("again: %v, %d contexts", c.Cause, w.e.contexts.used())
	}
	m.NSAPI = 6
	if c := w.create(m); c.Cause != gtp.CauseAPNDenied {
		t.Errorf("anew: %v", c.Cause)
	}
}
