// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestEveryChangeBumps(t *testing.T) {
	f := follow(t, nil)
	const macA, macB = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
	changes := []struct {
		name string
		do   func() error
	}{
		{"IPv4 route added", func() error { return netlink.RouteAdd(routeTo("198.51.100.0/24", "192.0.2.2")) }},
		{"IPv4 route replaced", func() error { return netlink.RouteReplace(routeTo("198.51.100.0/24", "192.0.2.3")) }},
		{"IPv4 route removed", func() error { return netlink.RouteDel(routeTo("198.51.100.0/24", "192.0.2.3")) }},
		{"IPv6 route added", func() error { return netlink.RouteAdd(routeTo("2001:db8:2::/48", "2001:db8:1::2")) }},
		{"IPv6 route removed", func() error { return netlink.RouteDel(routeTo("2001:db8:2::/48", "2001:db8:1::2")) }},
		{"IPv4 neighbour appeared", func() error {
			return netlink.NeighSet(neighbour("up", "192.0.2.2", macA, netlink.NUD_PERMANENT))
		}},
		{"IPv4 neighbour moved", func() error {
			return netlink.NeighSet(neighbour("up", "192.0.2.2", macB, netlink.NUD_PERMANENT))
		}},
		{"IPv4 neighbour went", func() error {
			return netlink.NeighDel(neighbour("up", "192.0.2.2", macB, netlink.NUD_PERMANENT))
		}},
		{"IPv6 neighbour appeared", func() error {
			return netlink.NeighSet(neighbour("up", "2001:db8:1::2", macA, netlink.NUD_REACHABLE))
		}},
		{"IPv6 neighbour moved", func() error {
			return netlink.NeighSet(neighbour("up", "2001:db8:1::2", macB, netlink.NUD_STALE))
		}},
		{"IPv4 rule added", func() error { return netlink.RuleAdd(policyRule(netlink.FAMILY_V4)) }},
		{"IPv4 rule removed", func() error { return netlink.RuleDel(policyRule(netlink.FAMILY_V4)) }},
		{"IPv6 rule added", func() error { return netlink.RuleAdd(policyRule(netlink.FAMILY_V6)) }},
		{"a router is there", func() error {
			f.far.Advertise(t, "down", testutil.OptionMTU(1480))
			return nil
		}},
		{"a router advertises another MTU", func() error {
			f.far.Advertise(t, "down", testutil.OptionMTU(1400))
			return nil
		}},
		{"IPv6 forwarding switched on", func() error { return sysctl("ipv6/conf/all/forwarding", "1") }},
		{"IPv4 forwarding switched on", func() error { return sysctl("ipv4/conf/up/forwarding", "1") }},
		{"address added", func() error { return addresses("up", "198.51.100.1/32") }},
		{"next hop added", func() error { return nextHopObject("192.0.2.2") }},
		{"next hop changed", func() error { return nextHopObject("192.0.2.3") }},
		{"MTU changed", func() error {
			return netlink.LinkSetMTU(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "up", Index: index("up")}}, 1400)
		}},
		{"link went down", func() error {
			return netlink.LinkSetDown(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index("up")}})
		}},
	}
	for _, c := range changes {
		f.bumps(c.name, c.do)
	}
}

// nextHopObject sets next hop object 7 on "up"; the library knows none.
func nextHopObject(via string) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	msg := []byte{unix.AF_INET, 0, 0, 0, 0, 0, 0, 0} // struct nhmsg
	for _, attr := range []*nl.RtAttr{
		nl.NewRtAttr(unix.NHA_ID, nl.Uint32Attr(7)),
		nl.NewRtAttr(unix.NHA_OIF, nl.Uint32Attr(uint32(index("up")))),
		nl.NewRtAttr(unix.NHA_GATEWAY, net.ParseIP(via).To4()),
	} {
		msg = append(msg, attr.Serialize()...)
	}
	req.AddRawData(msg)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func policyRule(family int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Table, r.Priority, r.Mark = family, 100, 1000, 1
	return r
}

