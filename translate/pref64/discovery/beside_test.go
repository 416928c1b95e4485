// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

const routerLifetime = 30 * time.Minute

// TestBesideRouterDaemon runs the announcer on the gateway whose own daemon makes it the
// default router of two networks: each starts first, stops and comes back, the daemon reads
// its configuration again, and the links go down and up. No host ever loses its default
// route by what the announcer does, or its prefix by what the daemon does.
//
//	router lan0 ---- lan0 host
//	       lan1 ---- lan0 host
func TestBesideRouterDaemon(t *testing.T) {
	t.Parallel()
	for _, daemon := range []struct {
		name     string
		command  func(*peers.Peers, string, peers.RouterDaemon) (*peers.Command, error)
		farewell bool // at its end it tells hosts to use it no more
	}{
		{"radvd", (*peers.Peers).Radvd, true},
		{"dnsmasq", (*peers.Peers).Dnsmasq, false},
	} {
		t.Run(daemon.name, func(t *testing.T) {
			t.Parallel()
			b := newBeside(t, daemon.command)
			const learnt, none = "router advertisement [2001:db8:64::/96]", "none []"
			unicast := b.addresses(t)

			daemonRuns := b.startDaemon(t)
			b.awaitRouter(t, "the daemon is alone", true)
			stop := b.announce(t)
			b.awaitPrefix(t, learnt)
			b.settled(t, "the announcer has come")
			if now := b.addresses(t); !slices.Equal(now, unicast) {
				t.Errorf("the router has the addresses %v, and had %v", now, unicast)
			}
			if err := daemonRuns.Process.Signal(unix.SIGHUP); err != nil {
				t.Fatal(err)
			}
			b.settled(t, "the daemon has read its configuration again")
			b.flap(t)
			b.settled(t, "the links were down")
			b.resolve(t)
			stop()
			b.awaitPrefix(t, none)
			b.settled(t, "the announcer has gone")

			b.announce(t)
			b.awaitPrefix(t, learnt)
			b.settled(t, "the announcer is back")
			b.stopDaemon(t, daemonRuns)
			b.awaitRouter(t, "the daemon has gone", !daemon.farewell)
			b.startDaemon(t)
			b.awaitRouter(t, "the daemon is back", true)
			b.settled(t, "the daemon came behind the announcer")
			b.awaitPrefix(t, learnt)
		})
	}
}

// beside is a router with two networks, and a host in each.
type beside struct {
	router  *testutil.Netns
	hosts   []*besideHost
	command *peers.Command
}

// besideHost is what a host sees of its router.
type besideHost struct {
	network
	watched *watched

	mu     sync.Mutex
	routed bool               // there is a default route
	lost   bool               // there was one
	heard  map[netip.Addr]int // advertisements of default routers
	ended  []netip.Addr       // routers that were default ones, and say that they are none
}

func newBeside(t *testing.T, command func(*peers.Peers, string, peers.RouterDaemon) (*peers.Command, error)) *beside {
	t.Helper()
	testutil.NeedRoot(t)
	found, err := peers.Find()
	c := peers.RouterDaemon{Name: "router", Lifetime: routerLifetime, Links: map[string]netip.Prefix{}}
	b := &beside{router: testutil.NewNetns(t)}
	b.router.AddressesAtOnce(t)
	for i := range 2 {
		host := &besideHost{network: network{b.router, testutil.NewNetns(t)}, heard: map[netip.Addr]int{}}
		host.host.AddressesAtOnce(t)
		link, prefix := fmt.Sprintf("lan%d", i), netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::/64", i+1))
		host.join(t, link, prefix)
		c.Links[link] = prefix
		host.observe(t)
		host.watched = host.watch(t, "routers")
		b.hosts = append(b.hosts, host)
	}
	b.router.Do(t, func() error {
		const sysctl = "/proc/sys/net/ipv6/conf/all/"
		return errors.Join(os.WriteFile(sysctl+"forwarding", []byte("1"), 0), os.WriteFile(sysctl+"keep_addr_on_down", []byte("1"), 0))
	})
	if err == nil {
		b.command, err = command(found, t.TempDir(), c)
	}
	if errors.Is(err, peers.ErrMissing) {
		testutil.Missing(t, err)
	} else if err != nil {
		t.Fatal(err)
	}
	return b
}

// observe follows the host's default route and the advertisements that it hears.
func (h *besideHost) observe(t *testing.T) {
	t.Helper()
	routes, done := make(chan netlink.RouteUpdate), make(chan struct{})
	var s *socket
	h.host.Do(t, func() (err error) {
		if err = netlink.RouteSubscribe(routes, done); err == nil {
			s, err = listen("lan0", []netip.Addr{packet.AllNodes}, ipv6.ICMPTypeRouterAdvertisement)
		}
		return err
	})
	t.Cleanup(func() {
		close(done)
		_ = s.close()
	})
	go func() {
		for r := range routes {
			if r.Family == unix.AF_INET6 && (r.Dst == nil || r.Dst.IP.IsUnspecified()) && r.Route.Type == unix.RTN_UNICAST {
				h.note(func() { h.routed, h.lost = r.Type == unix.RTM_NEWROUTE, h.lost || r.Type == unix.RTM_DELROUTE })
			}
		}
	}()
	go func() {
		for buffer := make([]byte, maxMessage); ; {
			m, from, err := s.read(buffer)
			if err != nil {
				return
			}
			said, err := pref64.ParseAdvertisement(m)
			h.note(func() {
				switch {
				case err != nil:
				case said.RouterLifetime == routerLifetime:
					h.heard[from]++
				case h.heard[from] > 0:
					h.ended = append(h.ended, from)
				}
			})
		}
	}()
}

