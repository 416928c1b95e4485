// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"net"
	"net/netip"
	"os"
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

const (
	mobileA, routerA = "2001:db8:a::2", "2001:db8:a::1"
	mobileB, routerB = "2001:db8:b::2", "2001:db8:b::1"
	peerAt, routerP  = "2001:db8:c::2", "2001:db8:c::1"
)

func newNet3(t *testing.T) *net3 {
	t.Helper()
	n := &net3{testutil.NewNetns(t), testutil.NewNetns(t), testutil.NewNetns(t)}
	for _, l := range []struct {
		name, near, far string
		to              *testutil.Netns
	}{{"a", routerA, mobileA, n.mobile}, {"b", routerB, mobileB, n.mobile}, {"p", routerP, peerAt, n.peer}} {
		n.router.Do(t, func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: l.name}, PeerName: l.name, PeerNamespace: netlink.NsFd(l.to.Handle())})
		})
		n.router.Do(t, func() error { return address(l.name, l.near) })
		l.to.Do(t, func() error { return address(l.name, l.far) })
	}
	n.router.Do(t, func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)
	})
	n.mobile.Do(t, func() error { return route("a", routerA, 100) })
	n.mobile.Do(t, func() error { return route("b", routerB, 200) })
	n.peer.Do(t, func() error { return route("p", routerP, 100) })
	n.router.AwaitLinks(t, "a", "b", "p")
	n.mobile.AwaitLinks(t, "a", "b")
	n.peer.AwaitLinks(t, "p")
	return n
}

func address(link, at string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(at), Mask: net.CIDRMask(64, 128)}, Flags: 2} // IFA_F_NODAD
	if err := netlink.AddrAdd(l, a); err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func route(link, via string, metric int) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(via), Priority: metric, Dst: &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}})
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
	timeout := time.After(20 * time.Second)
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
	for range 1000 {
		s, err := a.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Path.Addr() == netip.MustParseAddr(using) && len(s.Standby) == paths-1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s is not used", using)
}

// heard waits until so many packets more have come.
func heard(t *testing.T, a *agent.Agent, more uint64) agent.CallState {
	t.Helper()
	var first agent.CallState
	for range 1000 {
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
	for _, row := range []struct {
		name  string
		leave func(*testing.T, *net3)
		hard  bool
	}{
		{"softly: the other route becomes the better one", func(t *testing.T, n *net3) {
			n.mobile.Do(t, func() error { return route("b", routerB, 50) })
		}, false},
		{"hard: the address is removed", func(t *testing.T, n *net3) {
			n.mobile.Do(t, func() error {
				l, err := netlink.LinkByName("a")
				if err != nil {
					return err
				}
				return netlink.AddrDel(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(mobileA), Mask: net.CIDRMask(64, 128)}})
			})
		}, true},
		{"hard: the link loses its carrier", func(t *testing.T, n *net3) {
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
			n := newNet3(t)
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
			row.leave(t, n)
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
