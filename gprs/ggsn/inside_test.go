// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestBesides: what terminals of two access points may among themselves is kept also where these have networks of
// their own, unless one is apart. The host would route from one to the other.
func TestBesides(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to UserToUser
		apart    bool
		across   bool // handed to the other
		out      bool // to the network of the sender
		back     bool // and taken from that of the receiver
	}{
		{"deny", UserDeny, UserDeny, false, false, false, false},
		{"silent", UserSilent, UserAllow, false, false, false, false},
		{"the receiver denies", UserExternal, UserDeny, false, false, false, true},
		{"allow", UserAllow, UserAllow, false, true, false, false},
		{"by the network", UserExternal, UserExternal, false, false, true, true},
		{"apart", UserDeny, UserDeny, true, false, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(s *Settings) {
				s.APNs[1].Pools4, s.APNs[1].Types, s.APNs[1].UserToUser = prefixes("10.48.0.0/16"), TypeIPv4|TypeIPv6|TypeIPv4v6, tt.from
				s.APNs[2].VRF, s.APNs[2].Apart, s.APNs[2].UserToUser = 1, tt.apart, tt.to
			})
			a, b := w.open(1, "inet6", gtp.PDPTypeIPv4v6), w.open(9, "dual", gtp.PDPTypeIPv4v6)
			for _, ip := range [][]byte{udp4(a.four(), b.four(), 64, 9), udp6(a.six(), b.six(), 64, 9)} {
				w.up(a, slices.Clone(ip))
				if h, _ := w.tunnelled(); (h.TEID == 0x1009) != tt.across || (len(w.out.IP) == 1) != tt.out {
					t.Errorf("%d packets; to %#x; dropped %v", len(w.out.IP), h.TEID, w.dropped())
				}
				w.out.Reset()
				w.e.HandleIP(1, ip, w.now, &w.out)
				if h, _ := w.tunnelled(); (h.TEID == 0x1009) != tt.back {
					t.Errorf("back: to %#x; dropped %v", h.TEID, w.dropped())
				}
			}
			free4, free6 := b.four().Next(), netip.MustParseAddr("2001:db8:700f:ff00::1")
			for _, ip := range [][]byte{udp4(a.four(), free4, 64, 9), udp6(a.six(), free6, 64, 9)} {
				before := w.e.stats.Dropped[NoContext]
				w.up(a, ip)
				if out := tt.apart || tt.from == UserExternal || tt.to == UserExternal; (len(w.out.IP) == 1) != out || (w.e.stats.Dropped[NoContext] > before) == out {
					t.Errorf("to nobody: %d packets, dropped %v", len(w.out.IP), w.dropped())
				}
			}
		})
	}
}

// TestBesideGone: packets of the pools of another network that a reload brings, or takes away, are theirs as long
// as terminals have them.
func TestBesideGone(t *testing.T) {
	w := newWorld(t, func(s *Settings) { s.APNs = s.APNs[:1] })
	a := w.open(1, "internet", gtp.PDPTypeIPv4)
	s := testSettings()
	s.APNs[2].VRF = 1
	for _, apns := range [][]APN{s.APNs, s.APNs[:1]} {
		s.APNs = apns
		if err := w.e.Reconfigure(s, w.now, &w.out); err != nil {
			t.Fatal(err)
		}
		if len(apns) > 1 {
			w.open(2, "dual", gtp.PDPTypeIPv4)
		}
		b := w.list()[1]
		before := w.e.stats.Dropped[UserDenied]
		if w.up(a, udp4(a.four(), b.Address4, 64, 9)); w.e.stats.Dropped[UserDenied] != before+1 {
			t.Errorf("of %d access points: %d packets, dropped %v", len(apns), len(w.out.IP), w.dropped())
		}
	}
}
