// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestRefusedKeepsNothing: a request that is refused for one family keeps no address of the
// other from anyone.
func TestRefusedKeepsNothing(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[2].Pools4, s.APNs[2].Hold = prefixes("10.46.0.0/29"), 2*time.Minute })
	for n := range 8 {
		m := w.createRequest(testIMSI(n+1), "dual", gtp.PDPTypeIPv4v6)
		m.EndUserAddress.Value.IPv6 = netip.MustParseAddr("2001:db8:bad::1")
		if c := w.create(m); c.Cause.Accepted() {
			t.Fatal("an address of no pool is given")
		}
	}
	for _, p := range w.e.Sizes().Pools {
		if p.Used+p.Held != 0 {
			t.Errorf("%+v", p)
		}
	}
	for n := range 6 { // without its first and its last
		w.open(20+n, "dual", gtp.PDPTypeIPv4)
	}
}

// TestLeaseAgain: addresses of contexts that are to go are given to who needs them at once,
// of both families.
func TestLeaseAgain(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs[2].Pools6 = prefixes("2001:db8:7000::/63") })
	for n, counter := range []uint8{1, 1, 2} {
		m := w.createRequest(testIMSI(n+1), "dual", gtp.PDPTypeIPv4v6)
		m.Recovery = gtp.Some(counter)
		c := w.create(m)
		if a := c.EndUserAddress.Value; c.Cause != gtp.CauseAccepted || !a.IPv4.IsValid() || !a.IPv6.IsValid() {
			t.Errorf("%d: %v, %+v", n, c.Cause, a)
		}
	}
}
