// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"testing"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

// inFastModes runs a test with a node on each way by programs.
func inFastModes(t *testing.T, f func(t *testing.T, r *fastRig, mode string)) {
	for _, mode := range fastModes {
		t.Run(string(mode), func(t *testing.T) {
			r := newFastRig(t, fmt.Sprintf("fast_path = %q", mode), "")
			r.takes(t, string(mode))
			f(t, r, string(mode))
		})
	}
}

// TestFastPathCarries: packets of both families go both ways by the programs, and the node counts each once.
func TestFastPathCarries(t *testing.T) {
	configtest.InEffect(t, "ggsn", "fast_path")
	inFastModes(t, func(t *testing.T, r *fastRig, _ string) {
		c := r.open(t, 1, func(m *gtp.CreateRequest) { m.EndUserAddress.Value.Type = gtp.PDPTypeIPv4v6 })
		r.warm(t, c, false)
		r.warm(t, c, true)
		up, down := r.forwarded()
		const rounds = 50
		for i := range rounds {
			for _, six := range []bool{false, true} {
				r.carry(t, c, six, fmt.Sprintf("packet %d", i))
			}
		}
		if u, d := r.forwarded(); u-up != 2*rounds || d-down != 2*rounds {
			t.Errorf("the programs have carried %d up and %d down, want %d each: %+v", u-up, d-down, 2*rounds, r.status())
		}
		r.wantAccount(t, "in the end", c)
		values := valuesOf(r.g)
		for name, want := range map[string]uint64{
			"up_packets_total": c.up.Packets, "up_octets_total": c.up.Octets, "down_packets_total": c.down.Packets, "down_octets_total": c.down.Octets,
		} {
			if values[name] != float64(want) {
				t.Errorf("%s is %v, want %d", name, values[name], want)
			}
		}
	})
}
