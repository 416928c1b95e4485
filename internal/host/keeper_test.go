// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// bench is a keeper whose time the test sets, of a route through a device.
type bench struct {
	k     *Keeper
	host  *port.Host
	now   time.Time
	log   strings.Builder
	route port.Route
}

func inNamespace(t *testing.T, f func(b *bench) error) {
	t.Helper()
	testutil.NewNetns(t).Do(t, func() (err error) {
		b := &bench{now: time.Unix(1e9, 0), route: port.Route{Dst: netip.MustParsePrefix("2001:db8:1::/48"), Link: "d0"}}
		for _, name := range []string{"d0", "other"} {
			d := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
			if err := errors.Join(netlink.LinkAdd(d), netlink.LinkSetUp(d)); err != nil {
				return err
			}
		}
		if b.host, err = port.OpenHost(); err != nil {
			return err
		}
		b.k = NewKeeper(b.host, KeptDevice{}, slog.New(slog.NewTextHandler(&b.log, nil)))
		return errors.Join(b.host.AddRoute(b.route), f(b), b.host.Close())
	})
}

// kernelRoute is the route as someone else would name it.
func (b *bench) kernelRoute(link string) *netlink.Route {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return nil
	}
	_, dst, _ := net.ParseCIDR(b.route.Dst.String())
	return &netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Priority: 1024}
}

func (b *bench) there() bool {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, b.kernelRoute("d0"), netlink.RT_FILTER_DST|netlink.RT_FILTER_OIF)
	return err == nil && len(routes) == 1
}

// Whoever removes a route again and again is yielded to more and more, and heard of once.
func TestYieldsMoreAndMore(t *testing.T) {
	inNamespace(t, func(b *bench) error {
		var waits, want []time.Duration
		for wait := first; len(want) < 16; wait = min(2*wait, last) {
			want = append(want, wait)
			if wait := b.k.look(b.now, true); wait != idle {
				t.Errorf("with all there the next look is after %v", wait)
			}
			if err := netlink.RouteDel(b.kernelRoute("d0")); err != nil {
				return err
			}
			waits = append(waits, b.k.look(b.now, true))
			if b.there() {
				t.Error("the route is there again at once")
			}
			b.now = b.now.Add(waits[len(waits)-1])
			b.k.look(b.now, false)
			if !b.there() {
				t.Fatal("the route is not set again")
			}
		}
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
		if n := strings.Count(b.log.String(), "\n"); n != 1 {
			t.Errorf("%d lines in the log:\n%s", n, &b.log)
		}
		return nil
	})
}

func TestLeavesAlone(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(b *bench) error
		there bool   // the route of the instance, in the end
		says  string // what the state names
	}{
		{"what the instance takes back", func(b *bench) error { return b.host.RemoveRoute(b.route) }, false, ""},
		{"what an instance that ends takes back", func(b *bench) error {
			err := b.host.Close()
			b.host, _ = port.OpenHost()
			return err
		}, false, ""},
		{"a route of somebody else in its place", func(b *bench) error { return netlink.RouteReplace(b.kernelRoute("other")) }, false, "through other"},
		{"one of somebody else through the device", func(b *bench) error {
			r := b.kernelRoute("d0")
			r.Protocol = 4
			return netlink.RouteReplace(r)
		}, true, ""},
		{"nothing", func(*bench) error { return nil }, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inNamespace(t, func(b *bench) error {
				err := tt.do(b)
				for range 3 {
					b.now = b.now.Add(b.k.look(b.now, true))
				}
				if b.there() != tt.there {
					t.Errorf("the route is there: %v", b.there())
				}
				state := b.k.State()
				if got := strings.Join(state.Missing, "; "); (got == "") != (tt.says == "") || !strings.Contains(got, tt.says) {
					t.Errorf("missing %q, want %q", got, tt.says)
				}
				return err
			})
		})
	}
}

// What was in the way goes, and the wait with it.
func TestTakesItsPlaceAgain(t *testing.T) {
	inNamespace(t, func(b *bench) error {
		if err := netlink.RouteReplace(b.kernelRoute("other")); err != nil {
			return err
		}
		for range 12 {
			b.now = b.now.Add(b.k.look(b.now, false))
		}
		err := netlink.RouteDel(b.kernelRoute("other"))
		if wait := b.k.look(b.now, true); wait > first {
			t.Errorf("it waits %v", wait)
		}
		b.now = b.now.Add(first)
		b.k.look(b.now, false)
		b.k.look(b.now, false)
		if !b.there() || len(b.k.State().Missing) > 0 {
			t.Errorf("there: %v, missing %q", b.there(), b.k.State().Missing)
		}
		return err
	})
}

// Things without end are named to a bound.
func TestNamesToABound(t *testing.T) {
	if got := bounded(make([]string, maxNamed)); len(got) != maxNamed {
		t.Errorf("%q", got)
	}
	if got := bounded(make([]string, maxNamed+3)); len(got) != maxNamed+1 || got[maxNamed] != "3 more" {
		t.Errorf("%q", got)
	}
}
