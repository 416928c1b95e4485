// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/gateway/gatewaytest"
	"github.com/isthmus-net/isthmus/translate/pref64/discovery"
)

// TestAdvertisesItsPrefix has six hear of pool6, and of its change.
func TestAdvertisesItsPrefix(t *testing.T) {
	configtest.InEffect(t, "nat64", "announce_pref64")
	w := gatewaytest.NewWorld(t)
	c := testSettings(t)
	c.AnnouncePREF64 = []string{"v6"}
	n := start(t, w, c)
	discovers := func(want ...netip.Prefix) {
		t.Helper()
		var heard []netip.Prefix
		for deadline := time.Now().Add(testutil.Patience); time.Now().Before(deadline); {
			w.Six.Do(t, func() error {
				set, err := discovery.Discover(t.Context(), discovery.Settings{Interface: "v6"})
				heard = set.Prefixes
				return err
			})
			if slices.Equal(heard, want) {
				return
			}
		}
		t.Errorf("six heard of %v, want %v", heard, want)
	}
	discovers(c.Pool6...)
	next := c
	next.Pool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:65::/96")}
	if _, err := roletest.Reload(Role, n, n.cfg, next); err != nil {
		t.Fatal(err)
	}
	discovers(next.Pool6...)
	next.AnnouncePREF64 = nil
	if _, err := roletest.Reload(Role, n, n.cfg, next); err != nil {
		t.Fatal(err)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	w.Clean(t)
}

// TestCheckSelf sends a packet through the device and a loop and back, and finds out when
// the device is down.
func TestCheckSelf(t *testing.T) {
	w := gatewaytest.NewWorld(t)
	n := start(t, w, testSettings(t))
	check := func(patience time.Duration) (err error) {
		w.Gateway.Do(t, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err = n.CheckSelf(ctx)
			return nil
		})
		return err
	}
	if err := check(testutil.Patience); err != nil {
		t.Error(err)
	}
	w.Gateway.Do(t, func() error { return n.device.Host().RemoveRoute(portRoute(n)) })
	if err := check(300 * time.Millisecond); err == nil {
		t.Error("without a route the check found nothing")
	}
}

// portRoute is the route to pool6.
func portRoute(n *NAT64) port.Route { return port.Route{Dst: n.cfg.Pool6[0], Link: n.device.Name()} }
