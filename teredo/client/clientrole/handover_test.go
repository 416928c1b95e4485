// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

// secondLink gives host a another link to the router, and both their routes:
//
//	a: a 198.51.100.2, metric 100; w 192.0.2.130, metric 200
func (r *rig) secondLink(t *testing.T) {
	t.Helper()
	teredotest.Link(t, r.router, r.a, "w", []string{"192.0.2.129/25"}, "192.0.2.130/25")
	// The server does not go with the first link.
	r.router.Do(t, func() error { return teredotest.SetUp("lo", "203.0.113.1/32", "203.0.113.2/32") })
	r.a.Do(t, func() error {
		_ = netlink.RouteDel(&netlink.Route{Gw: net.ParseIP("198.51.100.1")})
		return errors.Join(routeBy("a", "198.51.100.1", 100), routeBy("w", "192.0.2.129", 200))
	})
}

func routeBy(link, gateway string, metric int) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(gateway), Priority: metric})
}

func unrouteBy(link, gateway string, metric int) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.RouteDel(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(gateway), Priority: metric})
}

// newHandover makes a client on two interfaces.
func newHandover(t *testing.T, change ...func(*Settings)) (*Handover, chan event.AddressChange) {
	t.Helper()
	cfg := rigSettings()
	cfg.Interfaces = []string{"a", "w"}
	for _, f := range change {
		f(&cfg)
	}
	h, err := NewHandover(cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	h.tun.lastRestore = testutil.LastRestore
	changes := make(chan event.AddressChange, 100)
	h.OnAddressChange(func(e event.AddressChange) { changes <- e })
	return h, changes
}

// awaitPaths waits until the paths are in these states.
func awaitPaths(t *testing.T, h *Handover, want ...string) Status {
	t.Helper()
	for deadline := time.Now().Add(testutil.Patience); ; {
		s := h.Status().(Status)
		var got []string
		for _, p := range s.Paths {
			got = append(got, p.Interface+" "+p.State)
		}
		diff := cmp.Diff(want, got)
		if diff == "" {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("paths (-want +got):\n%s", diff)
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *rig) link(t *testing.T, ns *testutil.Netns, name string, set func(netlink.Link) error) {
	t.Helper()
	ns.Do(t, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return set(l)
	})
}

// preferred lists the addresses of the device that are not deprecated.
func preferred(t *testing.T, ns *testutil.Netns) (list []string) {
	t.Helper()
	ns.Do(t, func() error {
		link, err := netlink.LinkByName("teredo")
		if err != nil {
			return err
		}
		addrs, err := testutil.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V6) })
		for _, a := range addrs {
			if a.PreferedLft != 0 {
				list = append(list, a.IP.String())
			}
		}
		return err
	})
	return list
}

