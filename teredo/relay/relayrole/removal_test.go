// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// awaitRelay waits for a state of a relay and what is missing then.
func (r *rig) awaitRelay(t *testing.T, state string, missing ...string) {
	t.Helper()
	fits := func(got []string) bool {
		return len(got) == len(missing) && !slices.ContainsFunc(got, func(s string) bool {
			return !slices.ContainsFunc(missing, func(want string) bool { return strings.Contains(s, want) })
		})
	}
	for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
		st := r.relay.Status().(Status)
		if st.State == state && fits(st.Missing) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the state is %s, want %s; missing: %q, want %q", st.State, state, st.Missing, missing)
		}
	}
}

// The relay sets up again what someone removes, and keeps its peers.
func TestRelayIsRestored(t *testing.T) {
	for _, mode := range []fastpath.Mode{fastpath.ModeOff, fastpath.ModeTC, fastpath.ModeXDP} {
		t.Run(string(mode), func(t *testing.T) {
			r := newFastRig(t, by(mode))
			r.establish(t)
			works := func(t *testing.T) {
				r.awaitRelay(t, "serving")
				r.hostSends(t, "still")
				wantText(t, "the client got", clientReceives(t, r.client), "still hop 63")
			}
			r.relayNS.Removes(t, "teredo", works)
			r.relayNS.RemovesDevice(t, "teredo", works)
			if st := r.relay.Status().(Status); st.Trusted != 1 {
				t.Errorf("%d trusted peers", st.Trusted)
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What someone else has put in the place of a route stays, is named, and the route comes
// back when that has gone.
func TestRelayYieldsItsRoute(t *testing.T) {
	r := newRig(t, ModeRelay)
	_, dst, err := net.ParseCIDR(teredo.Prefix.String())
	if err != nil {
		t.Fatal(err)
	}
	other := &netlink.Route{Dst: dst, Priority: 1024, Gw: net.ParseIP("2001:db8:1::2")}
	r.relayNS.Do(t, func() error { return netlink.RouteReplace(other) })
	r.awaitRelay(t, "incomplete", "a route to 2001::/32 with metric 1024 exists already")
	r.relayNS.Do(t, func() error {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, other, netlink.RT_FILTER_DST)
		if len(routes) != 1 || !routes[0].Gw.Equal(other.Gw) {
			t.Errorf("the route of somebody else is %v", routes)
		}
		return errors.Join(err, netlink.RouteDel(other))
	})
	r.awaitRelay(t, "serving")
	r.establish(t)
}

// A route that others are to set is missed while it is not there.
func TestRelayMissesItsOperatorsRoute(t *testing.T) {
	r := newRig(t, ModeRelay, func(c *Settings) { c.Route = false })
	r.awaitRelay(t, "serving", "a route that leads 2001::/32 to teredo")
	route := &netlink.Route{}
	r.relayNS.Do(t, func() error {
		l, err := netlink.LinkByName("teredo")
		if err != nil {
			return err
		}
		_, route.Dst, err = net.ParseCIDR("2000::/5")
		route.LinkIndex, route.Priority = l.Attrs().Index, 50
		return errors.Join(err, netlink.RouteAdd(route))
	})
	r.awaitRelay(t, "serving")
	r.relayNS.Do(t, func() error { return netlink.RouteDel(route) })
	r.awaitRelay(t, "serving", "a route that leads 2001::/32 to teredo")
}
