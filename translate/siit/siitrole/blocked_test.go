// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
)

// TestKeepsToRoutes: what the host keeps from the translator's device, the programs do
// not take either.
func TestKeepsToRoutes(t *testing.T) {
	inModes(t, gatewaytest.Hooks, func(t *testing.T, w *gatewaytest.World, s *SIIT, c Settings) {
		native6 := netip.MustParseAddr("2001:db8:64::192.0.2.9")
		for _, tt := range []struct {
			name, why string
			do, undo  func() error
		}{
			{
				"an address of this host", "192.0.2.66/32 end on this host",
				func() error { return gatewaytest.Address("lo", six4.String()+"/32") },
				func() error { return removeAddress("lo", six4.String()+"/32") },
			},
			{
				"a more specific route", "the route to 2001:db8:64::c000:209/128",
				func() error { return routeVia("v6", native6, gatewaytest.SixAddr) },
				func() error { return netlink.RouteDel(&netlink.Route{Dst: netOf(netip.PrefixFrom(native6, 128))}) },
			},
			{
				"another route in its place", "no route leads packets for 2001:db8:64::/96",
				func() error {
					return netlink.RouteReplace(&netlink.Route{Dst: netOf(c.Pool6[0]), Gw: gatewaytest.SixAddr.AsSlice()})
				},
				func() error {
					return netlink.RouteDel(&netlink.Route{Dst: netOf(c.Pool6[0]), Gw: gatewaytest.SixAddr.AsSlice()})
				},
			},
		} {
			w.Gateway.Do(t, tt.do)
			if why := s.takes(t, "engine"); !strings.Contains(why, tt.why) {
				t.Errorf("%s: why: %s", tt.name, why)
			}
			w.Gateway.Do(t, tt.undo)
			s.takes(t, gatewaytest.PathOfMode(c.FastPath))
		}
		newPair(t, w, 7000).passes(t)
	})
}

// TestRoutesBesidePool4: hosts whose addresses are made by pool6 have routes of their
// own in it, which the programs leave to the kernel.
func TestRoutesBesidePool4(t *testing.T) {
	configtest.InEffect(t, "siit", "pool4")
	inModes(t, gatewaytest.Modes, func(t *testing.T, w *gatewaytest.World, s *SIIT, c Settings) {
		made := netip.MustParseAddr("2001:db8:64::192.0.2.80")
		c.Pool4 = []netip.Prefix{netip.MustParsePrefix("192.0.2.80/29"), netip.MustParsePrefix("192.0.2.88/29")}
		if _, err := roletest.Reload(Role, s, s.cfg, c); err != nil {
			t.Fatal(err)
		}
		w.Six.Do(t, func() error { return gatewaytest.Address("v6", made.String()+"/128") })
		w.Gateway.Do(t, func() error {
			l, err := netlink.LinkByName("v6")
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{
				LinkIndex: l.Attrs().Index, Gw: gatewaytest.SixAddr.AsSlice(), Dst: netOf(netip.PrefixFrom(made, 124)),
			})
		})
		p := &pair{
			six: gatewaytest.Open(t, w.Six, netip.AddrPortFrom(made, 7000)), four: gatewaytest.Open(t, w.Four, netip.AddrPortFrom(gatewaytest.FourAddr, 7000)),
			asSix: netip.MustParseAddrPort("192.0.2.80:7000"), asFour: netip.AddrPortFrom(four6, 7000),
		}
		s.takes(t, gatewaytest.PathOfMode(c.FastPath))
		before := s.forwarded()
		for range 10 {
			p.passes(t)
		}
		if got := s.forwarded() - before; (got > 15) != (c.FastPath != fastpath.ModeOff) {
			t.Errorf("the programs have translated %d packets: %+v", got, s.fast.Status().Packets)
		}
	})
}

// removeAddress takes an address from a link.
func removeAddress(link, addr string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	return netlink.AddrDel(l, a)
}

// TestAutoLeavesToRules: with auto the engine carries all packets while something else
// would be passed by.
func TestAutoLeavesToRules(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings()
	c.FastPath, c.Name = fastpath.ModeAuto, "siit.auto"
	s, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.Start(t, s)
	s.takes(t, "tc")
	p := newPair(t, w, 7000)
	p.passes(t)
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority, rule.Mark = netlink.FAMILY_V4, 100, 1000, 1
	w.Gateway.Do(t, func() error { return netlink.RuleAdd(rule) })
	if why := s.takes(t, "engine"); !strings.Contains(why, "policy rout") {
		t.Errorf("why: %s", why)
	}
	p.passes(t)
	w.Gateway.Do(t, func() error { return netlink.RuleDel(rule) })
	s.takes(t, "tc")
	p.passes(t)
}

// TestPlanSIIT tells beforehand what would keep the programs away.
func TestPlanSIIT(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings()
	c.FastPath = fastpath.ModeTC
	plan := func() (p driver.Forecast) {
		w.Gateway.Do(t, func() error { p = plan(c, new(role.Seats)); return nil })
		return p
	}
	if p := plan(); len(p.Warnings) > 0 || !strings.Contains(strings.Join(p.Notes, " "), "would sit at") {
		t.Errorf("plan %+v", p)
	}
	w.Gateway.Do(t, func() error { return gatewaytest.Address("lo", six4.String()+"/32") })
	if p := plan(); len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "192.0.2.66/32 end on this host") {
		t.Errorf("plan %+v", p)
	}
	c.FastPath = fastpath.ModeOff
	if p := plan(); len(p.Warnings)+len(p.Notes) > 0 {
		t.Errorf("plan %+v", p)
	}
}

// TestManyMappings: a device that is set down and up again gets thousands of routes, and
// so the programs back.
func TestManyMappings(t *testing.T) {
	w, c := gatewaytest.NewWorld(t), testSettings()
	c.FastPath, c.Name, c.EAMFile = fastpath.ModeTC, "siit.many", filepath.Join(t.TempDir(), "mappings")
	var text strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&text, "10.0.%d.%d 2001:db8:9:%x::%x\n", i>>8, i&255, i>>8, i&255)
	}
	if err := os.WriteFile(c.EAMFile, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.Start(t, s)
	s.takes(t, "tc")
	p := newPair(t, w, 7000)
	p.passes(t)
	device := func(set func(netlink.Link) error) {
		w.Gateway.Do(t, func() error {
			l, err := netlink.LinkByName(c.Interface)
			if err != nil {
				return err
			}
			return set(l)
		})
	}
	device(netlink.LinkSetDown)
	if why := s.takes(t, "engine"); !strings.Contains(why, "no route leads packets") {
		t.Errorf("why: %s", why)
	}
	device(netlink.LinkSetUp)
	s.takes(t, "tc")
	p.passes(t)
	gatewaytest.Await(t, s, "serving")
	if got := s.Status().(Status).Mappings; got != 2001 {
		t.Errorf("%d mappings", got)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	w.Clean(t)
}
