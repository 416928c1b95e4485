// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// started runs a node in a network namespace, and waits until it serves.
func started(t *testing.T, ns *testutil.Netns, cfg Settings) (g *GGSN, stop func()) {
	t.Helper()
	g, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := roletest.Start(t, ns, g)
	return g, func() {
		t.Helper()
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// hostOf is a network namespace with the node's addresses.
func hostOf(t *testing.T) *testutil.Netns {
	t.Helper()
	ns := testutil.NewNetns(t)
	ns.Do(t, func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "gn"}, PeerName: "far"}); err != nil {
			return err
		}
		if err := forward(); err != nil {
			return err
		}
		if err := address("gn", nodeAddr); err != nil {
			return err
		}
		testutil.AwaitLocal(t, nodeAddr[true]) // its route is made a little later
		return nil
	})
	return ns
}

// routesBy are the destinations of routes by a device.
func routesBy(t *testing.T, ns *testutil.Netns, device string) (list []netip.Prefix) {
	t.Helper()
	ns.Do(t, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(link, netlink.FAMILY_ALL)
		for _, r := range routes {
			if r.Dst != nil {
				if p, err := netip.ParsePrefix(r.Dst.String()); err == nil && !p.Addr().IsMulticast() {
					list = append(list, p)
				}
			}
		}
		return err
	})
	return list
}

// TestKeysOnTheHost sees the sockets, the devices and their routes, and the file.
func TestKeysOnTheHost(t *testing.T) {
	configtest.InEffect(t, "ggsn", "name", "gsn_address4", "gsn_address6", "interface", "route", "workers", "announce", "state_file", "keep_state", "context_log")
	configtest.InEffect(t, "ggsn.apn", "interface")
	ns := hostOf(t)
	file := filepath.Join(t.TempDir(), "state")
	lines := func(route bool) string {
		return fmt.Sprintf("name = \"house\"\ninterface = \"g0\"\nroute = %t\nworkers = 2\nannounce = true\ncontext_log = true\nkeep_state = false\nstate_file = %q", route, file)
	}
	const apns = "name = \"internet\"\npool6 = []\n[[ggsn.apn]]\nname = \"ims\"\ninterface = \"g1\"\npool6 = [\"2001:db8:7000::/48\"]"
	g, stop := started(t, ns, written(t, lines(true), apns))
	if g.Name() != "house" || len(g.sockets[ggsn.SocketUser]) != 2 || len(g.networks) != 2 || len(g.networks[0].device.Queues) != 2 || !g.events.contexts.Load() {
		t.Errorf("%s has %d sockets of the user plane, %d networks", g.Name(), len(g.sockets[ggsn.SocketUser]), len(g.networks))
	}
	g.sockets.each(func(n ggsn.Socket, _ int, conn *port.UDP) {
		if want := netip.AddrPortFrom(nodeAddr[n.IPv6()], n.Port()); conn.LocalAddr() != want {
			t.Errorf("socket %d is at %v, want %v", n, conn.LocalAddr(), want)
		}
	})
	if list := routesBy(t, ns, "g0"); !slices.Equal(list, []netip.Prefix{netip.MustParsePrefix("10.45.0.0/16")}) {
		t.Errorf("by g0 go %v", list)
	}
	if list := routesBy(t, ns, "g1"); !slices.Equal(list, []netip.Prefix{netip.MustParsePrefix("2001:db8:7000::/48")}) {
		t.Errorf("by g1 go %v", list)
	}
	if list := g.AnnouncedPrefixes(); len(list) != 2 {
		t.Errorf("it announces %v", list)
	}
	check(t, ns, g)
	stop()
	if s, err := kept.OpenSaved(file); err != nil || s.Fresh || s.Whole {
		t.Errorf("the file has a counter %v, contexts %v, %v", !s.Fresh, s.Whole, err)
	} else {
		s.Close()
	}
	_, stop = started(t, ns, written(t, lines(false), apns))
	if list := routesBy(t, ns, "g1"); len(list) > 0 {
		t.Errorf("with route off %v is set", list)
	}
	stop()
	ns.Do(t, func() error {
		for _, name := range []string{"g0", "g1"} {
			if _, err := netlink.LinkByName(name); err == nil {
				t.Errorf("the device %s stays", name)
			}
		}
		return nil
	})
}

// check has the node look whether it works, which it does.
func check(t *testing.T, ns *testutil.Netns, g *GGSN) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	ns.Do(t, func() error { return g.CheckSelf(ctx) })
	st := g.Status().(Status)
	if st.State != "serving" || len(st.Missing) > 0 || st.Workers != 2 || len(st.Interfaces) != 2 {
		t.Errorf("status %+v", st)
	}
}

