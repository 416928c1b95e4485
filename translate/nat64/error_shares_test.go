// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// A client whose packets all ask for an error leaves the others of its network theirs.
func TestErrorShares(t *testing.T) {
	b := engine(t, func(s *Settings) { s.Errors.SourceRate, s.Errors.SourceBurst = 10, 20 })
	bad := pkt{src: clientA, dst: server6, proto: 132, payload: filling(20)}
	for range 100 {
		b.in(bad)
	}
	if got := b.Stats().ErrorsSent[ErrorProtocol]; got < 5 || got > 20 {
		t.Errorf("%d errors for one client", got)
	}
	for _, src := range []string{"2001:db8:1:1::77", "2001:db8:1:1::78", "2001:db8:1:1::79"} {
		other := bad
		other.src = src
		b.one(b.in(other))
	}
}

// TestErrorSharesOfClients: whoever asks for errors, a thousand a second, other clients have
// theirs. A client has no more by having many networks.
func TestErrorSharesOfClients(t *testing.T) {
	const rate, burst, seconds = 10, 20, 5
	for _, tt := range []struct {
		name   string
		length int
		flood  func(n int) string
		victim string
		most   int // errors for the flood
	}{
		{"all networks of a /56", 56, func(n int) string { return fmt.Sprintf("2001:db8:1:1%02x::%x", n&255, n+1) },
			"2001:db8:1:200::1", burst + rate*seconds},
		{"all hosts of a /96", 96, func(n int) string { return fmt.Sprintf("2001:db8:1:1::%x", n+1) },
			"2001:db8:1:1:0:1::1", burst + rate*seconds},
		{"all clients of a /48", 64, func(n int) string { return fmt.Sprintf("2001:db8:1:%x::1", n+1) },
			"2001:db8:2::1", 100 * (seconds + 1)},
		{"forged IPv4 hosts", 64, func(n int) string {
			return netip.AddrFrom4([4]byte{198, 51, byte(n >> 8), byte(n)}).String()
		}, "2001:db8:2::1", 100 * (seconds + 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sizes := testSizes
			sizes.SubscriberLength = tt.length
			b := engineOver(t, newTable(t, sizes), func(s *Settings) {
				s.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}
				s.Errors.SourceRate, s.Errors.SourceBurst, s.Errors.Rate, s.Errors.Burst = rate, burst, 100, 100
			})
			ask := func(from string) int {
				p := pkt{src: from, dst: server6, proto: 132, payload: filling(20)}
				if netip.MustParseAddr(from).Is4() {
					p.dst = poolIP
				}
				return len(b.in(p))
			}
			flooded, served := 0, 0
			for ms := range seconds * 1000 {
				b.now = start.Add(time.Duration(ms) * time.Millisecond)
				flooded += ask(tt.flood(ms))
				if ms%1000 == 999 {
					served += ask(tt.victim)
				}
			}
			if served != seconds {
				t.Errorf("%d of %d errors for the victim", served, seconds)
			}
			if flooded == 0 || flooded > tt.most {
				t.Errorf("%d errors for the flood, no more than %d are its share", flooded, tt.most)
			}
		})
	}
}
