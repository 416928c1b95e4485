// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// reloaded gives a node another configuration.
func reloaded(t *testing.T, ns *testutil.Netns, g *GGSN, next Settings) (err error) {
	t.Helper()
	ns.Do(t, func() error {
		change, e := g.Prepare(next)
		if err = e; e == nil {
			_, err = change()
		}
		return nil
	})
	return err
}

// TestRefusedReload: where one network's route is taken, those of others are as before, and so
// is what contexts get.
func TestRefusedReload(t *testing.T) {
	ns := hostOf(t)
	node := fmt.Sprintf("interface = \"g0\"\nstate_file = %q", filepath.Join(t.TempDir(), "state"))
	two := func(pool4, pool6 string) Settings {
		return written(t, node, fmt.Sprintf("name = \"internet\"\npool4 = [%q]\npool6 = []\n[[ggsn.apn]]\nname = \"ims\"\ninterface = \"g1\"\npool6 = [%q]", pool4, pool6))
	}
	g, _ := started(t, ns, two("10.45.0.0/16", "2001:db8:7000::/48"))
	taken := netip.MustParsePrefix("2001:db8:8000::/48")
	routeBy(t, ns, "gn", taken)
	if err := reloaded(t, ns, g, two("10.46.0.0/16", taken.String())); err == nil {
		t.Error("a route of somebody else's is taken")
	}
	for device, want := range map[string]string{"g0": "10.45.0.0/16", "g1": "2001:db8:7000::/48"} {
		if list := routesBy(t, ns, device); !slices.Equal(list, []netip.Prefix{netip.MustParsePrefix(want)}) {
			t.Errorf("by %s go %v", device, list)
		}
	}
	b := &bench{Engine: g.engine.Load(), t: t, now: time.Now()}
	g.do(func(*ggsn.Engine, time.Time, *ggsn.Output) {
		if a := b.create(sgsn, request(1, sgsn, gtp.PDPTypeIPv4)).EndUserAddress.Value.IPv4; !netip.MustParsePrefix("10.45.0.0/16").Contains(a) {
			t.Errorf("a context has %v", a)
		}
	})
}

// TestContextWithinReload: one that comes as soon as the node looks for those of a pool that
// leaves has a route.
func TestContextWithinReload(t *testing.T) {
	ns := hostOf(t)
	node := fmt.Sprintf("state_file = %q", filepath.Join(t.TempDir(), "state"))
	g, _ := started(t, ns, written(t, node, "pool6 = []"))
	var a netip.Addr
	g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) {
		settled, armed := g.loop.Settled, false
		g.loop.Settled = func(out *ggsn.Output) {
			if settled(out); armed && !a.IsValid() { // not for this call
				b := &bench{Engine: e, t: t, now: time.Now()}
				a = b.create(sgsn, request(1, sgsn, gtp.PDPTypeIPv4)).EndUserAddress.Value.IPv4
			}
			armed = true
		}
	})
	if err := reloaded(t, ns, g, written(t, node, "pool4 = [\"10.46.0.0/16\"]\npool6 = []")); err != nil {
		t.Fatal(err)
	}
	if list := routesBy(t, ns, "ggsn"); !slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) }) {
		t.Errorf("by the device go %v, and a context has %v", list, a)
	}
}

// TestLeavingOverRestart: contexts of a pool that is no longer named outlive a restart with
// their route, and end in good order where somebody has taken it meanwhile.
func TestLeavingOverRestart(t *testing.T) {
	for name, take := range map[string]bool{"the route is free": false, "the route is taken": true} {
		t.Run(name, func(t *testing.T) {
			ns := hostOf(t)
			node := fmt.Sprintf("state_file = %q", filepath.Join(t.TempDir(), "state"))
			g, stop := started(t, ns, written(t, node, ""))
			b := &bench{Engine: g.engine.Load(), t: t, now: time.Now()}
			g.do(func(*ggsn.Engine, time.Time, *ggsn.Output) {
				if r := b.create(sgsn, request(1, sgsn, gtp.PDPTypeIPv4)); !r.Cause.Accepted() {
					t.Fatal(r.Cause)
				}
			})
			old, next := netip.MustParsePrefix("10.45.0.0/16"), written(t, node, "pool4 = [\"10.46.0.0/16\"]")
			if err := reloaded(t, ns, g, next); err != nil {
				t.Fatal(err)
			}
			counter := g.Status().(Status).RestartCounter
			if stop(); take {
				routeBy(t, ns, "gn", old)
			}
			g, _ = started(t, ns, next)
			st, led := g.Status().(Status), slices.Contains(routesBy(t, ns, "ggsn"), old)
			if st.RestartCounter != counter || st.Contexts != 1 || led == take || slices.Contains(st.Leaving, old) == take {
				t.Errorf("counter %d and then %d, %d contexts, leaving are %v", counter, st.RestartCounter, st.Contexts, st.Leaving)
			}
			b.Engine = g.engine.Load()
			g.do(func(*ggsn.Engine, time.Time, *ggsn.Output) {
				if asked := b.Stats().Requests; (asked > 0) != take {
					t.Errorf("%d requests to end it", asked)
				}
			})
		})
	}
}

// TestRenumberReload: a context whose pool a reload takes away has another prefix soon, and the former besides:
// both are listed and found, and have their routes, also after a restart.
func TestRenumberReload(t *testing.T) {
	apn := func(pool string) string {
		return fmt.Sprintf("pool4 = [\"10.45.0.0/16\"]\npool6 = [%q]\nrenumber = \"2h\"", pool)
	}
	const old, next = "2001:db8:6000::/44", "2001:db8:6100::/44"
	c := newCore(t, "", apn(old))
	p := c.serve(t)
	c.open(t, 1, false)
	c.write(t, "", apn(next))
	if status, said := program.Call(t, "reload", "--socket", c.socket); status != 0 {
		t.Fatal(said)
	}
	has := func() bool {
		_, text := program.Call(t, "ggsn", "contexts", "--json", "--socket", c.socket)
		var all struct{ Contexts []Context }
		if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.Contexts) != 1 {
			t.Fatalf("%v\n%s", err, text)
		}
		x := &all.Contexts[0]
		return netip.MustParsePrefix(next).Contains(x.Prefix6.Addr()) && len(x.Former6) == 1 && netip.MustParsePrefix(old).Contains(x.Former6[0].Addr())
	}
	await(t, has) // with one of its first advertisements
	c.manager.Expect(t, "RELOADING=1", p)
	c.manager.Expect(t, "READY=1", p)
	c.manager.End(t, p, syscall.SIGTERM)
	c.serve(t)
	if !has() {
		t.Error("after a restart it has not both prefixes")
	}
	for _, pool := range []string{old, next} {
		if status, said := program.Call(t, "ggsn", "contexts", "--address", pool, "--socket", c.socket); status != 0 {
			t.Errorf("by %s: %s", pool, said)
		}
		if list := routesBy(t, c.ns, "ggsn"); !slices.Contains(list, netip.MustParsePrefix(pool)) {
			t.Errorf("by the device go %v", list)
		}
	}
}

// routeBy leads a prefix to a link.
func routeBy(t *testing.T, ns *testutil.Netns, link string, to netip.Prefix) {
	t.Helper()
	ns.Do(t, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		dst := &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}
		return errors.Join(netlink.LinkSetUp(l), netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst}))
	})
}