func TestNewsThatChangeNothingDoNotBump(t *testing.T) {
	f := follow(t, nil)
	const mac = "02:00:00:00:00:0a"
	f.bumps("neighbour appeared", func() error {
		return netlink.NeighSet(neighbour("up", "192.0.2.2", mac, netlink.NUD_REACHABLE))
	})
	before := f.follower.Stats()
	f.ns.Do(t, func() error {
		for _, state := range []int{netlink.NUD_STALE, netlink.NUD_REACHABLE, netlink.NUD_STALE, netlink.NUD_PERMANENT} {
			if err := netlink.NeighSet(neighbour("up", "192.0.2.2", mac, state)); err != nil {
				return err
			}
		}
		return nil
	})
	// A change that does bump shows that all before it was heard.
	f.bumps("route added", func() error { return netlink.RouteAdd(routeTo("2001:db8:2::/48", "2001:db8:1::2")) })
	if got := f.follower.Stats().Changes - before.Changes; got != 1 {
		t.Errorf("%d changes were counted instead of the one of the route", got)
	}
}

func TestClassesFollowRoutes(t *testing.T) {
	f := follow(t, nil)
	f.ns.Do(t, func() error { return netlink.RouteAdd(routeTo("0.0.0.0/0", "192.0.2.2")) })
	f.await("a class", func() bool { return f.class("203.0.113.1") != 0 })
	if got := f.class("192.0.2.9"); got != 0 {
		t.Errorf("the /16 of the link's own prefix has class %d", got)
	}
	f.ns.Do(t, func() error { return netlink.RouteAdd(routeTo("198.18.0.0/15", "192.0.2.3")) })
	f.await("a second class", func() bool {
		c := f.class("198.19.0.1")
		return c != 0 && c != f.class("203.0.113.1") && c == f.class("198.18.0.1")
	})
	f.ns.Do(t, func() error { return netlink.RouteAdd(routeTo("203.0.113.0/24", "192.0.2.3")) })
	f.await("the class to go", func() bool { return f.class("203.0.113.1") == 0 })
	f.quiet()
	if a, b := f.class("203.0.113.1"), f.class("203.1.0.1"); a != 0 || b == 0 {
		t.Errorf("with a more specific route inside, the /16 has class %d, that beside it %d", a, b)
	}
	for locked, prefix := range map[bool]string{false: "198.48.0.0/15", true: "198.50.0.0/15"} {
		f.ns.Do(t, func() error {
			r := routeTo(prefix, "192.0.2.2")
			r.MTU, r.MTULock = 1400, locked
			return netlink.RouteAdd(r)
		})
	}
	f.quiet()
	if a, b := f.class("198.48.0.1"), f.class("198.50.0.1"); a == 0 || b != 0 {
		t.Errorf("with an MTU the /16 has class %d, with one that is locked %d", a, b)
	}
	f.ns.Do(t, func() error { return netlink.RuleAdd(policyRule(netlink.FAMILY_V4)) })
	f.await("all classes to go", func() bool { return f.class("198.18.0.1") == 0 })
	f.quiet()
	if got := f.follower.Stats().Classified; got != 0 {
		t.Errorf("with a policy rule %d /16s have a class", got)
	}
	f.ns.Do(t, func() error { return netlink.RuleDel(policyRule(netlink.FAMILY_V4)) })
	f.await("classes to come back", func() bool { return f.class("198.18.0.1") != 0 })
	// The kernel takes these routes away without a word about them.
	f.ns.Do(t, func() error {
		return netlink.LinkSetDown(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index("up")}})
	})
	f.await("all classes to go", func() bool { return f.class("198.18.0.1") == 0 })
	f.quiet()
	if got := f.follower.Stats().Classified; got != 0 {
		t.Errorf("with the link down %d /16s have a class", got)
	}
}

