// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestFastPathKeepsToRates: no more passes than the rate of a context has, by programs and engine together, and what
// is above counts for the context.
func TestFastPathKeepsToRates(t *testing.T) {
	const rate, size, burst = 64_000 / 8, 1000, 200 // octets a second and of a packet, packets
	for _, mode := range fastModes {
		t.Run(string(mode), func(t *testing.T) {
			r := newFastRig(t, fmt.Sprintf("fast_path = %q", mode), "max_up = 64\nmax_down = 64")
			r.takes(t, string(mode))
			c := r.open(t, 1)
			r.warm(t, c, false)
			before, began := r.info(t, c), time.Now()
			text := string(make([]byte, size-innerHeaders(false)))
			for range burst {
				r.sendUp(t, c, false, text)
				r.sendDown(t, c, false, text)
			}
			await(t, func() bool {
				x := r.info(t, c)
				return x.Up.Packets-before.Up.Packets+x.OverUp-before.OverUp == burst && x.Down.Packets-before.Down.Packets+x.OverDown-before.OverDown == burst
			})
			x := r.info(t, c)
			// What a context may be ahead of its rate is two packets of the largest size.
			most := uint64(time.Since(began).Seconds()*rate) + 2*1500 + size
			for way, n := range map[string]uint64{"up": x.Up.Octets - before.Up.Octets, "down": x.Down.Octets - before.Down.Octets} {
				if n == 0 || n > most {
					t.Errorf("%d octets have passed %s, want 1 to %d", n, way, most)
				}
			}
			if r.status().Packets["drop"]["over_rate"] == 0 {
				t.Errorf("the programs have dropped nothing: %+v", r.status().Packets)
			}
			for c.up.Packets < x.Up.Packets && r.arrives(t, c, false, text, testutil.Patience) {
			}
			for c.down.Packets < x.Down.Packets && r.comes(t, c, false, text, testutil.Patience) {
			}
			r.wantAccount(t, "behind the burst", c)
		})
	}
}
