// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// TestAnnounce has a host learn prefixes, their change and their end from a router.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	a := announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96")
	stop := n.announce(t, a)
	w := n.watch(t, "routers")
	w.await(t, "router advertisement [2001:db8:64::/96]")
	// A host that has heard an advertisement has no reason to solicit one.
	n.solicit(t)
	awaitValue(t, a, "pref64_solicited_total", 1)
	if err := a.Set(AnnounceSettings{Interface: "lan0", Prefixes: prefixes("2001:db8:65::/64", "64:ff9b::/96"), Interval: pref64.MinInterval}); err != nil {
		t.Fatal(err)
	}
	w.await(t, "router advertisement [2001:db8:65::/64 64:ff9b::/96]")
	stop(context.Canceled)
	w.await(t, "none []")
	if sent, failed := value(a, "pref64_sent_total"), value(a, "pref64_failed_total"); sent < 3 || failed != 0 {
		t.Errorf("%v sent, %v failed", sent, failed)
	}
	n.router.Do(t, func() error {
		lan, err := netlink.LinkByName("lan0")
		if err != nil {
			return err
		}
		addresses, err := testutil.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(lan, netlink.FAMILY_V6) })
		if err == nil && len(addresses) != 2 {
			err = fmt.Errorf("addresses are left: %v", addresses)
		}
		return err
	})
}

// TestBackAgain withdraws a prefix and announces it again before anybody was told of the
// first: what is told is that it is there. What is really withdrawn is told several times,
// and not forgotten when it could not be sent.
func TestBackAgain(t *testing.T) {
	t.Parallel()
	a := announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96")
	for _, p := range []string{"2001:db8:65::/96", "2001:db8:64::/96"} {
		if err := a.Set(AnnounceSettings{Interface: "lan0", Prefixes: prefixes(p)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.withdrawn) != 1 || a.withdrawn[0].Prefix != prefixes("2001:db8:65::/96")[0] || a.withdrawn[0].Lifetime != 0 {
		t.Errorf("withdrawn: %v", a.withdrawn)
	}
	for i := range 1000 {
		p := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(i >> 8), byte(i)}), 96)
		if err := a.Set(AnnounceSettings{Interface: "lan0", Prefixes: []netip.Prefix{p}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.withdrawn) != maxWithdrawn {
		t.Errorf("%d are remembered", len(a.withdrawn))
	}
	n := newNetwork(t)
	n.router.Do(t, func() error {
		s, err := listen("lan0", nil, ipv6.ICMPTypeRouterSolicitation)
		if err != nil {
			return err
		}
		defer s.close()
		a.source = sourceOf(s.link)
		for _, step := range []struct {
			up   bool
			left int
		}{{true, 2}, {false, 2}, {true, 1}, {true, 0}} {
			lan, err := netlink.LinkByName("lan0")
			if err != nil {
				return err
			}
			if step.up {
				err = netlink.LinkSetUp(lan)
			} else {
				err = netlink.LinkSetDown(lan)
			}
			if err != nil {
				return err
			}
			for end := time.Now().Add(patience); step.up && s.assume(a.source) != nil; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					return errors.New("the link has no address again")
				}
			}
			a.schedule = pref64.NewSchedule(a.interval, newRandom(), time.Now())
			a.advertise(s)
			if a.farewells != step.left || (len(a.withdrawn) > 0) != (step.left > 0) {
				t.Errorf("up %v: %d farewells left, %d prefixes; want %d", step.up, a.farewells, len(a.withdrawn), step.left)
			}
		}
		return nil
	})
}

// TestSetWhileSending has the prefixes change while an advertisement is on its way, or fails: the
// change is told as soon as the rules allow, and what it withdraws three times.
func TestSetWhileSending(t *testing.T) {
	for _, sent := range []bool{true, false} {
		a := announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96")
		now := time.Now()
		a.schedule = pref64.NewSchedule(a.interval, newRandom(), now)
		if told := a.due(now); len(told) != 1 {
			t.Fatalf("%v are told", told)
		}
		if err := a.Set(AnnounceSettings{Interface: "lan0", Prefixes: prefixes("2001:db8:65::/96")}); err != nil {
			t.Fatal(err)
		}
		a.said(sent, now)
		if next := a.schedule.Next().Sub(now); next > 3*time.Second {
			t.Errorf("sent %t: the change is told after %v", sent, next)
		}
		if a.farewells != lastWords || len(a.withdrawn) != 1 {
			t.Errorf("sent %t: %d farewells left, of %v", sent, a.farewells, a.withdrawn)
		}
	}
}

