// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

var someRoute = port.Route{Dst: netip.MustParsePrefix("2001:db8:1::/48")}

// withDevice runs f with a device in a namespace of its own.
func withDevice(t *testing.T, cfg DeviceConfig, f func(h *port.Host, d *Device) error) {
	t.Helper()
	testutil.NewNetns(t).Do(t, func() error {
		h, err := port.OpenHost()
		if err != nil {
			return err
		}
		d, err := OpenDevice(h, cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		err = f(h, d)
		d.End(false)
		return errors.Join(err, h.Close())
	})
}

// TestDeviceIsKept: what an operator removes comes back, with the settings of the instance.
func TestDeviceIsKept(t *testing.T) {
	ns, back := testutil.NewNetns(t), make(chan struct{}, 10)
	ns.Do(t, func() error {
		h, err := port.OpenHost()
		if err != nil {
			return err
		}
		configured := 0
		d, err := OpenDevice(h, DeviceConfig{
			TUN: port.TUNConfig{Name: "kept", MTU: 1400, Lasting: true}, Queues: 2, LastRestore: testutil.LastRestore,
			Configure: func(device string) error { configured++; return h.GatewayIPv4(device) },
			Reopened:  func() { back <- struct{}{} },
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		if err := d.Route(someRoute, true); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		group, ctx := errgroup.WithContext(ctx)
		if err := d.Keep(ctx, group); err != nil {
			return err
		}
		ns.Removes(t, "kept", func(*testing.T) {})
		ns.RemovesDevice(t, "kept", func(*testing.T) {})
		<-back
		cancel()
		err = errors.Join(group.Wait(), h.Close())
		d.End(false)
		if configured < 2 {
			t.Errorf("a device that was deleted was configured %d times", configured)
		}
		if _, there := netlink.LinkByName("kept"); there == nil {
			t.Error("the device stays behind")
		}
		return err
	})
}

// TestRouteOfFormerDevice: a device that an earlier process has left makes room, that of
// someone else does not.
func TestRouteOfFormerDevice(t *testing.T) {
	withDevice(t, DeviceConfig{TUN: port.TUNConfig{Name: "former", MTU: 1280, Persistent: true}}, func(h *port.Host, former *Device) error {
		if err := former.Route(someRoute, true); err != nil {
			return err
		}
		next, err := OpenDevice(h, DeviceConfig{TUN: port.TUNConfig{Name: "next", MTU: 1280}}, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer next.End(false)
		if err := next.Route(someRoute, true); err == nil {
			t.Error("the route of a device that is in use is taken")
		}
		former.End(true)
		if err := next.Route(someRoute, true); err != nil {
			t.Errorf("the route of a device that was left is not: %v", err)
		}
		return next.Unroute(someRoute, true)
	})
}

// TestExpectedRoute: a route that others are to set is not set, and said to be missing.
func TestExpectedRoute(t *testing.T) {
	withDevice(t, DeviceConfig{TUN: port.TUNConfig{Name: "dev", MTU: 1280}}, func(h *port.Host, d *Device) error {
		if err := d.Route(someRoute, false); err != nil {
			return err
		}
		lost, err := h.Lost()
		if len(lost) != 1 || !lost[0].Expected() {
			t.Errorf("missing is %v, want the route that is expected", lost)
		}
		return errors.Join(err, d.Unroute(someRoute, false))
	})
}

// TestExpectedRouteIsFollowed: a rule that leads packets to the device, or past it, and a link that takes a narrower route of
// IPv4 along, of which the kernel says nothing, are noticed when they come about.
func TestExpectedRouteIsFollowed(t *testing.T) {
	withDevice(t, DeviceConfig{TUN: port.TUNConfig{Name: "dev", MTU: 1280}}, func(h *port.Host, d *Device) error {
		narrow, wide := netip.MustParsePrefix("203.0.113.0/24"), &net.IPNet{IP: net.IPv4(203, 0, 112, 0), Mask: net.CIDRMask(23, 32)}
		dst := &net.IPNet{IP: narrow.Addr().AsSlice(), Mask: net.CIDRMask(24, 32)}
		other := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "other"}}
		err := errors.Join(
			netlink.LinkAdd(other), netlink.LinkSetUp(other), d.Route(port.Route{Dst: narrow}, false),
			netlink.RouteAdd(&netlink.Route{LinkIndex: other.Index, Dst: dst, Scope: netlink.SCOPE_LINK}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: d.Index(), Dst: wide, Scope: netlink.SCOPE_LINK}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: d.Index(), Dst: wide, Scope: netlink.SCOPE_LINK, Table: 7}))
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		group, ctx := errgroup.WithContext(ctx)
		if err := d.Keep(ctx, group); err != nil {
			return err
		}
		await := func(what string, missing int) {
			t.Helper()
			for end := time.Now().Add(testutil.Patience); len(d.State().Expected) != missing; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: missing is %v, want %d routes", what, d.State().Expected, missing)
				}
			}
		}
		await("at first", 1)
		rule := netlink.NewRule()
		rule.Dst, rule.Table, rule.Priority = dst, 7, 100
		if err := netlink.RuleAdd(rule); err != nil {
			return err
		}
		await("a rule leads to the device", 0)
		if err := netlink.RuleDel(rule); err != nil {
			return err
		}
		await("the rule has gone", 1)
		if err := netlink.LinkSetDown(other); err != nil {
			return err
		}
		await("the link of the narrower route is down", 0)
		cancel()
		return group.Wait()
	})
}

// TestFollow: changes are told until the end, which is no error.
func TestFollow(t *testing.T) {
	testutil.NewNetns(t).Do(t, func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		group, ctx := errgroup.WithContext(ctx)
		kinds := make(chan port.ChangeKind, 100)
		if err := Follow(ctx, group, func(c port.Change) { kinds <- c.Kind }); err != nil {
			return err
		}
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "new"}}); err != nil {
			return err
		}
		for kind := range kinds {
			if kind == port.LinkChanged {
				break
			}
		}
		cancel()
		return group.Wait()
	})
}

// The end of a watch that no one asked for is an error, and at the end of the instance it is
// none.
func TestWatchEnds(t *testing.T) {
	changes := make(chan port.Change, 2)
	changes <- port.Change{}
	changes <- port.Change{}
	close(changes)
	ctx, cancel := context.WithCancel(t.Context())
	changed, settled := 0, 0
	err := Bursts(ctx, changes, func(port.Change) { changed++ }, func() { settled++ })
	if !errors.Is(err, ErrWatchEnded) || changed != 2 || settled != 1 {
		t.Errorf("error %v after %d changes in %d bursts", err, changed, settled)
	}
	cancel()
	if err := Bursts(ctx, changes, nil, nil); err != nil {
		t.Errorf("at the end: %v", err)
	}
}
