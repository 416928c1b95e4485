// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"net/netip"
	"testing"
	"time"

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