// TestWhatIsRemovedComesBack: a device and a route that somebody has deleted are there again.
func TestWhatIsRemovedComesBack(t *testing.T) {
	ns := hostOf(t)
	cfg := written(t, fmt.Sprintf("state_file = %q", filepath.Join(t.TempDir(), "state")), "")
	started(t, ns, cfg)
	for name, remove := range map[string]func() error{
		"a device": func() error {
			link, err := netlink.LinkByName("ggsn")
			if err != nil {
				return err
			}
			return netlink.LinkDel(link)
		},
		"a route": func() error {
			link, err := netlink.LinkByName("ggsn")
			if err != nil {
				return err
			}
			routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
			for i := range routes {
				err = errors.Join(err, netlink.RouteDel(&routes[i]))
			}
			return err
		},
	} {
		ns.Do(t, remove)
		back := func() bool {
			found := false
			ns.Do(t, func() error {
				link, err := netlink.LinkByName("ggsn")
				if err != nil {
					return nil
				}
				routes, _ := netlink.RouteList(link, netlink.FAMILY_V4)
				found = len(routes) == 1
				return nil
			})
			return found
		}
		for end := time.Now().Add(testutil.Patience); !back(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s does not come back", name)
			}
		}
	}
}

// TestAddressMissing says in words which address is not there, and leaves nothing behind.
func TestAddressMissing(t *testing.T) {
	ns := testutil.NewNetns(t)
	state := filepath.Join(t.TempDir(), "state")
	g, err := New(written(t, fmt.Sprintf("state_file = %q", state), ""), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ns.Do(t, func() error {
		if err := g.Run(t.Context()); err == nil {
			t.Error("it runs without its address")
		}
		return nil
	})
	if _, err := os.Stat(state); err == nil {
		t.Error("a restart counter is written, though nobody was served")
	}
}

// logged runs a node with a log, which is to be read after its stop.
func logged(t *testing.T, ns *testutil.Netns) (*GGSN, *roletest.Running, *strings.Builder) {
	t.Helper()
	log := new(strings.Builder)
	g, err := New(written(t, fmt.Sprintf("state_file = %q", filepath.Join(t.TempDir(), "state")), ""), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return g, roletest.Start(t, ns, g), log
}

// TestAddressComesAndGoes: an address of the node that leaves the host, or whose interface is
// switched off, is told once, by status and log, and so is that it is back.
func TestAddressComesAndGoes(t *testing.T) {
	ns := hostOf(t)
	g, r, log := logged(t, ns)
	change := func(f func(netlink.Link) error) {
		t.Helper()
		ns.Do(t, func() error {
			link, err := netlink.LinkByName("gn")
			if err != nil {
				return err
			}
			return f(link)
		})
	}
	await := func(what, state string, missing ...netip.Addr) {
		t.Helper()
		for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
			st := g.Status().(Status)
			if st.State == state && slices.Equal(st.MissingAddresses, missing) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: status %+v, want state %s and missing %v", what, st, state, missing)
			}
		}
	}
	cfg := g.cfg
	way := func() (n int) {
		ns.Do(t, func() error { n = len(lacking(&cfg)); return nil })
		return n
	}
	four := &netlink.Addr{IPNet: &net.IPNet{IP: nodeAddr[false].AsSlice(), Mask: net.CIDRMask(24, 32)}}
	await("all is there", "serving")
	change(func(l netlink.Link) error { return netlink.AddrDel(l, four) })
	await("the address is gone", "address_missing", nodeAddr[false])
	if n := way(); n != 1 {
		t.Errorf("a check warns of %d addresses, want 1", n)
	}
	if err := g.CheckSelf(t.Context()); err == nil {
		t.Error("the node announces its pools without its address")
	}
	change(func(l netlink.Link) error { return netlink.AddrAdd(l, four) })
	await("it is back", "serving")
	change(func(l netlink.Link) error { return netlink.LinkSetDown(l) })
	await("the interface is down", "address_missing", g.cfg.addresses()...)
	change(func(l netlink.Link) error {
		return errors.Join(netlink.LinkSetUp(l), address("gn", map[bool]netip.Addr{true: nodeAddr[true]}))
	})
	await("it is up", "serving")
	if n := way(); n != 0 {
		t.Errorf("a check warns of %d addresses that are there", n)
	}
	cfg.Address4 = netip.MustParseAddr("203.0.113.9")
	if n := way(); n != 1 {
		t.Error("a check does not warn of a source that the host does not have")
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"has gone from this host": 2, "is on the interface gn, which is switched off": 1, "is back": 3} {
		if got := strings.Count(log.String(), text); got != want {
			t.Errorf("%q stands %d times in the log, want %d:\n%s", text, got, want, log.String())
		}
	}
}

