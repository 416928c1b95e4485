// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab"
)

// TestVRFsAnnounced has BIRD tell the routers of two VRFs of the pools that a GGSN has in each: they are the same, as are the
// addresses of the routers. What a reload takes out of one is withdrawn there alone, and all of it when the GGSN stops.
//
//	                     +-- red  10.9.9.1, 2001:db8:b::1 -- 10.9.9.9 red
//	198.51.100.1 gateway +
//	                     +-- blue 10.9.9.1, 2001:db8:b::1 -- 10.9.9.9 blue
func TestVRFsAnnounced(t *testing.T) {
	t.Parallel()
	n := drawNetworks(t, "vrfs", true, func(int) (here, there networkEnd) {
		return networkEnd{netip.MustParsePrefix("10.9.9.1/24"), netip.MustParsePrefix("2001:db8:b::1/64")},
			networkEnd{netip.MustParsePrefix("10.9.9.9/24"), netip.MustParsePrefix("2001:db8:b::9/64")}
	})
	n.gateway.Addr("lo", "198.51.100.1/32")
	other := netip.MustParsePrefix("10.46.0.0/16")
	section := func(red netip.Prefix) string {
		text := fmt.Sprintf("[[ggsn]]\ngsn_address4 = \"198.51.100.1\"\npeers = [\"198.51.100.0/24\"]\nstate_file = %q\n", filepath.Join(n.daemons.dir, "ggsn.state"))
		for _, a := range []struct {
			name string
			four netip.Prefix
		}{{"red", red}, {"blue", networkPools[0]}} {
			text += fmt.Sprintf("[[ggsn.apn]]\nname = %[1]q\nvrf = %[1]q\npool4 = [%[2]q]\npool6 = [%[3]q]\n", a.name, a.four, networkPools[1])
		}
		return text
	}
	i := n.daemons.isthmus(n.gateway, "ggsn")
	if err := i.configure(section(networkPools[0])); err != nil {
		t.Fatal(err)
	}
	node, err := n.daemons.keep(i.launch(n.ctx, "isthmus-ggsn"))
	if err != nil {
		t.Fatal(err)
	}
	n.startBird(n.gateway, n.bird)
	for _, p := range networkPools {
		n.hears("red", p, true)
		n.hears("blue", p, true)
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} { // the refusals of what no other route leads
		if knows(n.routers["red"], netip.MustParsePrefix(all)) {
			t.Errorf("%s is announced", all)
		}
	}
	if err := i.configure(section(other)); err != nil {
		t.Fatal(err)
	}
	if _, err := control.NewClient(i.socket()).Reload(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.hears("red", other, true)
	n.hears("red", networkPools[0], false)
	if !knows(n.routers["blue"], networkPools[0]) || knows(n.routers["blue"], other) {
		t.Error("the other VRF has changed, too")
	}
	if err := n.daemons.stop(node); err != nil {
		t.Error(err)
	}
	n.hears("red", networkPools[1], false)
	n.hears("blue", networkPools[0], false)
}

// joinVRF puts a link of a node into a VRF, which it makes. Where the kernel has none the test is skipped: lab/vm has one
// that does.
func joinVRF(t *testing.T, node *lab.Node, link, name string, table int) {
	t.Helper()
	vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: name}, Table: uint32(table)}
	err := node.Kernel().LinkAdd(vrf)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this kernel has no VRF")
	}
	in, failed := node.Kernel().LinkByName(link)
	if err = errors.Join(err, failed); err == nil {
		err = errors.Join(node.Kernel().LinkSetMaster(in, vrf), node.Kernel().LinkSetUp(vrf))
	}
	if err != nil {
		t.Fatal(err)
	}
}