// The client moves with the route, with the carrier and with the interface, and
// back when the address there is confirmed.
func TestHandoverFollows(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "interfaces")
	r := newRig(t)
	r.secondLink(t)
	h, changes := newHandover(t)
	roletest.Start(t, r.a, h)
	s := awaitPaths(t, h, "a in_use", "w standing_by")
	first, second := s.Paths[0], s.Paths[1]
	if first.Mapped.Addr().String() != "198.51.100.2" || second.Mapped.Addr().String() != "192.0.2.130" {
		t.Errorf("mapped %s and %s", first.Mapped, second.Mapped)
	}
	// The kernel is told behind the status, and so are others.
	expect := func(what string, want ...string) {
		t.Helper()
		for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
			diff := cmp.Diff(want, preferred(t, r.a))
			if diff == "" {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: preferred addresses (-want +got):\n%s", what, diff)
			}
		}
	}
	expect("start", first.Address.String())
	for e := <-changes; e.New != first.Address; { // of the start: the other path may be first
		e = <-changes
	}
	steps := []struct {
		name string
		do   func(t *testing.T)
		want []string
	}{
		{"the route leads to the other", func(t *testing.T) {
			r.a.Do(t, func() error { return routeBy("w", "192.0.2.129", 50) })
		}, []string{"a standing_by", "w in_use"}},
		{"and back", func(t *testing.T) {
			r.a.Do(t, func() error { return unrouteBy("w", "192.0.2.129", 50) })
		}, []string{"a in_use", "w standing_by"}},
		{"the carrier is lost", func(t *testing.T) {
			r.link(t, r.router, "a", netlink.LinkSetDown)
		}, []string{"a no_carrier", "w in_use"}},
		{"the carrier is back", func(t *testing.T) {
			r.link(t, r.router, "a", netlink.LinkSetUp)
		}, []string{"a in_use", "w standing_by"}},
		{"the interface is switched off", func(t *testing.T) {
			r.link(t, r.a, "a", netlink.LinkSetDown)
		}, []string{"a no_carrier", "w in_use"}},
		{"the interface is there again", func(t *testing.T) {
			r.link(t, r.a, "a", netlink.LinkSetUp)
			r.a.Do(t, func() error { return routeBy("a", "198.51.100.1", 100) })
		}, []string{"a in_use", "w standing_by"}},
		{"the interface vanishes", func(t *testing.T) {
			r.link(t, r.router, "a", netlink.LinkDel)
		}, []string{"a absent", "w in_use"}},
		{"a new one comes", func(t *testing.T) {
			teredotest.Link(t, r.router, r.a, "a", []string{"198.51.100.1/24"}, "198.51.100.2/24")
			r.a.Do(t, func() error { return routeBy("a", "198.51.100.1", 100) })
		}, []string{"a in_use", "w standing_by"}},
	}
	for _, step := range steps {
		step.do(t)
		s := awaitPaths(t, h, step.want...)
		use := 0
		if strings.HasSuffix(step.want[1], "in_use") {
			use = 1
		}
		expect(step.name, s.Paths[use].Address.String())
		e := <-changes
		if e.New != s.Paths[use].Address || e.Cause != event.InterfaceChanged || e.Via != s.Paths[use].Interface || e.Interface != "teredo" {
			t.Errorf("%s: event %+v", step.name, e)
		}
	}
	if len(changes) != 0 {
		t.Errorf("another event: %+v", <-changes)
	}
	if peers, total := h.Peers(10); total != 0 || len(peers) != 0 {
		t.Errorf("peers %v", peers)
	}
	paths := -1.0
	h.Collect(func(m role.Metric) {
		if m.Name == "usable_paths" {
			paths = m.Value
		}
	})
	if paths != 2 {
		t.Errorf("%v usable paths", paths)
	}
}

// Without routes to either, and with no interface at all, the client waits.
func TestHandoverWaits(t *testing.T) {
	r := newRig(t)
	h, _ := newHandover(t, func(c *Settings) { c.Interfaces = []string{"later", "a"} })
	roletest.Start(t, r.a, h)
	awaitPaths(t, h, "later absent", "a in_use")
	r.link(t, r.a, "a", netlink.LinkSetDown)
	awaitPaths(t, h, "later absent", "a no_carrier")
	awaitDevice(t, r.a)
}

// A silent path, whose carrier stays, is left when nothing comes back.
func TestHandoverLeavesSilentPath(t *testing.T) {
	r := newRig(t)
	r.secondLink(t)
	h, _ := newHandover(t, func(c *Settings) { c.ProbeAfter = 300 * time.Millisecond })
	roletest.Start(t, r.a, h)
	awaitPaths(t, h, "a in_use", "w standing_by")
	// The router loses what comes by the first link.
	r.link(t, r.router, "a", func(l netlink.Link) error {
		return errors.Join(netlink.LinkSetARPOff(l), netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 99}))
	})
	conn := func() *net.UDPConn {
		var c *net.UDPConn
		r.a.Do(t, func() (err error) {
			c, err = net.DialUDP("udp6", nil, &net.UDPAddr{IP: net.ParseIP("2001:db8::5"), Port: 7})
			return err
		})
		return c
	}()
	defer conn.Close()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = conn.Write([]byte("anybody?"))
			}
		}
	}()
	for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
		if s := h.Status().(Status); s.Paths[1].State == "in_use" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not moved: %+v", h.Status())
		}
	}
}