// TestForwardingSwitched: what keeps packets from passing while the node runs stands in the log
// once, and so does that it is over.
func TestForwardingSwitched(t *testing.T) {
	ns := hostOf(t)
	g, r, log := logged(t, ns)
	for _, value := range []string{"0", "1"} {
		ns.Do(t, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(value), 0) })
		for range 2 {
			g.mu.Lock()
			g.tellBlocked()
			g.mu.Unlock()
		}
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"terminals reach nothing: this host does not forward IPv4", "packets of terminals pass again"} {
		if got := strings.Count(log.String(), text); got != 1 {
			t.Errorf("%q stands %d times in the log, want 1:\n%s", text, got, log.String())
		}
	}
}

// TestExamine says what of this host is in the way of a node, each with a remedy.
func TestExamine(t *testing.T) {
	ns := hostOf(t)
	state := filepath.Join(t.TempDir(), "state")
	held, err := kept.OpenSaved(state + ".held")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, tt := range []struct{ name, node, apn, want string }{
		{"nothing", fmt.Sprintf("state_file = %q", state), "", ""},
		{"a pool that is a network of an interface", "", `pool4 = ["192.0.2.0/24"]`, "192.0.2.0/24 of access point internet is the network of the interface gn: choose a prefix"},
		{"the same of IPv6", "", `pool6 = ["2001:db8:9::/64"]`, "2001:db8:9::/64 of access point internet is the network of the interface gn: choose a prefix"},
		{"a pool with a network of an interface in it", "", `pool4 = ["192.0.2.0/23"]`, "has the address 192.0.2.1 of the interface gn in it: choose a prefix"},
		{"the same of IPv6", "", `pool6 = ["2001:db8:8::/47"]`, "of the interface gn in it: choose a prefix"},
		{"a pool for static addresses with this host's in it", "", `pool4 = ["10.45.0.0/16"]` + "\n" + `static4 = ["192.0.2.0/23"]`, "has the address 192.0.2.1 of the interface gn in it: choose a prefix"},
		{"a pool in the network of an interface, with its address", "", `pool4 = ["192.0.2.0/25"]`, "has the address 192.0.2.1 of the interface gn in it: choose a prefix"},
		{"without routes of its own", "route = false", `pool6 = ["2001:db8:9::/64"]`, "is the network of the interface gn"},
		{"a folder for the state", fmt.Sprintf("state_file = %q", filepath.Dir(state)), "", "is a folder: name a file in it as state_file"},
		{"the state of another process", fmt.Sprintf("state_file = %q", state+".held"), "", "is in use by another process: stop that, or set another state_file"},
	} {
		cfg := written(t, tt.node, "")
		if tt.node == "" || tt.node == "route = false" {
			cfg.StateFile = state
		}
		if tt.apn != "" { // the configuration alone would say of some that they hold the node's address
			a := written(t, `gsn_address4 = "198.51.100.9"`+"\n"+`gsn_address6 = "2001:db8:99::9"`, tt.apn)
			cfg.APNs = a.APNs
		}
		ns.Do(t, func() error {
			switch err := examine(&cfg); {
			case tt.want == "" && err != nil:
				t.Errorf("%s: %v", tt.name, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
			}
			return nil
		})
	}
}

// TestHiddenPools: terminals with addresses of a network of this host are found there if this host
// answers for them.
func TestHiddenPools(t *testing.T) {
	ns := hostOf(t)
	cfg := written(t, "", `pool4 = ["192.0.2.128/25"]`)
	for proxy, want := range map[string]int{"0": 1, "1": 0} {
		ns.Do(t, func() error {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/gn/proxy_arp", []byte(proxy), 0); err != nil {
				return err
			}
			list := cfg.hidden()
			if got := strings.Count(strings.Join(list, "\n"), "192.0.2.128/25 of access point internet is a part of the network of the interface gn, whose hosts do not find terminals: "); got != want {
				t.Errorf("with proxy_arp %s: %q", proxy, list)
			}
			return nil
		})
	}
}

// TestLostStateIsTold: whoever starts behind a process that has left nothing says so.
func TestLostStateIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		leave func(s *kept.Saved, path string) error
		want  string
	}{
		"nobody before":      {nil, ""},
		"one that was ended": {func(s *kept.Saved, _ string) error { return s.Begin(7) }, "has left no contexts"},
		"an emptied file":    {func(_ *kept.Saved, path string) error { return os.Truncate(path, 0) }, "cannot be read"},
	} {
		path := filepath.Join(t.TempDir(), "state")
		if tt.leave != nil {
			s, err := kept.OpenSaved(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(tt.leave(s, path), s.Close()); err != nil {
				t.Fatal(err)
			}
		}
		var log strings.Builder
		g, err := New(written(t, fmt.Sprintf("state_file = %q", path), ""), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.openState(); err != nil {
			t.Fatal(err)
		}
		if err := g.saved.Close(); err != nil {
			t.Fatal(err)
		}
		if text := log.String(); tt.want == "" && text != "" || !strings.Contains(text, tt.want) {
			t.Errorf("%s: the log has %q, want %q", name, text, tt.want)
		}
	}
}
