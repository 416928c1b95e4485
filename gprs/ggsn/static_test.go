// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

const (
	own4 = "10.47.0.9"
	own6 = "2001:db8:7100:9::/64"
)

// withStatic gives the first test subscriber addresses of its own at the access point dual; the others, of
// whom there are three, may use what they like.
func withStatic(s *Settings) {
	s.Subscribers = subscribersOf(map[gtp.IMSI]Subscription{
		testIMSI(1): {APNs: []Service{ownService(), {APN: "internet"}}},
		testIMSI(2): {}, testIMSI(3): {}, testIMSI(4): {},
	})
}

func ownService() Service {
	return Service{APN: "dual", Address4: netip.MustParseAddr(own4), Prefix6: netip.MustParsePrefix(own6)}
}

// TestStatic gives a subscriber its own addresses, whatever it asks for and also over a restart, and no one
// else; at another access point it gets any.
func TestStatic(t *testing.T) {
	w := newWorld(t, withStatic)
	others := w.createRequest(testIMSI(2), "dual", gtp.PDPTypeIPv4)
	others.EndUserAddress.Value.IPv4 = netip.MustParseAddr(own4)
	if c := w.create(others); c.Cause != gtp.CauseUnknownPDPType {
		t.Errorf("another asks for it: %v", c.Cause)
	}
	m := w.createRequest(testIMSI(1), "dual", gtp.PDPTypeIPv4v6)
	m.CommonFlags = gtp.Some(gtp.FlagDualAddressBearer)
	m.EndUserAddress.Value.IPv4 = netip.MustParseAddr("10.47.0.77")
	for step := range 3 {
		c := w.create(m) // from the second time on in place of what there is
		if got := c.EndUserAddress.Value; !c.Cause.Accepted() || got.IPv4 != netip.MustParseAddr(own4) || !netip.MustParsePrefix(own6).Contains(got.IPv6) {
			t.Fatalf("step %d: %v, %v", step, c.Cause, got)
		}
		if step == 1 {
			s := testSettings()
			withStatic(&s)
			if lost := w.succeed(s, w.e.AppendState(nil)); lost != 0 {
				t.Fatalf("%d lost by a restart", lost)
			}
		}
	}
	m.NSAPI = 6
	if c := w.create(m); c.Cause != gtp.CauseUnknownPDPType {
		t.Errorf("a second time: %v", c.Cause)
	}
	m = w.createRequest(testIMSI(1), "internet", gtp.PDPTypeIPv4)
	m.NSAPI = 7
	if c := w.create(m); !c.Cause.Accepted() || !netip.MustParsePrefix("10.45.0.0/16").Contains(c.EndUserAddress.Value.IPv4) {
		t.Errorf("elsewhere: %v", c.Cause)
	}
	// Of static ones that are nobody's, whoever asks gets one.
	others.EndUserAddress.Value.IPv4 = netip.MustParseAddr("10.47.0.10")
	if c := w.create(others); !c.Cause.Accepted() {
		t.Errorf("another's: %v", c.Cause)
	}
}

// TestStaticGranted: what RADIUS grants counts in place of the file, but for what is another's.
func TestStaticGranted(t *testing.T) {
	for _, row := range []struct {
		n     int
		grant string
		want  gtp.Cause
	}{
		{1, own4, gtp.CauseAccepted}, {1, "10.47.0.20", gtp.CauseAccepted}, {1, "10.46.0.20", gtp.CauseAccepted},
		{2, own4, gtp.CauseUnknownPDPType},
	} {
		t.Run(fmt.Sprint(row.n, " ", row.grant), func(t *testing.T) {
			w := newAuthorized(t, withStatic)
			_, a := w.asks(w.createRequest(testIMSI(row.n), "dual", gtp.PDPTypeIPv4))
			var r gtp.CreateResponse
			w.answer(w.authorize(a.Ticket, Grant{Address4: netip.MustParseAddr(row.grant)}), &r)
			if r.Cause != row.want || r.Cause.Accepted() && r.EndUserAddress.Value.IPv4 != netip.MustParseAddr(row.grant) {
				t.Errorf("%v, %v", r.Cause, r.EndUserAddress.Value)
			}
		})
	}
}

// TestStaticReload makes an address that somebody else has a subscriber's: the one keeps it until its context
// ends, and the other gets it then.
func TestStaticReload(t *testing.T) {
	w := newWorld(t, nil)
	m := w.createRequest(testIMSI(2), "dual", gtp.PDPTypeIPv4)
	m.EndUserAddress.Value.IPv4 = netip.MustParseAddr(own4)
	first := w.create(m)
	s := testSettings()
	withStatic(&s)
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	own := w.createRequest(testIMSI(1), "dual", gtp.PDPTypeIPv4)
	if c := w.create(own); c.Cause != gtp.CauseUnknownPDPType {
		t.Errorf("while another has it: %v", c.Cause)
	}
	w.remove(first.TEIDControl.Value, 5, true)
	if c := w.create(own); !c.Cause.Accepted() || c.EndUserAddress.Value.IPv4 != netip.MustParseAddr(own4) {
		t.Errorf("then: %v", c.Cause)
	}
}