// Each change in the local network is acted on, by a client that follows the
// routes.
func TestClientFollowsNetwork(t *testing.T) {
	r := newRig(t)
	r.secondLink(t)
	c, _ := newClient(t)
	roletest.Start(t, r.a, c)
	at := func(addr string) func(Status) bool {
		return func(s Status) bool { return qualified(s) && s.Mapped.Addr().String() == addr }
	}
	await(t, c, "qualified", at("198.51.100.2"))
	steps := []struct {
		name string
		do   func() error
		fits func(Status) bool
	}{
		{"route to another interface", func() error { return routeBy("w", "192.0.2.129", 50) }, at("192.0.2.130")},
		{"and back", func() error { return unrouteBy("w", "192.0.2.129", 50) }, at("198.51.100.2")},
		{"interface down", func() error { return setLink("a", netlink.LinkSetDown) }, at("192.0.2.130")},
		{"interface up, with its route", func() error {
			return errors.Join(setLink("a", netlink.LinkSetUp), routeBy("a", "198.51.100.1", 100))
		}, at("198.51.100.2")},
		{"the only route goes", func() error {
			return errors.Join(unrouteBy("w", "192.0.2.129", 200), unrouteBy("a", "198.51.100.1", 100))
		}, func(s Status) bool { return s.State == "initial" }},
		{"the route is back", func() error { return routeBy("a", "198.51.100.1", 100) }, at("198.51.100.2")},
		{"the address goes, as a lease does", func() error { return changeAddr(netlink.AddrDel, "198.51.100.2/24") },
			func(s Status) bool { return s.State == "initial" }},
		{"another comes with its route", func() error {
			return errors.Join(changeAddr(netlink.AddrAdd, "198.51.100.7/24"), routeBy("a", "198.51.100.1", 100))
		}, at("198.51.100.7")},
		{"a better source address on the same route", func() error {
			l, err := netlink.LinkByName("a")
			if err != nil {
				return err
			}
			return errors.Join(changeAddr(netlink.AddrAdd, "198.51.100.8/24"), netlink.RouteReplace(&netlink.Route{
				LinkIndex: l.Attrs().Index, Gw: net.ParseIP("198.51.100.1"), Src: net.ParseIP("198.51.100.8"), Priority: 100}))
		}, at("198.51.100.8")},
	}
	for _, step := range steps {
		r.a.Do(t, step.do)
		began := time.Now()
		await(t, c, step.name, step.fits)
		t.Logf("%s: %v", step.name, time.Since(began))
	}
}

func setLink(name string, set func(netlink.Link) error) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return set(l)
}

func changeAddr(change func(netlink.Link, *netlink.Addr) error, prefix string) error {
	return setLink("a", func(l netlink.Link) error {
		a, err := netlink.ParseAddr(prefix)
		if err != nil {
			return err
		}
		return change(l, a)
	})
}

// A carrier that comes back asks for a confirmation, since the NAT behind it may
// be another, and keeps the address meanwhile.
func TestClientExaminesNewCarrier(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t)
	roletest.Start(t, r.a, c)
	s := await(t, c, "qualified", qualified)
	asked := func() uint64 { _, stats := c.snapshot(); return stats.Solicitations }
	before := asked()
	r.link(t, r.router, "a", netlink.LinkSetDown)
	await(t, c, "without a carrier", func(Status) bool {
		c.looking.Lock()
		defer c.looking.Unlock()
		return !c.network.link.Up
	})
	r.link(t, r.router, "a", netlink.LinkSetUp)
	await(t, c, "examined", func(Status) bool { return asked() > before })
	if now := await(t, c, "qualified", qualified); now.Address != s.Address {
		t.Errorf("address %s, before %s", now.Address, s.Address)
	}
}