// TestLinkComesUp has the link be down when the announcer starts, and come up when the next
// advertisement of its schedule is minutes away: hosts hear of the prefixes all the same.
func TestLinkComesUp(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	state := func(f func(netlink.Link) error) {
		n.router.Do(t, func() error {
			lan, err := netlink.LinkByName("lan0")
			return errors.Join(err, f(lan))
		})
	}
	a, err := NewAnnouncer(AnnounceSettings{Interface: "lan0", Prefixes: prefixes("2001:db8:64::/96"), Interval: pref64.MaxInterval}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	n.announce(t, a)
	awaitValue(t, a, "pref64_sent_total", 1)
	state(netlink.LinkSetDown)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		a.mu.Lock()
		seen := !a.running
		for range 3 { // the early ones
			a.schedule.Sent(time.Now())
		}
		a.mu.Unlock()
		if seen {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it does not see that the link is down")
		}
	}
	sent := value(a, "pref64_sent_total")
	state(netlink.LinkSetUp)
	awaitValue(t, a, "pref64_sent_total", sent+1)
}

// TestInterfaceMadeAnew ends the announcer when its interface is removed, so that who runs it
// starts it again on the next one of that name.
func TestInterfaceMadeAnew(t *testing.T) {
	n := newNetwork(t)
	a := announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96")
	ended := make(chan error, 1)
	go n.router.Do(t, func() error {
		ended <- a.Run(t.Context())
		return nil
	})
	awaitValue(t, a, "pref64_sent_total", 1)
	n.router.Do(t, func() error {
		lan, err := netlink.LinkByName("lan0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(lan)
	})
	select {
	case err := <-ended:
		if !errors.Is(err, errGone) {
			t.Errorf("it ends by %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on without an interface")
	}
}

// TestManyRouters has a neighbour feign routers without number: all are counted, few are told
// of.
func TestManyRouters(t *testing.T) {
	var log watched
	a := announcer(t, slog.New(slog.NewTextHandler(&log, nil)), "2001:db8:64::/96")
	message, err := pref64.AppendAdvertisement(nil, []pref64.Option{{Prefix: prefixes("2001:db8:66::/96")[0], Lifetime: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		a.hear(message, netip.AddrFrom16([16]byte{0xfe, 0x80, 14: byte(i >> 8), 15: byte(i)}))
	}
	if n := strings.Count(log.text.String(), "\n"); n < 1 || n > 20 || value(a, "pref64_inconsistent_total") != 1000 {
		t.Errorf("%d lines, %v counted", n, value(a, "pref64_inconsistent_total"))
	}
}

// TestLeave keeps the prefixes of hosts where a successor goes on.
func TestLeave(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	stop := n.announce(t, announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96"))
	w := n.watch(t, "routers")
	w.await(t, "router advertisement [2001:db8:64::/96]")
	w.mu.Lock()
	w.text.Reset() // what it said before it heard anybody
	w.mu.Unlock()
	stop(role.ErrLeave)
	n.announce(t, announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96", "2001:db8:65::/96"))
	w.await(t, "router advertisement [2001:db8:64::/96 2001:db8:65::/96]")
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(w.text.String(), "none") {
		t.Errorf("the host had no prefix for a while:\n%s", w.text.String())
	}
}

// TestDefaultRouterStays has the host keep a default route by the router that also sends
// our advertisements, whose router lifetime is 0.
func TestDefaultRouterStays(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.router.Do(t, func() error {
		s, err := listen("lan0", nil, ipv6.ICMPTypeRouterSolicitation)
		if err != nil {
			return err
		}
		defer s.close()
		m := make([]byte, 16)
		m[0], m[6], m[7] = 134, 0x07, 0x08 // a default router for half an hour
		return s.write(m, netip.Addr{}, packet.AllNodes)
	})
	routes := func() (count int) {
		n.host.Do(t, func() error {
			lan, err := netlink.LinkByName("lan0")
			if err != nil {
				return err
			}
			list, err := testutil.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(lan, netlink.FAMILY_V6) })
			for _, r := range list {
				if r.Dst == nil || r.Dst.IP.IsUnspecified() {
					count++
				}
			}
			return err
		})
		return count
	}
	for end := time.Now().Add(patience); routes() != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no default route at all")
		}
	}
	n.announce(t, announcer(t, slog.New(slog.DiscardHandler), "2001:db8:64::/96"))
	n.watch(t, "routers").await(t, "router advertisement [2001:db8:64::/96]")
	if routes() != 1 {
		t.Error("the host has lost its default route")
	}
}

// TestInconsistent has two routers say different things.
func TestInconsistent(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	var log watched
	a := announcer(t, slog.New(slog.NewTextHandler(&log, nil)), "2001:db8:64::/96")
	n.announce(t, a)
	other := network{n.host, n.router}
	other.announce(t, announcer(t, slog.New(slog.DiscardHandler), "2001:db8:65::/96"))
	awaitValue(t, a, "pref64_inconsistent_total", 1)
	log.awaitText(t, "another router announces other NAT64 prefixes") // which comes behind the counter
}
