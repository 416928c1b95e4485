// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// TestVRFsAnnounced has BIRD, configured as docs/ggsn.md says, tell the routers of two VRFs of the pools that a GGSN has in
// each: they are the same, as are the addresses of the routers. What a reload takes out of one is withdrawn there alone, and
// all of it when the GGSN stops.
//
//	                  +-- red  10.9.9.1, 2001:db8:b::1 -- 10.9.9.9 red
//	198.51.100.1 ggsn +
//	                  +-- blue 10.9.9.1, 2001:db8:b::1 -- 10.9.9.9 blue
func TestVRFsAnnounced(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	l, err := e.New(ctx, fmt.Sprintf("vrfs-%d", time.Now().UnixNano()%1e9))
	if err != nil {
		t.Fatal(err)
	}
	n := &speakerNet{t: t, ctx: ctx, daemons: &daemons{env: e, dir: l.Dir(), ctx: ctx}}
	t.Cleanup(func() {
		if err := errors.Join(n.daemons.healthy(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	ggsn := l.Node("ggsn").Forward(true, true).Addr("lo", "198.51.100.1/32")
	here, there := netip.MustParseAddr("10.9.9.1"), netip.MustParseAddr("10.9.9.9")
	told := peers.Bird{Name: "ggsn", RouterID: here, AS: announceAS}
	routers, tables := map[string]*lab.Node{}, map[string]int{"red": 100, "blue": 101}
	for _, name := range []string{"red", "blue"} {
		router := l.Node(name)
		routers[name] = router
		l.Link(router, "eth0", ggsn, "to-"+name)
		joinVRF(t, ggsn, "to-"+name, name, tables[name])
		ggsn.Addr("to-"+name, here.String()+"/24", "2001:db8:b::1/64")
		router.Addr("eth0", there.String()+"/24", "2001:db8:b::9/64")
		told.Sessions = append(told.Sessions, peers.BirdSession{Name: name, Local: here, Neighbor: there, AS: routerAS, Network: tables[name], VRF: name})
		hears := peers.BirdSession{Name: "isthmus", Local: there, Neighbor: here, AS: announceAS, Passive: true}
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		n.startBird(router, peers.Bird{Name: name, RouterID: there, AS: routerAS, Sessions: []peers.BirdSession{hears}})
	}
	hears := func(name string, p netip.Prefix, want bool) {
		t.Helper()
		for deadline := time.Now().Add(announceWait); knows(routers[name], p) != want; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				routes, err := peers.AskBird(told.Socket(n.daemons.dir), "show route all table all")
				sessions, _ := peers.AskBird(told.Socket(n.daemons.dir), "show protocols all")
				t.Fatalf("%s has %s: %t; BIRD of the GGSN: %s %v\n%s", name, p, !want, routes, err, sessions)
			}
		}
	}
	pools := []netip.Prefix{netip.MustParsePrefix("10.45.0.0/16"), netip.MustParsePrefix("2001:db8:6000::/44")}
	other := netip.MustParsePrefix("10.46.0.0/16")
	section := func(red netip.Prefix) string {
		text := fmt.Sprintf("[[ggsn]]\ngsn_address4 = \"198.51.100.1\"\npeers = [\"198.51.100.0/24\"]\nstate_file = %q\n", filepath.Join(n.daemons.dir, "ggsn.state"))
		for _, a := range []struct {
			name string
			four netip.Prefix
		}{{"red", red}, {"blue", pools[0]}} {
			text += fmt.Sprintf("[[ggsn.apn]]\nname = %[1]q\nvrf = %[1]q\npool4 = [%[2]q]\npool6 = [%[3]q]\n", a.name, a.four, pools[1])
		}
		return text
	}
	i := n.daemons.isthmus(ggsn, "ggsn")
	if err := i.configure(section(pools[0])); err != nil {
		t.Fatal(err)
	}
	node, err := n.daemons.keep(i.launch(ctx, "isthmus-ggsn"))
	if err != nil {
		t.Fatal(err)
	}
	n.startBird(ggsn, told)
	for _, p := range pools {
		hears("red", p, true)
		hears("blue", p, true)
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} { // the refusals of what no other route leads
		if knows(routers["red"], netip.MustParsePrefix(all)) {
			t.Errorf("%s is announced", all)
		}
	}
	if err := i.configure(section(other)); err != nil {
		t.Fatal(err)
	}
	if _, err := control.NewClient(i.socket()).Reload(ctx); err != nil {
		t.Fatal(err)
	}
	hears("red", other, true)
	hears("red", pools[0], false)
	if !knows(routers["blue"], pools[0]) || knows(routers["blue"], other) {
		t.Error("the other VRF has changed, too")
	}
	if err := n.daemons.stop(node); err != nil {
		t.Error(err)
	}
	hears("red", pools[1], false)
	hears("blue", pools[0], false)
}

// joinVRF puts a link of a node into a VRF, which it makes. Where the kernel has none the test is skipped: lab/vm has one
// that does.
func joinVRF(t *testing.T, node *lab.Node, link, name string, table int) {
	t.Helper()
	vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: name}, Table: uint32(table)}
	err := node.Netlink().LinkAdd(vrf)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this kernel has no VRF")
	}
	in, failed := node.Netlink().LinkByName(link)
	if err = errors.Join(err, failed); err == nil {
		err = errors.Join(node.Netlink().LinkSetMaster(in, vrf), node.Netlink().LinkSetUp(vrf))
	}
	if err != nil {
		t.Fatal(err)
	}
}
