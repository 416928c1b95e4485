// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// TestOpeningTimeout: connections that begin and those that end have a key each.
func TestOpeningTimeout(t *testing.T) {
	c := configtest.One(t, Role.Section, `
[[nat64]]
name = "n"
clients = ["2001:db8:1::/48"]
pool4 = ["192.0.2.10"]
tcp_opening_timeout = "30s"
tcp_transitory_timeout = "5m"
`).(*Settings)
	s, err := engineSettings(c, gateway.Own{}, []netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	tcp := s.Lifetimes()[state.TCP]
	for status, want := range map[state.Status]time.Duration{
		state.V6Init: 30 * time.Second, state.V4Init: 30 * time.Second,
		state.BothFin: 5 * time.Minute, state.Trans: 5 * time.Minute,
	} {
		if tcp[status] != state.Units(want) {
			t.Errorf("%s lives %d units, want %v", status, tcp[status], want)
		}
	}
}

// TestPoolFits: more ranges at addresses of this host than can be steered are refused, more
// others are advised against.
func TestPoolFits(t *testing.T) {
	host := netip.MustParseAddr("192.0.2.1")
	parts := func(own, routed int) *Settings {
		c := testSettings(t)
		c.Pool4, c.FastPath = nil, fastpath.ModeAuto
		for i := range routed {
			a := netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})
			c.Pool4 = append(c.Pool4, PoolRange{netip.PrefixFrom(a, 32), AllTransports, 1024, 65535})
		}
		for i := range own {
			c.Pool4 = append(c.Pool4, PoolRange{netip.PrefixFrom(host, 32), AllTransports, uint16(2000 + 10*i), uint16(2005 + 10*i)})
		}
		return &c
	}
	for _, tt := range []struct {
		name            string
		own, routed     int
		refused, advice bool
	}{
		{"as many as fit", 8, 8, false, false},
		{"too many of all", 8, 9, false, true},
		{"as many of this host as fit", 16, 0, false, false},
		{"too many of this host", 17, 0, true, true},
	} {
		c := parts(tt.own, tt.routed)
		err, advice := ownFit(c, []netip.Addr{host}), adviseFit(c, []netip.Addr{host})
		if (err != nil) != tt.refused || (len(advice) != 0) != tt.advice {
			t.Errorf("%s: error %v, advice %q", tt.name, err, advice)
		}
	}
}
