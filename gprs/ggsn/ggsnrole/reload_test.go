// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/testutil"
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
	ns.Do(t, func() error {
		gn, err := netlink.LinkByName("gn")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: gn.Attrs().Index, Dst: &net.IPNet{IP: taken.Addr().AsSlice(), Mask: net.CIDRMask(taken.Bits(), 128)}})
	})
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
