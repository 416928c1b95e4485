// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"net/netip"
	"testing"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// TestTranslatorsAnnounce has translators tell a router by BGP where their networks
// are: of a NAT64 pool6 and pool4, of a SIIT its prefixes and the IPv4 side of its
// mappings. Draining takes all of them back while the translator runs.
func TestTranslatorsAnnounce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		role, instance string
		prefixes       []string
	}{
		{"nat64", `
[[nat64]]
name = "translator"
clients = ["2001:db8::/64"]
pool6 = ["2001:db8:64::/96"]
pool4 = ["203.0.113.1 1024-32767", "203.0.113.8/30"]
keep_state = false
fast_path = "off"
announce = true
`, []string{"2001:db8:64::/96", "203.0.113.1/32", "203.0.113.8/30"}},
		{"siit", `
[[siit]]
name = "translator"
pool6 = ["2001:db8:64::/96"]
pool4 = ["203.0.113.128/28"]
eam = ["203.0.113.33 2001:db8:1::33", "203.0.113.64/29 2001:db8:1::40/125"]
announce = true
`, []string{"2001:db8:64::/96", "203.0.113.128/28", "203.0.113.33/32", "203.0.113.64/29"}},
	} {
		t.Run(tt.role, func(t *testing.T) {
			t.Parallel()
			n := newSpeakerNet(t, peers.BirdSession{Local: router6, Neighbor: speaker6, Passive: true})
			n.instances = tt.instance
			n.start(bgpLines(router6, "next_hop4 = \"192.0.2.2\"", ""))
			hops := func(announced bool) {
				t.Helper()
				for _, text := range tt.prefixes {
					p, hop := netip.MustParsePrefix(text), noNextHop
					if announced && p.Addr().Is4() {
						hop = speaker4
					} else if announced {
						hop = speaker6
					}
					n.await(p, hop) // fails if the process ends first
				}
			}
			hops(true)
			n.wantStatus("announced", "established")
			asked := control.NewClient(n.socket())
			for _, drained := range []bool{true, false, true} {
				if _, err := asked.Drain(n.ctx, "translator", drained); err != nil {
					t.Fatal(err)
				}
				hops(!drained)
			}
			n.wantStatus("drained", "established")
			if err := n.daemons.stop(n.process); err != nil {
				t.Error(err)
			}
		})
	}
}
