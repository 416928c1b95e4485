// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// net3 is a mobile host with two links to a router, behind which its peer is.
type net3 struct{ mobile, router, peer *testutil.Netns }

// plan is the addresses of a net3.
type plan struct{ mobileA, routerA, mobileB, routerB, peer, router string }

const (
	mobileA, mobileB, routerB = "2001:db8:a::2", "2001:db8:b::2", "2001:db8:b::1"
	peerAt                    = "2001:db8:c::2"
)

var (
	plan6 = plan{mobileA, "2001:db8:a::1", mobileB, routerB, peerAt, "2001:db8:c::1"}
	plan4 = plan{"192.0.2.2", "192.0.2.1", "198.51.100.2", "198.51.100.1", "203.0.113.2", "203.0.113.1"}
)

func newNet3(t *testing.T, p plan) *net3 {
	t.Helper()
	n := &net3{testutil.NewNetns(t), testutil.NewNetns(t), testutil.NewNetns(t)}
	for _, l := range []struct {
		name, near, far string
		to              *testutil.Netns
	}{{"a", p.routerA, p.mobileA, n.mobile}, {"b", p.routerB, p.mobileB, n.mobile}, {"p", p.router, p.peer, n.peer}} {
		n.router.Do(t, func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: l.name}, PeerName: l.name, PeerNamespace: netlink.NsFd(l.to.Handle())})
		})
		n.router.Do(t, func() error { return address(l.name, l.near) })
		l.to.Do(t, func() error { return address(l.name, l.far) })
	}
	n.router.Do(t, func() error {
		return errors.Join(os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	})
	n.mobile.Do(t, func() error { return route("a", p.routerA, 100) })
	n.mobile.Do(t, func() error { return route("b", p.routerB, 200) })
	n.peer.Do(t, func() error { return route("p", p.router, 100) })
	n.router.AwaitLinks(t, "a", "b", "p")
	n.mobile.AwaitLinks(t, "a", "b")
	n.peer.AwaitLinks(t, "p")
	return n
}

// onLink is an address with the length of its link's prefix.
func onLink(at string) *net.IPNet {
	if ip := net.ParseIP(at).To4(); ip != nil {
		return &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}
	}
	return &net.IPNet{IP: net.ParseIP(at), Mask: net.CIDRMask(64, 128)}
}

func address(link, at string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: onLink(at), Flags: 2} // IFA_F_NODAD
	if err := netlink.AddrAdd(l, a); err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func route(link, via string, metric int) error {
	return withRoute(netlink.RouteReplace, link, via, metric)
}

func unroute(link, via string, metric int) error {
	return withRoute(netlink.RouteDel, link, via, metric)
}

// withRoute does something with a default route.
func withRoute(do func(*netlink.Route) error, link, via string, metric int) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	size := 8 * len(onLink(via).IP)
	return do(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(via), Priority: metric, Dst: &net.IPNet{IP: make(net.IP, size/8), Mask: net.CIDRMask(0, size)}})
}

// remove takes the address of link a away from the mobile host.
func (n *net3) remove(t *testing.T, at string) {
	n.mobile.Do(t, func() error { return withdraw("a", at) })
}

func withdraw(link, at string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.AddrDel(l, &netlink.Addr{IPNet: onLink(at)})
}

// start runs an agent in a namespace until the test ends.
func start(t *testing.T, in *testutil.Netns, name string, tally *media.Tally) *agent.Agent {
	t.Helper()
	var a *agent.Agent
	in.Do(t, func() (err error) {
		a, err = agent.New(agent.Settings{
			UA:         ua.Settings{AOR: message.URI{Scheme: "sip", User: name, Host: "example.com"}},
			AutoAnswer: true, Latch: true,
			Sound: func() (media.Source, media.Sink) { return media.Numbered{}, tally },
		})
		return err
	})
	run(t, a)
	return a
}

func run(t *testing.T, a *agent.Agent) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// await returns the next event of a kind.
func await(t *testing.T, a *agent.Agent, k ua.Kind) agent.Event {
	t.Helper()
	timeout := time.After(testutil.Patience)
	for {
		select {
		case v := <-a.Events():
			if v.Media == nil && v.Kind == k {
				return v
			}
			if v.Media == nil && v.Kind == ua.Ended {
				t.Fatalf("the call has ended by %d %s", v.Status, v.Reason)
			}
		case <-timeout:
			t.Fatalf("no event %v", k)
		}
	}
}

