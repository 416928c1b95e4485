// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/testutil"
	pref64 "github.com/isthmus-net/isthmus/translate/pref64/run"
)

// TestNAT64AdvertisesItsPrefix has six hear of pool6, and of its change.
func TestNAT64AdvertisesItsPrefix(t *testing.T) {
	w := newWorld(t)
	c := nat64Config(t)
	c.AnnouncePREF64 = []string{"v6"}
	n := startNAT64(t, w, c)
	discovers := func(want ...netip.Prefix) {
		t.Helper()
		var heard []netip.Prefix
		for deadline := time.Now().Add(testutil.Patience); time.Now().Before(deadline); {
			w.six.Do(t, func() error {
				set, err := pref64.Discover(t.Context(), pref64.Settings{Interface: "v6"})
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
	if _, err := reload(NAT64Role, n, n.cfg, next); err != nil {
		t.Fatal(err)
	}
	discovers(next.Pool6...)
	next.AnnouncePREF64 = nil
	if _, err := reload(NAT64Role, n, n.cfg, next); err != nil {
		t.Fatal(err)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w.clean(t)
}

// TestCheckSelf sends a packet through the device and a loop and back, and finds out when
// the device is down.
func TestCheckSelf(t *testing.T) {
	w := newWorld(t)
	n := startNAT64(t, w, nat64Config(t))
	check := func(patience time.Duration) (err error) {
		w.gateway.Do(t, func() error {
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
	w.gateway.Do(t, func() error { return n.device.Host().RemoveRoute(portRoute(n)) })
	if err := check(300 * time.Millisecond); err == nil {
		t.Error("without a route the check found nothing")
	}
}

// portRoute is the route to pool6.
func portRoute(n *NAT64) port.Route { return port.Route{Dst: n.cfg.Pool6[0], Link: n.device.Name()} }
