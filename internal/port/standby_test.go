// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

var (
	heldAddr  = netip.MustParsePrefix("2001:db8:9::1/32")
	heldRoute = SourceRoute{Dst: netip.MustParsePrefix("::/0"), Source: heldAddr.Addr(), Link: "d0", Metric: 4096}
	anyone    = netip.MustParseAddr("2001:db8:ffff::1")
)

// An address that is held has no network on the link, and is preferred or not, again and again.
func TestHoldAddr(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	for _, preferred := range []bool{false, false, true, true, false} {
		if err := h.HoldAddr("d0", heldAddr, preferred); err != nil {
			t.Fatal(err)
		}
		if !h.Local(heldAddr.Addr()) {
			t.Error("the host does not take packets for the address")
		}
		list, err := h.IPv6()
		if err != nil || len(list) != 1 || list[0].Prefix != heldAddr || list[0].Deprecated == preferred {
			t.Errorf("preferred %v: addresses %v, %v", preferred, list, err)
		}
		if e, err := h.EgressBy(anyone, "d0"); err == nil {
			t.Errorf("preferred %v: its network is on the link: %+v", preferred, e)
		}
		if lost, err := h.Lost(); len(lost) > 0 || err != nil {
			t.Errorf("preferred %v: %v is lost, %v", preferred, lost, err)
		}
	}
	// As an operator would remove it.
	link, err := h.handle.LinkByName("d0")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.handle.AddrDel(link, &netlink.Addr{IPNet: ipNet(heldAddr)}); err != nil {
		t.Fatal(err)
	}
	lost, err := h.Lost()
	if err != nil || len(lost) != 1 {
		t.Fatalf("%v is lost, %v", lost, err)
	}
	if errs := h.Restore(lost); errs[0] != nil {
		t.Error(errs[0])
	}
	if list, err := h.IPv6(); err != nil || len(list) != 1 || !list[0].Deprecated {
		t.Errorf("restored: addresses %v, %v", list, err)
	}
}

// A route for one source leads its packets alone, whatever other routes there are, and is told from
// these.
func TestSourceRoute(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	native := netip.MustParsePrefix("2001:db8:1::1/64")
	for link, a := range map[string]netip.Prefix{"d0": heldAddr, "far": native} {
		if err := h.AddAddr(link, a); err != nil {
			t.Fatal(err)
		}
	}
	all := Route{Dst: heldRoute.Dst, Link: "far", Metric: 4096} // with the same metric
	if err := h.AddRoute(all); err != nil {
		t.Fatal(err)
	}
	for range 2 { // once more is no error
		if err := h.AddSourceRoute(heldRoute); err != nil {
			t.Fatal(err)
		}
	}
	far := netip.MustParseAddr("2400::1")
	if e, err := h.EgressFrom(far, "d0", heldAddr.Addr()); err != nil || e.Source != heldAddr.Addr() {
		t.Errorf("from the address: %+v, %v", e, err)
	}
	if e, err := h.EgressFrom(far, "d0", native.Addr()); err == nil {
		t.Errorf("from another: %+v", e)
	}
	if e, err := h.Egress(far); err != nil || e.Source != native.Addr() {
		t.Errorf("unbound: %+v, %v", e, err)
	}
	froms := map[netip.Prefix]int{}
	count := func() {
		clear(froms)
		if err := h.EachRoute(func(w RouteEntry) {
			if w.Dst == heldRoute.Dst {
				froms[w.From]++
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if count(); froms[alone(heldAddr.Addr())] != 1 || froms[netip.Prefix{}] != 1 {
		t.Errorf("routes for sources: %v", froms)
	}
	// As an operator would remove it: the other route is not taken for it.
	index, _, err := h.Link("d0")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.changeSourceRoute(unix.RTM_DELROUTE, 0, heldRoute, index); err != nil {
		t.Fatal(err)
	}
	lost, err := h.Lost()
	if err != nil || len(lost) != 1 {
		t.Fatalf("%v is lost, %v", lost, err)
	}
	if errs := h.Restore(lost); errs[0] != nil {
		t.Error(errs[0])
	}
	if count(); froms[alone(heldAddr.Addr())] != 1 {
		t.Errorf("routes for sources after the restoration: %v", froms)
	}
	for range 2 {
		if err := h.RemoveSourceRoute(heldRoute); err != nil {
			t.Error(err)
		}
	}
	if count(); len(froms) != 1 || froms[netip.Prefix{}] != 1 {
		t.Errorf("routes for sources after the removal: %v", froms)
	}
}

// It goes when its Host is closed, and with its link.
func TestSourceRouteGoes(t *testing.T) {
	h := inNamespace(t)
	addLink(t, h, "d0")
	for _, end := range []func(other *Host) error{
		func(other *Host) error { return other.Close() },
		func(other *Host) error {
			other.Abandon() // as one that is killed
			l, err := h.handle.LinkByName("d0")
			if err != nil {
				return err
			}
			return h.handle.LinkDel(l)
		},
	} {
		other, err := OpenHost()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.AddSourceRoute(heldRoute); err != nil {
			t.Fatal(err)
		}
		if err := end(other); err != nil {
			t.Error(err)
		}
		routes, err := testutil.Whole(func() (list []RouteEntry, err error) {
			err = h.EachRoute(func(w RouteEntry) {
				if w.Source {
					list = append(list, w)
				}
			})
			return list, err
		})
		if len(routes) > 0 || err != nil {
			t.Errorf("left: %v, %v", routes, err)
		}
	}
}