func TestFollowManyRoutes(t *testing.T) {
	f := follow(t, nil)
	f.ns.Do(t, func() error { return netlink.RouteAdd(routeTo("0.0.0.0/0", "192.0.2.2")) })
	f.ns.Do(t, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		for i := range 20_000 {
			r := routeTo(fmt.Sprintf("198.%d.%d.0/24", 16+i/256, i%256), "192.0.2.3")
			if err := h.RouteAdd(r); err != nil {
				return err
			}
		}
		return nil
	})
	f.quiet()
	s := f.follower.Stats()
	t.Logf("%+v", s)
	if s.Changes < 20_000 && s.Overruns == 0 {
		t.Errorf("%d changes were noticed of 20,000, without an overrun", s.Changes)
	}
	if got := f.class("198.20.1.1"); got != 0 {
		t.Errorf("a /16 full of routes has class %d", got)
	}
	if got := f.class("203.0.113.1"); got == 0 {
		t.Error("a /16 without routes of its own has no class")
	}
}

// TestOverrunIsNoticed lets the kernel overflow a tiny buffer before the follower
// gets to run.
func TestOverrunIsNoticed(t *testing.T) {
	f := newStage(t)
	_ = f.follower.raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
			t.Error(err)
		}
	})
	f.ns.Do(t, func() error {
		for i := range 256 {
			if err := netlink.RouteAdd(routeTo(fmt.Sprintf("198.18.%d.0/24", i), "192.0.2.3")); err != nil {
				return err
			}
		}
		return netlink.RouteAdd(routeTo("0.0.0.0/0", "192.0.2.2"))
	})
	f.run()
	f.await("classes after the overrun", func() bool { return f.class("203.0.113.1") != 0 })
	if f.follower.Stats().Overruns == 0 {
		t.Error("no overrun was counted")
	}
	if got := f.class("198.18.0.1"); got != 0 {
		t.Errorf("a /16 with routes inside has class %d", got)
	}
}

// TestSilentMoveIsNoticed changes a neighbour's MAC behind the kernel's back, in
// both families. No one sends anything to it but the probes.
func TestSilentMoveIsNoticed(t *testing.T) {
	for _, addr := range []string{"192.0.2.2", "2001:db8:1::2"} {
		t.Run(addr, func(t *testing.T) {
			f := follow(t, func(f *Follower) { f.prober.every = 100 * time.Millisecond })
			a := netip.MustParseAddr(addr)
			hop := fastpath.NextHop{Family: 4, Addr: a}
			if a.Is6() {
				hop.Family = 6
			}
			f.ns.Do(t, func() error { hop.Ifindex = index("up"); return nil })
			probes := func(hops ...fastpath.NextHop) {
				f.table.mu.Lock()
				defer f.table.mu.Unlock()
				f.table.hops = hops
			}
			answered := func() {
				before := f.follower.Stats().Probes
				f.await("probes", func() bool { return f.follower.Stats().Probes > before+2 })
			}
			resolve(f, a)
			f.quiet()
			probes(hop)
			answered()
			f.bumpless("probes that are answered")
			probes()
			f.bumps("faster probes", func() error { return fasterProbes("up") })
			probes(hop)
			f.far.Do(t, func() error { return move("02:00:00:00:00:77", "0") })
			select {
			case <-f.table.bumps:
			case <-time.After(longEnough):
				t.Fatalf("the move was not noticed; %+v", f.follower.Stats())
			}
		})
	}
}

// TestAnnouncedMoveIsNoticed has a neighbour tell its new MAC to all.
func TestAnnouncedMoveIsNoticed(t *testing.T) {
	for _, addr := range []string{"192.0.2.2", "2001:db8:1::2"} {
		t.Run(addr, func(t *testing.T) {
			f := follow(t, nil)
			resolve(f, netip.MustParseAddr(addr))
			f.far.Do(t, func() error { return move("02:00:00:00:00:77", "1") })
			start := time.Now()
			select {
			case <-f.table.bumps:
				t.Logf("bump after %v", time.Since(start))
			case <-time.After(longEnough):
				t.Fatalf("the move was not noticed; %+v", f.follower.Stats())
			}
		})
	}
}

// fasterProbes has the kernel ask every 300 ms instead of every second. After three
// questions a neighbour that had no time to answer is gone.
func fasterProbes(link string) error {
	if err := sysctl("ipv4/neigh/"+link+"/retrans_time_ms", "300"); err != nil {
		return err
	}
	return sysctl("ipv6/neigh/"+link+"/retrans_time_ms", "300")
}
