// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
)

// limit is how long a packet may still go where it should have gone before.
const limit = 100 * time.Millisecond

// after makes a change and checks where packets go that are sent later than the limit
// after it, and than so many bumps of the follower. On a calm machine these come much
// sooner; one that stands still gets its time on top.
func (s *site) after(what string, limit time.Duration, bumps int, moved map[netip.Addr]int, change func()) {
	s.t.Helper()
	s.meet()
	s.await("nothing to be left", s.follower.settled.Load)
	before, recounts := len(s.bumps.from(0)), s.follower.Stats().Recounts
	s.mu.Lock()
	s.interval = 0
	s.mu.Unlock()
	change()
	changed := fastpath.Monotonic()
	due := changed + limit
	for spoken := changed; bumps > 0; time.Sleep(time.Millisecond) {
		if news := s.bumps.from(before); len(news) >= bumps {
			due = max(due, news[bumps-1].at)
			if news[0].recounts != recounts {
				s.t.Errorf("%s: next hops were valid until classes were counted again", what)
			}
			break
		}
		if now := fastpath.Monotonic(); now > changed+longEnough {
			s.t.Fatalf("%s: the follower does not act: %+v", what, s.follower.Stats())
		} else if now > spoken+20*time.Millisecond {
			spoken = now
			s.speakIf(limit)
		}
	}
	s.settleDown(limit, due)
	want := s.expected(moved)

	s.mu.Lock()
	defer s.mu.Unlock()
	worst, wrong := time.Duration(0), 0
	for dst, allowed := range want {
		for _, seen := range s.seen[dst] {
			if slices.Contains(allowed, where{seen.router, seen.mac}) {
				continue
			}
			worst = max(worst, seen.sent-changed)
			if seen.sent > due+s.interval {
				wrong++
			}
		}
	}
	s.t.Logf("%s: the last packet to an old next hop was sent %v after it; longest pause of the sender %v", what, worst, s.interval)
	if wrong > 0 {
		s.t.Errorf("%s: %d packets went to the wrong next hop later than %v", what, wrong, due-changed+s.interval)
	}
	for dst := range s.seen {
		s.seen[dst] = nil
	}
}

// speakIf has the engine speak where a limit is a long one: packets are left to it when
// a neighbour does not answer.
func (s *site) speakIf(limit time.Duration) {
	if limit > time.Second {
		s.speak()
	}
}

// settleDown lets traffic flow for a while from an instant on, and waits for packets to
// every destination that are sent behind it.
func (s *site) settleDown(limit, due time.Duration) {
	s.t.Helper()
	for fastpath.Monotonic() < due+300*time.Millisecond {
		time.Sleep(20 * time.Millisecond)
		s.speakIf(limit)
	}
	s.await("packets to all destinations", func() bool {
		s.speakIf(limit)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, dst := range append(destinations4(), destinations6()...) {
			if !slices.ContainsFunc(s.seen[dst], func(seen sighting) bool { return seen.sent > due+s.interval }) {
				return false
			}
		}
		return true
	})
}

// route changes a route of the relay.
func (s *site) route(f func(*netlink.Route) error, dst string, router int) func() {
	return func() {
		s.relay.Do(s.t, func() error { return f(routeTo(dst, s.routers[router].address.String())) })
	}
}

// moveTo gives a router another MAC, announced or not.
func (s *site) moveTo(router int, mac, notify string) func() {
	return func() { s.routers[router].ns.Do(s.t, func() error { return move(mac, notify) }) }
}

// eachItsOwn checks that equal-cost routes are all used, and one destination is
// not sent now here, now there.
func (s *site) eachItsOwn(what string, shared []netip.Addr) {
	s.t.Helper()
	s.settleDown(limit, fastpath.Monotonic())
	s.mu.Lock()
	defer s.mu.Unlock()
	used := make(map[int]int)
	for _, dst := range shared {
		routers := make(map[int]bool)
		for _, seen := range s.seen[dst] {
			routers[seen.router] = true
			used[seen.router]++
		}
		if len(routers) != 1 {
			s.t.Errorf("%s: packets to %s came to %d routers", what, dst, len(routers))
		}
	}
	if len(used) != 2 {
		s.t.Errorf("%s: %d of 2 equal-cost routes are used", what, len(used))
	}
	for dst := range s.seen {
		s.seen[dst] = nil
	}
}

// TestPacketsFollowTheNetwork changes routes and neighbours under traffic.
func TestPacketsFollowTheNetwork(t *testing.T) {
	for _, mode := range []fastpath.Mode{fastpath.ModeTC, fastpath.ModeXDP} {
		t.Run(string(mode), func(t *testing.T) {
			s := newSite(t, mode)
			s.awaitTraffic()
			s.awaitClasses()
			s.after("nothing", limit, 0, nil, func() {})
			s.eachItsOwn("IPv4", shared4)
			s.eachItsOwn("IPv6", shared6)

			// Each change of routes has a second bump, as an echo.
			s.after("more specific IPv4 route", limit, 2, map[netip.Addr]int{specific4: 1}, s.route(netlink.RouteAdd, "198.18.0.0/24", 1))
			s.after("its removal", limit, 2, nil, s.route(netlink.RouteDel, "198.18.0.0/24", 1))
			s.after("more specific IPv6 route", limit, 2, map[netip.Addr]int{specific6: 3}, s.route(netlink.RouteAdd, "2001:db8:c::/64", 3))
			s.after("its removal", limit, 2, nil, s.route(netlink.RouteDel, "2001:db8:c::/64", 3))
			s.awaitClasses()
			other := map[netip.Addr]int{byDefault4: 1, specific4: 1}
			s.after("another default route", limit, 2, other, s.route(netlink.RouteReplace, "0.0.0.0/0", 1))

			s.after("IPv4 neighbour announces its move", limit, 1, other, s.moveTo(1, "02:00:00:00:01:77", "1"))
			s.after("IPv6 neighbour announces its move", limit, 1, other, s.moveTo(3, "02:00:00:00:03:77", "1"))
			const seconds = 2 * time.Second
			s.after("IPv4 neighbour moves silently", seconds, 1, other, s.moveTo(0, "02:00:00:00:00:88", "0"))
			s.after("IPv6 neighbour moves silently", seconds, 1, other, s.moveTo(2, "02:00:00:00:02:88", "0"))
			t.Logf("%+v", s.follower.Stats())
		})
	}
}

// awaitTraffic waits until packets come through to every destination.
func (s *site) awaitTraffic() {
	s.t.Helper()
	all := append(destinations4(), destinations6()...)
	s.await("traffic to all destinations", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, dst := range all {
			if len(s.seen[dst]) == 0 {
				return false
			}
		}
		return true
	})
}

// awaitClasses waits until the default route has its class.
func (s *site) awaitClasses() {
	s.t.Helper()
	s.await("classes", func() bool { return s.fast.Routes4()[198<<8|18] != 0 })
}

func (s *site) await(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(longEnough); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			counters, err := s.fast.Counters()
			s.t.Fatalf("waited in vain for %s; %+v %v; %+v", what, counters, err, s.follower.Stats())
		}
	}
}