// TestStaticReloadAgain: who has an address that a reload makes somebody else's does not get it once more when he
// comes again in place of his own session, whichever way he had come by it; the session that he has stays.
func TestStaticReloadAgain(t *testing.T) {
	four, six := netip.MustParseAddr(own4), netip.MustParsePrefix(own6)
	const elsewhere = "2001:db8:7000:1::/64"
	for _, row := range []struct {
		name  string
		kind  gtp.PDPType
		asked gtp.EndUserAddress
		grant Grant
	}{
		{"asked for, IPv4", gtp.PDPTypeIPv4, gtp.EndUserAddress{IPv4: four}, Grant{}},
		{"asked for, IPv6", gtp.PDPTypeIPv6, gtp.EndUserAddress{IPv6: six.Addr()}, Grant{}},
		{"granted, IPv4", gtp.PDPTypeIPv4, gtp.EndUserAddress{}, Grant{Address4: four}},
		{"granted, IPv6", gtp.PDPTypeIPv6, gtp.EndUserAddress{}, Grant{Prefix6: six}},
		{"granted as a further one", gtp.PDPTypeIPv6, gtp.EndUserAddress{}, grantOfPrefixes(elsewhere, own6)},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newAuthorized(t, nil)
			comes := func(g Grant) (c context) {
				m := w.createRequest(testIMSI(2), "dual", row.kind)
				m.EndUserAddress.Value = row.asked
				m.EndUserAddress.Value.Type = row.kind
				_, a := w.asks(m)
				w.answer(w.authorize(a.Ticket, g), &c.CreateResponse)
				return c
			}
			first := comes(row.grant)
			if again := comes(row.grant); !first.Cause.Accepted() || !again.Cause.Accepted() {
				t.Fatalf("before: %v, %v", first.Cause, again.Cause)
			} else {
				first = again
			}
			s := w.e.settings
			withStatic(&s)
			w.takes(s)
			had := w.only()
			if c := comes(row.grant); c.Cause != gtp.CauseUnknownPDPType {
				t.Errorf("again: %v, %v", c.Cause, c.EndUserAddress.Value)
			}
			if row.grant.Further6 != nil { // the same as its first one
				if c := comes(Grant{Prefix6: six}); c.Cause != gtp.CauseUnknownPDPType {
					t.Errorf("again as the first: %v", c.Cause)
				}
			}
			if has := w.only(); has.ChargingID != had.ChargingID {
				t.Error("the session has ended")
			}
			w.remove(first.TEIDControl.Value, 5, true)
			_, a := w.asks(w.createRequest(testIMSI(1), "dual", row.kind))
			var r gtp.CreateResponse
			if w.answer(w.authorize(a.Ticket, Grant{}), &r); r.EndUserAddress.Value.IPv4 != four && !six.Contains(r.EndUserAddress.Value.IPv6) {
				t.Errorf("whose it is gets %v, %v", r.Cause, r.EndUserAddress.Value)
			}
		})
	}
}

// TestStaticSettings refuses addresses that are of no static pool, or of two subscribers.
func TestStaticSettings(t *testing.T) {
	for _, row := range []struct {
		name string
		with func(*Service)
		want string
	}{
		{"outside", func(own *Service) { own.Address4 = netip.MustParseAddr("10.46.0.1") }, "none of the static addresses of access point dual"},
		{"a prefix outside", func(own *Service) { own.Prefix6 = netip.MustParsePrefix("2001:db8:7000::/64") }, "none of the static"},
		{"a prefix of another length", func(own *Service) { own.Prefix6 = netip.MustParsePrefix("2001:db8:7100::/60") }, "no prefix of 64 bits"},
		{"at an access point of another node", func(own *Service) { own.APN, own.Address4 = "nowhere", netip.MustParseAddr("10.99.0.1") }, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			own := ownService()
			row.with(&own)
			s := testSettings()
			s.Subscribers = subscribersOf(map[gtp.IMSI]Subscription{testIMSI(1): {APNs: []Service{own}}})
			switch err := s.CheckSubscribers(); {
			case row.want == "" && err != nil, row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("%v, want %q", err, row.want)
			}
		})
	}
	both := Subscription{APNs: []Service{ownService()}}
	for want, two := range map[string]int{"have the same address: 10.47.0.9/32": 2, "is there twice": 1} {
		if _, err := NewSubscribers([]Subscriber{{testIMSI(1), both}, {testIMSI(two), both}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of two: %v, want %q", err, want)
		}
	}
}

// TestStaticUnchecked gives nobody an address that the access point has not, though a subscriber is said to have it.
func TestStaticUnchecked(t *testing.T) {
	w := newWorld(t, func(s *Settings) {
		own := ownService()
		own.Address4 = netip.MustParseAddr("10.99.0.1")
		s.Subscribers = subscribersOf(map[gtp.IMSI]Subscription{testIMSI(1): {APNs: []Service{own}}})
	})
	if c := w.create(w.createRequest(testIMSI(1), "dual", gtp.PDPTypeIPv4)); c.Cause != gtp.CauseUnknownPDPType {
		t.Errorf("%v: %v", c.Cause, c.EndUserAddress)
	}
}

// BenchmarkReconfigureStatic takes a hundred thousand subscribers with addresses of their own while no packet
// passes.
func BenchmarkReconfigureStatic(b *testing.B) {
	s := testSettings()
	s.APNs[2].Static4 = prefixes("10.48.0.0/14")
	by := make(map[gtp.IMSI]Subscription)
	at := netip.MustParseAddr("10.48.0.0")
	for n := range 100_000 {
		at = at.Next()
		by[testIMSI(n)] = Subscription{APNs: []Service{{APN: "dual", Address4: at}}}
	}
	s.Subscribers = subscribersOf(by)
	w := newWorld(b, nil)
	for b.Loop() {
		if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
			b.Fatal(err)
		}
	}
}
