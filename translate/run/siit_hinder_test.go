// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

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
	"github.com/isthmus-net/isthmus/internal/driver"
)

// TestSIITKeepsToRoutes: what the host keeps from the translator's device, the programs do
// not take either.
func TestSIITKeepsToRoutes(t *testing.T) {
	siitInModes(t, hooks, func(t *testing.T, w *world, s *SIIT, c SIITSettings) {
		native6 := netip.MustParseAddr("2001:db8:64::192.0.2.9")
		for _, tt := range []struct {
			name, why string
			do, undo  func() error
		}{
			{
				"an address of this host", "192.0.2.66/32 end on this host",
				func() error { return address("lo", siitSix.String()+"/32") },
				func() error { return removeAddress("lo", siitSix.String()+"/32") },
			},
			{
				"a more specific route", "the route to 2001:db8:64::c000:209/128",
				func() error { return routeVia("v6", native6, sixAddr) },
				func() error { return netlink.RouteDel(&netlink.Route{Dst: netOf(netip.PrefixFrom(native6, 128))}) },
			},
			{
				"another route in its place", "no route leads packets for 2001:db8:64::/96",
				func() error {
					return netlink.RouteReplace(&netlink.Route{Dst: netOf(c.Pool6[0]), Gw: sixAddr.AsSlice()})
				},
				func() error {
					return netlink.RouteDel(&netlink.Route{Dst: netOf(c.Pool6[0]), Gw: sixAddr.AsSlice()})
				},
			},
		} {
			w.gateway.Do(t, tt.do)
			if why := s.takes(t, "engine"); !strings.Contains(why, tt.why) {
				t.Errorf("%s: why: %s", tt.name, why)
			}
			w.gateway.Do(t, tt.undo)
			s.takes(t, pathOfMode(c.FastPath))
		}
		newPair(t, w, 7000).passes(t)
	})
}

// TestSIITRoutesBesidePool4: hosts whose addresses are made by pool6 have routes of their
// own in it, which the programs leave to the kernel.
func TestSIITRoutesBesidePool4(t *testing.T) {
	siitInModes(t, modes, func(t *testing.T, w *world, s *SIIT, c SIITSettings) {
		made := netip.MustParseAddr("2001:db8:64::192.0.2.80")
		c.Pool4 = []netip.Prefix{netip.MustParsePrefix("192.0.2.80/29"), netip.MustParsePrefix("192.0.2.88/29")}
		if _, err := reload(SIITRole, s, s.cfg, c); err != nil {
			t.Fatal(err)
		}
		w.six.Do(t, func() error { return address("v6", made.String()+"/128") })
		w.gateway.Do(t, func() error {
			l, err := netlink.LinkByName("v6")
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{
				LinkIndex: l.Attrs().Index, Gw: sixAddr.AsSlice(), Dst: netOf(netip.PrefixFrom(made, 124)),
			})
		})
		p := &pair{
			six: open(t, w.six, netip.AddrPortFrom(made, 7000)), four: open(t, w.four, netip.AddrPortFrom(fourAddr, 7000)),
			asSix: netip.MustParseAddrPort("192.0.2.80:7000"), asFour: netip.AddrPortFrom(four6, 7000),
		}
		s.takes(t, pathOfMode(c.FastPath))
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

// TestSIITAutoLeavesToRules: with auto the engine carries all packets while something else
// would be passed by.
func TestSIITAutoLeavesToRules(t *testing.T) {
	w, c := newWorld(t), siitConfig()
	c.FastPath, c.Name = fastpath.ModeAuto, "siit.auto"
	s, err := NewSIIT(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.start(t, s)
	s.takes(t, "tc")
	p := newPair(t, w, 7000)
	p.passes(t)
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority, rule.Mark = netlink.FAMILY_V4, 100, 1000, 1
	w.gateway.Do(t, func() error { return netlink.RuleAdd(rule) })
	if why := s.takes(t, "engine"); !strings.Contains(why, "policy rout") {
		t.Errorf("why: %s", why)
	}
	p.passes(t)
	w.gateway.Do(t, func() error { return netlink.RuleDel(rule) })
	s.takes(t, "tc")
	p.passes(t)
}

// TestPlanSIIT tells beforehand what would keep the programs away.
func TestPlanSIIT(t *testing.T) {
	w, c := newWorld(t), siitConfig()
	c.FastPath = fastpath.ModeTC
	plan := func() (p driver.Forecast) {
		w.gateway.Do(t, func() error { p = PlanSIIT(c); return nil })
		return p
	}
	if p := plan(); len(p.Warnings) > 0 || !strings.Contains(strings.Join(p.Notes, " "), "would sit at") {
		t.Errorf("plan %+v", p)
	}
	w.gateway.Do(t, func() error { return address("lo", siitSix.String()+"/32") })
	if p := plan(); len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "192.0.2.66/32 end on this host") {
		t.Errorf("plan %+v", p)
	}
	c.FastPath = fastpath.ModeOff
	if p := plan(); len(p.Warnings)+len(p.Notes) > 0 {
		t.Errorf("plan %+v", p)
	}
}

// TestSIITManyMappings: a device that is set down and up again gets thousands of routes, and
// so the programs back.
func TestSIITManyMappings(t *testing.T) {
	w, c := newWorld(t), siitConfig()
	c.FastPath, c.Name, c.EAMFile = fastpath.ModeTC, "siit.many", filepath.Join(t.TempDir(), "mappings")
	var text strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&text, "10.0.%d.%d 2001:db8:9:%x::%x\n", i>>8, i&255, i>>8, i&255)
	}
	if err := os.WriteFile(c.EAMFile, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := NewSIIT(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.start(t, s)
	s.takes(t, "tc")
	p := newPair(t, w, 7000)
	p.passes(t)
	device := func(set func(netlink.Link) error) {
		w.gateway.Do(t, func() error {
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
	await(t, s, "serving")
	if got := s.Status().(SIITStatus).Mappings; got != 2001 {
		t.Errorf("%d mappings", got)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w.clean(t)
}
