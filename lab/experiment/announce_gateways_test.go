// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// TestGatewaysAnnounce has gateways tell a router by BGP where their networks are: of a
// NAT64 pool6 and pool4, of a SIIT its prefixes and the IPv4 side of its mappings, of a
// GGSN the pools of all access points. Draining takes all of them back while the gateway
// runs; so does a device, be it one of several, that packets do not pass.
func TestGatewaysAnnounce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		role, instance string
		devices        []string
		prefixes       []string
	}{
		{"nat64", `
[[nat64]]
name = "gateway"
clients = ["2001:db8::/64"]
pool6 = ["2001:db8:64::/96"]
pool4 = ["203.0.113.1 1024-32767", "203.0.113.8/30"]
keep_state = false
fast_path = "off"
announce = true
`, []string{"nat64"}, []string{"2001:db8:64::/96", "203.0.113.1/32", "203.0.113.8/30"}},
		{"siit", `
[[siit]]
name = "gateway"
pool6 = ["2001:db8:64::/96"]
pool4 = ["203.0.113.128/28"]
eam = ["203.0.113.33 2001:db8:1::33", "203.0.113.64/29 2001:db8:1::40/125"]
announce = true
`, []string{"siit"}, []string{"2001:db8:64::/96", "203.0.113.128/28", "203.0.113.33/32", "203.0.113.64/29"}},
		{"ggsn", `
[[ggsn]]
name = "gateway"
gsn_address4 = "192.0.2.2"
peers = ["192.0.2.0/24"]
keep_state = false
state_file = "STATE"
announce = true
[[ggsn.apn]]
name = "internet"
pool6 = ["2001:db8:6000::/44"]
pool4 = ["203.0.113.64/26"]
static4 = ["203.0.113.9/32"]
[[ggsn.apn]]
name = "machines"
interface = "machines"
pool6 = ["2001:db8:7000::/56"]
`, []string{"ggsn", "machines"}, []string{"2001:db8:6000::/44", "2001:db8:7000::/56", "203.0.113.9/32", "203.0.113.64/26"}},
	} {
		t.Run(tt.role, func(t *testing.T) {
			t.Parallel()
			n := newSpeakerNet(t, peers.BirdSession{Local: router6, Neighbor: speaker6, Passive: true})
			n.instances = strings.ReplaceAll(tt.instance, "STATE", filepath.Join(t.TempDir(), "state"))
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
				if _, err := asked.Drain(n.ctx, "gateway", drained); err != nil {
					t.Fatal(err)
				}
				hops(!drained)
			}
			n.wantStatus("drained", "established")
			if _, err := asked.Drain(n.ctx, "gateway", false); err != nil {
				t.Fatal(err)
			}
			for _, device := range tt.devices {
				hops(true)
				n.speaker.Down(device)
				hops(false)
				n.speaker.Up(device)
			}
			hops(true)
			if err := n.process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			hops(false)
			if err := n.daemons.stop(n.process); err != nil { // a second signal
				t.Error(err)
			}
		})
	}
}
