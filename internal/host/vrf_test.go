// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// placed is where a device is: in which VRF, up or not, and in which tables its routes are.
type placed struct {
	vrf    string
	up     bool
	tables []int
}

func placeOf(device string) (p placed) {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return p
	}
	p.up = l.Attrs().RawFlags&unix.IFF_UP != 0
	if m, err := netlink.LinkByIndex(l.Attrs().MasterIndex); err == nil {
		p.vrf = m.Attrs().Name
	}
	routes, _ := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: port.RouteProtocol, LinkIndex: l.Attrs().Index}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	for _, r := range routes {
		p.tables = append(p.tables, r.Table)
	}
	slices.Sort(p.tables)
	return p
}

// awaitPlace waits until a device is in its place.
func awaitPlace(t *testing.T, what, device string, want placed) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
		got := placeOf(device)
		if got.vrf == want.vrf && got.up == want.up && slices.Equal(got.tables, want.tables) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %+v, want %+v", what, got, want)
		}
	}
}

// refusals are those of [port.Host.Contain].
func refusals() (list []netlink.Route, tables []int) {
	list, _ = netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: port.RefusalProtocol, Type: unix.RTN_UNREACHABLE}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE|netlink.RT_FILTER_TABLE)
	for _, r := range list {
		tables = append(tables, r.Table)
	}
	slices.Sort(tables)
	return list, tables
}

// awaitRefusals waits until these tables have one, and no others.
func awaitRefusals(t *testing.T, what string, want ...int) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
		if _, got := refusals(); slices.Equal(got, want) {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%s: refusals in %v, want %v", what, got, want)
		}
	}
}

// TestVRFIsKept: a device with its routes is in a VRF, whose table refuses the rest, comes back when
// it was taken out, is down while the VRF has gone, and follows it into another table.
func TestVRFIsKept(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.AddVRF(t, "red", 100)
	ns.Do(t, func() error {
		h, err := port.OpenHost()
		if err != nil {
			return err
		}
		d, err := OpenDevice(h, DeviceConfig{
			TUN: port.TUNConfig{Name: "kept", MTU: 1400, Lasting: true}, VRF: "red",
			LastRestore: testutil.LastRestore, Configure: h.GatewayIPv4,
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		for _, p := range []string{"10.45.0.0/16", "2001:db8:1::/48"} {
			if err := d.Route(port.Route{Dst: netip.MustParsePrefix(p)}, true); err != nil {
				return err
			}
		}
		// Others of the same name elsewhere are nobody's business.
		main := &netlink.Route{LinkIndex: 1, Dst: &net.IPNet{IP: net.IPv4(10, 45, 0, 0), Mask: net.CIDRMask(16, 32)}, Scope: netlink.SCOPE_LINK}
		if lo, err := netlink.LinkByName("lo"); err != nil || netlink.LinkSetUp(lo) != nil || netlink.RouteAdd(main) != nil {
			return errors.Join(err, errors.New("no route in the main table"))
		}
		there := placed{"red", true, []int{100, 100}}
		awaitPlace(t, "at first", "kept", there)
		awaitRefusals(t, "at first", 100, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		group, ctx := errgroup.WithContext(ctx)
		if err := d.Keep(ctx, group); err != nil {
			return err
		}
		link := func(name string) netlink.Link {
			l, err := netlink.LinkByName(name)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		for range 3 {
			if err := netlink.LinkSetNoMaster(link("kept")); err != nil {
				return err
			}
			awaitPlace(t, "taken out", "kept", there)
		}
		list, _ := refusals()
		for i := range list {
			if err := netlink.RouteDel(&list[i]); err != nil {
				return err
			}
		}
		awaitRefusals(t, "taken away", 100, 100)
		if err := netlink.LinkDel(link("kept")); err != nil {
			return err
		}
		awaitPlace(t, "deleted", "kept", there)
		if err := netlink.LinkDel(link("red")); err != nil {
			return err
		}
		awaitPlace(t, "the VRF has gone", "kept", placed{})
		said := func() bool {
			s := d.State()
			return s.Word() == "incomplete" && strings.Contains(strings.Join(s.Missing, "\n"), "there is no VRF red")
		}
		for end := time.Now().Add(testutil.Patience); !said(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("without the VRF the state is %+v", d.State())
			}
		}
		if err := netlink.LinkAdd(&netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "red"}, Table: 200}); err != nil {
			return err
		}
		awaitPlace(t, "the VRF is back", "kept", placed{"red", true, []int{200, 200}})
		awaitRefusals(t, "the VRF is back", 200, 200)
		cancel()
		err = errors.Join(group.Wait(), h.Close())
		awaitPlace(t, "at the end", "kept", placed{up: true})
		awaitRefusals(t, "at the end")
		d.End(false)
		return err
	})
}

// TestReturnOfVRFIsHeard: a device whose VRF has been gone for long, so that it is tried once a minute, is in the one that
// is made again as soon as the kernel tells of that, and not behind the rest of the minute.
func TestReturnOfVRFIsHeard(t *testing.T) {
	ns := testutil.NewNetns(t)
	ns.AddVRF(t, "red", 100)
	ns.Do(t, func() error {
		h, err := port.OpenHost()
		if err != nil {
			return err
		}
		defer h.Close()
		d, err := OpenDevice(h, DeviceConfig{TUN: port.TUNConfig{Name: "kept", MTU: 1400}, VRF: "red"}, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer d.End(false)
		k := NewKeeper(h, KeptDevice{Name: d.Name(), Index: d.Index()}, d.log)
		red, err := netlink.LinkByName("red")
		if err != nil || netlink.LinkDel(red) != nil {
			return errors.Join(err, errors.New("the VRF stays"))
		}
		now := time.Now()
		for wait := time.Duration(0); wait < last; now = now.Add(wait) {
			wait = k.look(now, false)
		}
		changes, err := port.Watch(t.Context())
		if err != nil {
			return err
		}
		again := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "red"}, Table: 200}
		if err := netlink.LinkAdd(again); err != nil {
			return err
		}
		for c := range changes {
			if c.Kind == port.LinkChanged && c.Link == again.Index {
				if !k.concerns(c) {
					t.Error("that there is a VRF again concerns nobody")
				}
				break
			}
		}
		k.look(now.Add(-last+time.Second), true)
		awaitPlace(t, "the VRF is back", "kept", placed{vrf: "red", up: true})
		if k.concerns(port.Change{Kind: port.LinkChanged, Link: again.Index}) {
			t.Error("what becomes of a VRF that is not missed concerns the device")
		}
		return nil
	})
}

// TestVRFOfNoUse says what is wrong with a name.
func TestVRFOfNoUse(t *testing.T) {
	testutil.NewNetns(t).Do(t, func() error {
		h, err := port.OpenHost()
		if err != nil {
			return err
		}
		defer h.Close()
		for vrf, want := range map[string]string{"red": "ip link add red type vrf table 100", "lo": "no VRF but of the kind device"} {
			d, err := OpenDevice(h, DeviceConfig{TUN: port.TUNConfig{Name: "dev", MTU: 1280}, VRF: vrf}, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", vrf, err, want)
			}
			if d.End(false); h.VRF(vrf) == nil {
				t.Errorf("%s is right", vrf)
			}
		}
		return nil
	})
}