// awaitPaths waits until an agent has so many addresses and uses one: the kernel may take a
// second to tell that a link is up.
func awaitPaths(t *testing.T, a *agent.Agent, using string, paths int) {
	t.Helper()
	for range 6000 {
		s, err := a.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Path.Addr() == netip.MustParseAddr(using) && len(s.Standby) == paths-1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s, err := a.State(t.Context())
	t.Fatalf("%s of %d is not used, but %v, and %v are ready, %v", using, paths, s.Path, s.Standby, err)
}

// heard waits until so many packets more have come.
func heard(t *testing.T, a *agent.Agent, more uint64) agent.CallState {
	t.Helper()
	var first agent.CallState
	for range 6000 {
		s, err := a.State(t.Context())
		if err != nil || len(s.Calls) != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		if first.ID == 0 {
			first = s.Calls[0]
		}
		if s.Calls[0].Media.Received >= first.Media.Received+more {
			return s.Calls[0]
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no media come")
	return first
}

func TestCallMovesBetweenLinks(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		leave func(*testing.T, *net3, *agent.Agent)
		hard  bool
	}{
		{"softly: the other route becomes the better one", func(t *testing.T, n *net3, _ *agent.Agent) {
			n.mobile.Do(t, func() error { return route("b", routerB, 50) })
		}, false},
		{"softly: the route goes, and nobody heeds it for some packets", func(t *testing.T, n *net3, mobile *agent.Agent) {
			if err := mobile.Stall(t.Context(), func() {
				n.mobile.Do(t, func() error { return unroute("a", plan6.routerA, 100) })
				time.Sleep(3 * media.Frame)
			}); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"hard: the address is removed", func(t *testing.T, n *net3, _ *agent.Agent) { n.remove(t, mobileA) }, true},
		{"hard: the link loses its carrier", func(t *testing.T, n *net3, _ *agent.Agent) {
			n.router.Do(t, func() error {
				l, err := netlink.LinkByName("a")
				if err != nil {
					return err
				}
				return netlink.LinkSetDown(l)
			})
		}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNet3(t, plan6)
			// The kernel has one port to give, an odd one: RTP has the even one beside it.
			n.peer.Do(t, func() error {
				return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40001 40001"), 0)
			})
			var down, up media.Tally
			mobile, peer := start(t, n.mobile, "alice", &down), start(t, n.peer, "bob", &up)
			awaitPaths(t, mobile, mobileA, 2)
			awaitPaths(t, peer, peerAt, 1)
			id, err := mobile.Call(t.Context(), "sip:bob@["+peerAt+"]")
			if err != nil {
				t.Fatal(err)
			}
			await(t, mobile, ua.Established)
			await(t, peer, ua.Established)
			heard(t, mobile, 10)
			began := time.Now()
			row.leave(t, n, mobile)
			moving := await(t, mobile, ua.Moving)
			moved := await(t, mobile, ua.Moved)
			t.Logf("change to re-INVITE %v, re-INVITE to 200 %v", moving.Time.Sub(began), moved.Took)
			await(t, peer, ua.PeerMoved)
			h := heard(t, mobile, 20).Handoff
			p := heard(t, peer, 20)
			t.Logf("down: gap %v, %d lost; up: %d lost", h.Gap, h.Lost, p.Media.Lost)
			if !row.hard && h.Lost+p.Media.Lost > 0 {
				t.Errorf("lost %d down, %d up, want none", h.Lost, p.Media.Lost)
			}
			state, err := mobile.State(t.Context())
			if err != nil || state.Path.Addr() != netip.MustParseAddr(mobileB) {
				t.Errorf("by %v: %v", state.Path, err)
			}
			if err := peer.HangUp(t.Context(), p.ID); err != nil {
				t.Fatal(err)
			}
			for v := range mobile.Events() {
				if v.Media == nil && v.Kind == ua.Ended && v.Call == id {
					break
				}
			}
		})
	}
}

// TestDefaultRouteChooses the address of a host that has neither a registrar nor a call, by either
// version of IP.
func TestDefaultRouteChooses(t *testing.T) {
	t.Parallel()
	for _, row := range families {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n := newNet3(t, row.plan)
			n.mobile.Do(t, func() error { return route("b", row.routerB, 50) })
			alice := start(t, n.mobile, "alice", new(media.Tally))
			awaitPaths(t, alice, row.mobileB, 2)
			n.mobile.Do(t, func() error { return route("a", row.routerA, 10) })
			awaitPaths(t, alice, row.mobileA, 2)
		})
	}
}

// TestMoveByFamily moves a call to an interface that has both families, by the one of the call, and not to
// one that lacks it.
func TestMoveByFamily(t *testing.T) {
	t.Parallel()
	n := newNet3(t, plan6)
	n.mobile.Do(t, func() error { return errors.Join(address("a", plan4.mobileA), address("b", plan4.mobileB)) })
	var down, up media.Tally
	mobile, peer := start(t, n.mobile, "alice", &down), start(t, n.peer, "bob", &up)
	awaitPaths(t, mobile, mobileA, 4)
	awaitPaths(t, peer, peerAt, 1)
	if _, err := mobile.Call(t.Context(), "sip:bob@["+peerAt+"]"); err != nil {
		t.Fatal(err)
	}
	await(t, mobile, ua.Established)
	for i, link := range []string{"b", "a", "b", "a", "b", "a"} { // of two addresses each time
		if err := mobile.Move(t.Context(), link); err != nil {
			t.Fatal(err)
		}
		await(t, mobile, ua.Moved)
		state, err := mobile.State(t.Context())
		if want := []string{mobileB, mobileA}[i%2]; err != nil || state.Path.Addr() != netip.MustParseAddr(want) {
			t.Errorf("on %s: %v, %v", link, state.Path, err)
		}
	}
	n.mobile.Do(t, func() error { return withdraw("b", mobileB) })
	awaitPaths(t, mobile, mobileA, 3)
	for link, want := range map[string]string{"b": "no IPv6 address", "c": "no address"} {
		if err := mobile.Move(t.Context(), link); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %s: %v", link, err)
		}
	}
	heard(t, mobile, 10)
}
