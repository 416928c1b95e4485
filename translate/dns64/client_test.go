// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	crand "crypto/rand"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// TestClient: who is one client.
func TestClient(t *testing.T) {
	for _, tt := range []struct {
		name   string
		length int
		a, b   string
		same   bool
	}{
		{"two addresses of a /64", 0, "2001:db8:1::1", "2001:db8:1::ffff:1", true},
		{"two /64", 0, "2001:db8:1::1", "2001:db8:1:1::1", false},
		{"two /64 of a /56, where that is a client", 56, "2001:db8:1::1", "2001:db8:1:1::1", true},
		{"two addresses, where each is a client", 128, "2001:db8:1::1", "2001:db8:1::2", false},
		{"two addresses of IPv4", 0, "192.0.2.1", "192.0.2.2", false},
		{"an address of IPv4, on a socket of IPv6 too", 0, "192.0.2.1", "::ffff:192.0.2.1", true},
		{"two link-local addresses of a link", 128, "fe80::1%lan", "fe80:0:1::2%lan", true},
		{"the same link-local address on two links", 0, "fe80::1%lan", "fe80::1%guest", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := policy(t, func(s *Settings) { s.ClientLength = tt.length })
			a, known := p.Client(netip.MustParseAddr(tt.a))
			b, _ := p.Client(netip.MustParseAddr(tt.b))
			if (a == b) != tt.same || !known {
				t.Errorf("%s and %s, known %v", a, b, known)
			}
		})
	}
	if _, known := policy(t, nil).Client(stranger.Addr()); known {
		t.Error("a stranger is known")
	}
}

// TestRates: each client has its own rate, and strangers are refused so often and no more.
func TestRates(t *testing.T) {
	rates := func(rate, burst int) *Rates {
		r, err := NewRates(ratelimit.PerSecond(rate, burst), crand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	passed := func(r *Rates, client netip.Addr, known bool, n int, now time.Time, want Reason) (passed int) {
		for range n {
			switch got := r.Admit(client, known, now); got {
			case ReasonNone:
				passed++
			case want:
			default:
				t.Fatalf("reason %s, want %s", got, want)
			}
		}
		return passed
	}
	t.Run("a hundred clients above their rate", func(t *testing.T) {
		r := rates(10, 20)
		for c := range 100 {
			if n := passed(r, network(c), true, 100, start, ReasonRate); n > 20 || c == 0 && n != 20 {
				t.Errorf("client %d has passed %d times", c, n)
			}
		}
		for c := range 100 {
			if n := passed(r, network(1000+c), true, 10, start, ReasonRate); n != 10 {
				t.Errorf("%d of 10 queries of a client within its rate", n)
			}
		}
		if n := passed(r, network(0), true, 100, start.Add(time.Second), ReasonRate); n != 10 {
			t.Errorf("%d queries after a second", n)
		}
		r.SetLimit(ratelimit.PerSecond(0, 1))
		if n := passed(r, network(0), true, 100, start.Add(time.Second), ReasonRate); n != 100 {
			t.Errorf("%d of 100 queries without a limit", n)
		}
	})
	t.Run("one stranger", func(t *testing.T) {
		r := rates(0, 1)
		if n := passed(r, network(0), false, 1000, start, ReasonRefusals); n != refusalsOfOneBurst {
			t.Errorf("refused %d times", n)
		}
		if n := passed(r, network(1), false, 1, start, ReasonRefusals); n != 1 {
			t.Error("another is not refused")
		}
		if n := passed(r, network(0), false, 1000, start.Add(time.Second), ReasonRefusals); n != refusalsOfOne {
			t.Errorf("refused %d times a second later", n)
		}
	})
	t.Run("many strangers, and a client", func(t *testing.T) {
		r := rates(10, 20)
		all := 0
		for c := range 2 * refusalsOfAllBurst {
			all += passed(r, network(c), false, 1, start, ReasonRefusals)
		}
		if all != refusalsOfAllBurst {
			t.Errorf("refused %d times", all)
		}
		if n := passed(r, network(0), true, 20, start, ReasonRate); n != 20 {
			t.Errorf("%d of 20 queries of a client", n)
		}
	})
	if _, err := NewRates(ratelimit.Limit{}, strings.NewReader("too short")); err == nil {
		t.Error("no error without randomness")
	}
}
