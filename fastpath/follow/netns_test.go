// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// fakeTable stands in for the maps. Its classes are mapped memory as the real
// ones are, which the race detector leaves alone.
type fakeTable struct {
	classes []byte
	bumps   chan struct{} // one entry, if there was a bump since the last look

	mu   sync.Mutex
	hops []fastpath.NextHop
}

func newFakeTable(t *testing.T) *fakeTable {
	t.Helper()
	classes, err := unix.Mmap(-1, 0, slots4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(classes) })
	return &fakeTable{classes: classes, bumps: make(chan struct{}, 1)}
}

func (f *fakeTable) Bump() {
	select {
	case f.bumps <- struct{}{}:
	default:
	}
}

func (f *fakeTable) Routes4() []byte { return f.classes }

func (f *fakeTable) Neighbours() ([]fastpath.NextHop, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hops, nil
}

// stage is a follower at work in a namespace of its own, whose veth "up" ends
// in another namespace.
type stage struct {
	t        *testing.T
	ns, far  *testutil.Netns
	table    *fakeTable
	follower *Follower
}

const longEnough = testutil.Patience

// follow starts a follower of a namespace with the addresses 192.0.2.1/24 and
// 2001:db8:1::1/64 on "up"; the far end has .2 and ::2.
func follow(t *testing.T, before func(*Follower)) *stage {
	t.Helper()
	f := newStage(t)
	if before != nil {
		before(f.follower)
	}
	f.run()
	f.await("the first count of classes", func() bool { return f.follower.Stats().Recounts > 0 })
	f.quiet()
	return f
}

// newStage makes the namespaces and a follower that does not run yet.
func newStage(t *testing.T) *stage {
	t.Helper()
	f := &stage{t: t, ns: testutil.NewNetns(t), far: testutil.NewNetns(t), table: newFakeTable(t)}
	// An address that becomes usable a second later would be a change that no test made.
	for _, ns := range []*testutil.Netns{f.ns, f.far} {
		ns.AddressesAtOnce(t)
	}
	f.ns.Do(t, func() error {
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "up"}, PeerName: "down", PeerNamespace: netlink.NsFd(f.far.Handle()),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return addresses("up", "192.0.2.1/24", "2001:db8:1::1/64")
	})
	f.far.Do(t, func() error { return addresses("down", "192.0.2.2/24", "2001:db8:1::2/64") })
	f.ns.AwaitLinks(t, "up")
	f.far.AwaitLinks(t, "down")
	f.ns.Do(t, func() (err error) {
		f.follower, err = New(f.table)
		return err
	})
	return f
}

// run lets the follower run until the test ends.
func (f *stage) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.follower.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	})
}

func addresses(link string, prefixes ...string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	for _, p := range prefixes {
		a, err := netlink.ParseAddr(p)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
	}
	return nil
}

// await polls for a condition that the follower brings about.
func (f *stage) await(what string, done func() bool) {
	f.t.Helper()
	for end := time.Now().Add(longEnough); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("waited in vain for %s; %+v", what, f.follower.Stats())
		}
	}
}

// quiet waits until all that the follower has heard of is done, classes and second
// bumps, and nothing more has come for a while.
func (f *stage) quiet() {
	f.t.Helper()
	for still := false; !still; {
		f.await("nothing to be left", f.follower.settled.Load)
		before := f.follower.Stats()
		time.Sleep(2 * quietDelay)
		still = f.follower.settled.Load() && f.follower.Stats() == before
	}
	f.forget()
}

// forget takes a bump that was not looked for.
func (f *stage) forget() {
	select {
	case <-f.table.bumps:
	default:
	}
}

// bumps does something and waits for the bump that follows.
func (f *stage) bumps(what string, do func() error) {
	f.t.Helper()
	f.ns.Do(f.t, do)
	start := time.Now()
	select {
	case <-f.table.bumps:
		f.t.Logf("%s: bump after %v", what, time.Since(start))
	case <-time.After(longEnough):
		f.t.Fatalf("no bump after: %s", what)
	}
	f.quiet()
}

func (f *stage) class(addr string) byte {
	b := netip.MustParseAddr(addr).As4()
	return f.table.classes[int(b[0])<<8|int(b[1])]
}

func routeTo(dst, via string) *netlink.Route {
	r := &netlink.Route{Gw: net.ParseIP(via)}
	_, r.Dst, _ = net.ParseCIDR(dst)
	return r
}

func index(name string) int {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0
	}
	return l.Attrs().Index
}

func neighbour(link, addr, mac string, state int) *netlink.Neigh {
	hw, _ := net.ParseMAC(mac)
	return &netlink.Neigh{LinkIndex: index(link), IP: net.ParseIP(addr), HardwareAddr: hw, State: state}
}

func sysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0o644)
}

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
// both families. Nobody sends anything to it but the probes.
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

// bumpless checks that nothing bumped since it was last looked.
func (f *stage) bumpless(during string) {
	f.t.Helper()
	select {
	case <-f.table.bumps:
		f.t.Errorf("%s made a new generation; %+v", during, f.follower.Stats())
	default:
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

// resolve makes the kernel find a neighbour, and waits until it has.
func resolve(f *stage, a netip.Addr) {
	f.t.Helper()
	f.ns.Do(f.t, func() error {
		c, err := net.Dial("udp", netip.AddrPortFrom(a, 9).String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		return err
	})
	f.await("the neighbour", func() bool {
		found := false
		f.ns.Do(f.t, func() error {
			list, err := testutil.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(index("up"), 0) })
			for _, n := range list {
				found = found || n.IP.String() == a.String() && n.State&(netlink.NUD_REACHABLE|netlink.NUD_STALE|netlink.NUD_DELAY) != 0
			}
			return err
		})
		return found
	})
	f.quiet()
}

// move changes the far end's MAC. The kernel announces it if notify is 1.
func move(mac, notify string) error {
	if err := sysctl("ipv4/conf/down/arp_notify", notify); err != nil {
		return err
	}
	if err := sysctl("ipv6/conf/down/ndisc_notify", notify); err != nil {
		return err
	}
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	return netlink.LinkSetHardwareAddr(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index("down")}}, hw)
}
