// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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
		return address("gn", nodeAddr)
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