func (h *besideHost) note(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// await waits until ok holds at every host; it asks routers to advertise meanwhile.
func (b *beside) await(t *testing.T, what string, ok func(*besideHost) bool) {
	t.Helper()
	for _, h := range b.hosts {
		var held bool
		for end, ask := time.Now().Add(patience), time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if h.note(func() { held = ok(h) }); held {
				break
			}
			now := time.Now()
			if now.After(end) {
				t.Fatalf("%s: a host sees a default route %t, lost %t, routers %v, ended %v", what, h.routed, h.lost, h.heard, h.ended)
			}
			if !now.Before(ask) {
				h.solicit(t)
				ask = now.Add(time.Second)
			}
		}
	}
}

// awaitRouter waits for a default route, or for its end, and forgets what was before.
func (b *beside) awaitRouter(t *testing.T, what string, want bool) {
	t.Helper()
	b.await(t, what, func(h *besideHost) bool { return h.routed == want && (!want || len(h.heard) > 0) })
	for _, h := range b.hosts {
		h.note(func() { h.lost, h.ended, h.heard = false, nil, map[netip.Addr]int{} })
	}
}

// settled waits for further advertisements of the daemon, and fails if a host had no
// default route for a while, or heard a default router say that it is none.
func (b *beside) settled(t *testing.T, what string) {
	t.Helper()
	before := map[*besideHost]int{}
	count := func(h *besideHost) (n int) {
		for c := range maps.Values(h.heard) {
			n += c
		}
		return n
	}
	for _, h := range b.hosts {
		h.note(func() { before[h] = count(h) })
	}
	b.await(t, what, func(h *besideHost) bool { return count(h) >= before[h]+3 })
	for _, h := range b.hosts {
		h.note(func() {
			if !h.routed || h.lost || len(h.ended) > 0 || len(h.heard) > 1 {
				t.Errorf("%s: a host sees a default route %t, lost %t, routers %v, ended %v", what, h.routed, h.lost, h.heard, h.ended)
			}
		})
	}
}

func (b *beside) awaitPrefix(t *testing.T, want string) {
	t.Helper()
	for _, h := range b.hosts {
		h.watched.await(t, want)
	}
}

func (b *beside) startDaemon(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(b.command.Path, b.command.Args...)
	log := new(watched)
	cmd.Stdout, cmd.Stderr = log, log
	b.router.Do(t, cmd.Start)
	t.Cleanup(func() {
		b.stopDaemon(t, cmd)
		if t.Failed() {
			t.Logf("%s said:\n%s", b.command.Path, log.text.String())
		}
	})
	return cmd
}

func (b *beside) stopDaemon(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if cmd.ProcessState == nil {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
	}
}

// announce runs an announcer on each link until stop, or the end of the test.
func (b *beside) announce(t *testing.T) (stop func()) {
	t.Helper()
	var stops []func(error)
	for i, h := range b.hosts {
		a, err := NewAnnouncer(AnnounceSettings{
			Interface: fmt.Sprintf("lan%d", i), Prefixes: prefixes("2001:db8:64::/96"), Interval: pref64.MinInterval,
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, h.announce(t, a))
	}
	return func() {
		for _, stop := range stops {
			stop(nil)
		}
	}
}

// flap takes the router's links down and up again.
func (b *beside) flap(t *testing.T) {
	t.Helper()
	for i := range b.hosts {
		b.router.Do(t, func() error {
			link, err := netlink.LinkByName(fmt.Sprintf("lan%d", i))
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetDown(link), netlink.LinkSetUp(link))
		})
	}
}

// resolve has the hosts ask who has the announcer's address.
func (b *beside) resolve(t *testing.T) {
	t.Helper()
	for i, h := range b.hosts {
		var source netip.Addr
		h.router.Do(t, func() error {
			link, err := net.InterfaceByName(fmt.Sprintf("lan%d", i))
			if err == nil {
				source = sourceOf(link)
			}
			return err
		})
		h.host.Do(t, func() error {
			conn, err := net.Dial("udp6", netip.AddrPortFrom(source.WithZone("lan0"), 9).String())
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte("who"))
			return err
		})
		known := func() (ok bool) {
			h.host.Do(t, func() error {
				list, err := testutil.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, netlink.FAMILY_V6) })
				ok = slices.ContainsFunc(list, func(n netlink.Neigh) bool { return n.IP.Equal(source.AsSlice()) && len(n.HardwareAddr) > 0 })
				return err
			})
			return ok
		}
		for end := time.Now().Add(patience); !known(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no one answers for %s", source)
			}
		}
	}
}

// addresses are the IPv6 addresses of the router, as daemons find them.
func (b *beside) addresses(t *testing.T) (list []string) {
	t.Helper()
	b.router.Do(t, func() error {
		all, err := testutil.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V6) })
		for _, a := range all {
			list = append(list, a.IPNet.String())
		}
		return err
	})
	return list
}
