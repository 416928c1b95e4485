// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestPoolMoves: where a pool goes to another access point, addresses of contexts are given to no
// one else, all others at once, and none is lost when the contexts end.
func TestPoolMoves(t *testing.T) {
	const had, all = 200, 254
	type move struct{ from, to []netip.Prefix }
	four, six := prefixes("10.45.0.0/24"), prefixes("2001:db8:8000::/56")
	tests := []struct {
		name  string
		moves []move // of the first and the last access point
		again bool   // another engine goes on
	}{
		{"to one that had another", []move{{four, prefixes("10.46.0.0/30")}, {prefixes("10.99.0.0/24"), four}}, false},
		{"there and back", []move{{four, prefixes("10.46.0.0/30")}, {prefixes("10.99.0.0/24"), four}, {four, prefixes("10.46.0.0/30")}, {prefixes("10.99.0.0/24"), four}}, false},
		{"over a restart", []move{{four, prefixes("10.46.0.0/30")}, {prefixes("10.99.0.0/24"), four}}, true},
		{"of IPv6", []move{{six, prefixes("2001:db8:7000::/62")}, {prefixes("2001:db8:9900::/56"), six}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kind, size := gtp.PDPTypeIPv4, all
			if tt.moves[0].from[0].Addr().Is6() {
				kind, size = gtp.PDPTypeIPv6, 256
			}
			settings := func(m move) Settings {
				s := testSettings()
				for i, p := range [][]netip.Prefix{0: m.from, 2: m.to} {
					if a := &s.APNs[i]; i != 1 && p[0].Addr().Is4() {
						a.Types, a.Pools4, a.Pools6, a.Static4, a.Static6 = TypeIPv4, p, nil, nil, nil
					} else if i != 1 {
						a.Types, a.Pools4, a.Pools6, a.Static4, a.Static6 = TypeIPv6, nil, p, nil, nil
					}
				}
				return s
			}
			w := newWorld(t, func(s *Settings) { *s = settings(tt.moves[0]) })
			open := func(n int, apn string) context {
				m := w.createRequest(testIMSI(n), apn, kind)
				m.TEIDData = uint32(n)
				return w.create(m)
			}
			var old []context
			for n := range had {
				old = append(old, open(n, "internet"))
			}
			for _, m := range tt.moves[1:] {
				if err := w.e.Reconfigure(settings(m), w.now, &w.out); err != nil {
					t.Fatal(err)
				}
				if list := w.e.Leaving(); len(list) > 0 {
					t.Errorf("%v are leaving, though each is an access point's", list)
				}
			}
			if tt.again && w.succeed(settings(tt.moves[len(tt.moves)-1]), w.e.AppendState(nil)) != 0 {
				t.Fatal("contexts are lost")
			}
			for n := range size - had {
				if c := open(1000+n, "dual"); c.Cause != gtp.CauseAccepted {
					t.Fatalf("%d of %d free ones: %v", n, size-had, c.Cause)
				}
			}
			if c := open(2000, "dual"); c.Cause != gtp.CauseAddressesOccupied {
				t.Errorf("more than there are: %v", c.Cause)
			}
			for i, c := range old {
				w.remove(c.TEIDControl.Value, 5, true)
				if c := open(3000+i, "dual"); c.Cause != gtp.CauseAccepted {
					t.Fatalf("%d of those that ended: %v", i, c.Cause)
				}
			}
			w.e.Delete(Selection{}, w.now, &w.out)
			w.tick(time.Minute)
			w.empty()
			for _, v := range w.e.vrfs {
				if len(v.guests) != 0 {
					t.Errorf("%d guests are left", len(v.guests))
				}
			}
		})
	}
}

// TestPoolMovesHeld: an address that rests when its pool goes to another access point rests there
// until its time is over.
func TestPoolMovesHeld(t *testing.T) {
	hold := func(s *Settings) {
		s.APNs[0].Hold, s.APNs[2].Hold = time.Minute, time.Minute
		s.APNs[0].Pools4 = prefixes("10.45.0.0/30")
	}
	w := newWorld(t, hold)
	c := w.open(1, "internet", gtp.PDPTypeIPv4)
	d := w.open(2, "internet", gtp.PDPTypeIPv4)
	w.remove(c.TEIDControl.Value, 5, true)
	s := testSettings()
	hold(&s)
	s.APNs[0].Pools4, s.APNs[2].Pools4 = prefixes("10.99.0.0/24"), prefixes("10.45.0.0/30")
	if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	w.remove(d.TEIDControl.Value, 5, true)
	w.tick(59 * time.Second)
	if got := w.create(w.createRequest(testIMSI(3), "dual", gtp.PDPTypeIPv4)); got.Cause != gtp.CauseAddressesOccupied {
		t.Errorf("%v, address %v", got.Cause, got.EndUserAddress.Value.IPv4)
	}
	w.tick(time.Second)
	w.open(4, "dual", gtp.PDPTypeIPv4)
	w.open(5, "dual", gtp.PDPTypeIPv4)
}
