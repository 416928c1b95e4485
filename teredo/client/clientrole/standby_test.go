// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
	"github.com/isthmus-net/isthmus/teredo/relay/relayrole"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

func standby(c *Settings) { c.Native = NativeStandby }

// nativeRig is a rig whose host a has native IPv6 beside what a client gives it, to an IPv6 host
// behind end b, which is a relay. The host tells who asks from which address it does.
//
//	a 2001:db8:a::2 -- 2001:db8:a::1 router 2001:db8:b::1 -- 2001:db8:b::2 b 2001:db8:c::1 -- 2001:db8:c::2 host
type nativeRig struct {
	*rig
	host  *testutil.Netns
	route *netlink.Route // of a
}

var (
	nativeAddress = netip.MustParseAddr("2001:db8:a::2")
	farHost       = netip.MustParseAddr("2001:db8:c::2")
)

func newNativeRig(t *testing.T) *nativeRig {
	t.Helper()
	r := &nativeRig{rig: newRig(t), host: testutil.NewNetns(t), route: &netlink.Route{Gw: net.ParseIP("2001:db8:a::1")}}
	teredotest.Link(t, r.b, r.host, "c", []string{"2001:db8:c::1/64"}, "2001:db8:c::2/64")
	forward := func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0) }
	by := func(gateway string) func() error {
		return func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}) }
	}
	r.router.Do(t, func() error {
		behind := &netlink.Route{Dst: &net.IPNet{IP: net.ParseIP("2001:db8:c::"), Mask: net.CIDRMask(64, 128)}, Gw: net.ParseIP("2001:db8:b::2")}
		if err := errors.Join(forward(), teredotest.SetUp("a", "2001:db8:a::1/64"), teredotest.SetUp("b", "2001:db8:b::1/64")); err != nil {
			return err
		}
		return netlink.RouteAdd(behind)
	})
	r.b.Do(t, func() error {
		return errors.Join(forward(), teredotest.SetUp("b", "2001:db8:b::2/64"), by("2001:db8:b::1")())
	})
	r.host.Do(t, by("2001:db8:c::1"))
	r.a.Do(t, func() error {
		err := teredotest.SetUp("a", "2001:db8:a::2/64")
		testutil.AwaitLocal(t, nativeAddress)
		return err
	})
	r.nativeComes(t)
	r.startRelay(t)
	r.answer(t)
	return r
}

// startRelay makes end b a relay.
func (r *nativeRig) startRelay(t *testing.T) {
	t.Helper()
	cfg := *configtest.One(t, relayrole.Role.Section, relayrole.Role.Section.Smallest()).(*relayrole.Settings)
	cfg.FastPath, cfg.Bind, cfg.KeepState = fastpath.ModeOff, netip.MustParseAddrPort("192.0.2.2:3545"), false
	relay, err := relayrole.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roletest.Start(t, r.b, relay)
}

// answer has the host tell all who ask from where they do.
func (r *nativeRig) answer(t *testing.T) {
	t.Helper()
	var conn *net.UDPConn
	r.host.Do(t, func() (err error) {
		testutil.AwaitLocal(t, farHost)
		conn, err = net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(farHost, 7)))
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(append(append([]byte{}, buf[:n]...), " "+from.Addr().String()...), from)
		}
	}()
}

func (r *nativeRig) nativeComes(t *testing.T) {
	t.Helper()
	r.a.Do(t, func() error { return netlink.RouteAdd(r.route) })
}

func (r *nativeRig) nativeGoes(t *testing.T) {
	t.Helper()
	r.a.Do(t, func() error { return netlink.RouteDel(r.route) })
}

// dial opens a socket of host a to the other; source may be no address, for one that is not bound.
func (r *nativeRig) dial(t *testing.T, source netip.Addr) (conn *net.UDPConn) {
	t.Helper()
	var local *net.UDPAddr
	if source.IsValid() {
		local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	r.a.Do(t, func() (err error) {
		conn, err = net.DialUDP("udp6", local, net.UDPAddrFromAddrPort(netip.AddrPortFrom(farHost, 7)))
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// seenFrom asks the other host by a fresh socket from which address it comes, once.
func (r *nativeRig) seenFrom(t *testing.T, source netip.Addr) (netip.Addr, error) {
	t.Helper()
	conn := r.dial(t, source)
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write([]byte("who?")); err != nil {
		return netip.Addr{}, err
	}
	buf := make([]byte, 100)
	n, err := conn.Read(buf)
	if err != nil {
		return netip.Addr{}, err
	}
	_, seen, _ := strings.Cut(string(buf[:n]), " ")
	return netip.ParseAddr(seen)
}

// stream is a session that is bound to an address, with what came back.
type stream struct {
	conn      *net.UDPConn
	end       chan struct{}
	done      sync.WaitGroup
	sent, got atomic.Int64
}

func (r *nativeRig) stream(t *testing.T, source netip.Addr) *stream {
	t.Helper()
	s := &stream{conn: r.dial(t, source), end: make(chan struct{})}
	s.done.Go(func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-s.end:
				return
			case <-ticker.C:
			}
			if _, err := s.conn.Write([]byte("on")); err == nil {
				s.sent.Add(1)
			} else {
				t.Errorf("a bound socket cannot send: %v", err)
				return
			}
		}
	})
	s.done.Go(func() {
		buf := make([]byte, 100)
		for {
			if _, err := s.conn.Read(buf); err != nil {
				return
			}
			s.got.Add(1)
		}
	})
	return s
}

// finish ends the session and has all that was sent come back.
func (s *stream) finish(t *testing.T) {
	t.Helper()
	close(s.end)
	for end := time.Now().Add(testutil.Patience); s.got.Load() < s.sent.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("of %d packets of a bound socket %d came back", s.sent.Load(), s.got.Load())
			break
		}
	}
	_ = s.conn.Close()
	s.done.Wait()
}

// standbyWith is a device with an address for those alone who bind to it.
func standbyWith(a netip.Addr) []string {
	from := " from " + a.String() + " metric 4096"
	return []string{"address " + a.String() + "/32 deprecated", "route 2000::/3" + from, "route ::/0" + from}
}

// normalWith is the same device when native IPv6 has gone.
func normalWith(a netip.Addr) []string {
	from := " from " + a.String() + " metric 4096"
	return []string{"address " + a.String() + "/32", "route 2000::/3" + from, "route 2001::/32 metric 256", "route ::/0" + from, "route ::/0 metric 4096"}
}

// awaitAllOf waits until the device has these addresses and routes, those for some sources too.
func awaitAllOf(t *testing.T, ns *testutil.Netns, want ...string) {
	t.Helper()
	for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
		got := allOf(t, ns)
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the device has %q, want %q", got, want)
		}
	}
}

// allOf lists the addresses of the device and the routes through it, or all of the namespace that
// are for some sources alone where there is no device.
func allOf(t *testing.T, ns *testutil.Netns) (list []string) {
	t.Helper()
	ns.Do(t, func() error {
		host, err := port.OpenHost()
		if err != nil {
			return err
		}
		defer host.Close()
		index, _, _ := host.Link("teredo")
		addresses, err := host.Addresses()
		for _, a := range addresses {
			if a.Link.Name != "teredo" || a.Prefix.Addr().IsLinkLocalUnicast() {
				continue
			}
			list = append(list, "address "+a.Prefix.String())
			if a.Deprecated {
				list[len(list)-1] += " deprecated"
			}
		}
		return errors.Join(err, host.EachRoute(func(w port.RouteEntry) {
			switch about := fmt.Sprintf("route %s", w.Dst); {
			case w.Local || w.Dst.Addr().IsMulticast():
			case w.Source:
				list = append(list, fmt.Sprintf("%s from %s metric %d", about, w.From.Addr(), w.Metric))
			case index > 0 && w.Link == index && !w.Dst.Addr().IsLinkLocalUnicast():
				list = append(list, fmt.Sprintf("%s metric %d", about, w.Metric))
			}
		}))
	})
	slices.Sort(list)
	return list
}

// leavesNothingWhenKilled runs the program as a standby in host a and kills it.
func (r *nativeRig) leavesNothingWhenKilled(t *testing.T) {
	t.Helper()
	manager, notify := program.NewManager(t)
	p := manager.Serve(t, r.a, notify, program.File(t, fmt.Sprintf(
		"[[teredo_client]]\nserver = [\"203.0.113.1\"]\nnative = \"standby\"\n[control]\nsocket = %q\n", filepath.Join(t.TempDir(), "control.sock"))))
	for end := time.Now().Add(testutil.Patience); len(allOf(t, r.a)) != len(standbyWith(netip.IPv6Unspecified())); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the program does not stand by: %q\n%s", allOf(t, r.a), p.Log())
		}
	}
	manager.End(t, p, syscall.SIGKILL)
	awaitAllOf(t, r.a)
}

// A standby is qualified beside native IPv6 and used by nobody who does not bind to its address; it
// takes over at once when native IPv6 goes, and steps back when that returns, without loss for a
// bound session.
func TestClientStandsBy(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "native")
	r := newNativeRig(t)
	c, log := newClient(t, standby)
	changes := make(chan event.AddressChange, 10)
	c.OnAddressChange(func(e event.AddressChange) { changes <- e })
	stop := roletest.Start(t, r.a, c).Stop
	s := await(t, c, "on standby", func(s Status) bool { return s.State == "standby" })
	teredo := s.Address
	awaitAllOf(t, r.a, standbyWith(teredo)...)
	told := func(what string, want event.AddressChange) {
		t.Helper()
		got := <-changes
		if got.Time.IsZero() {
			t.Errorf("%s: no time", what)
		}
		want.Instance, want.Interface, want.Via, want.Time = "client", "teredo", "a", got.Time
		if got != want {
			t.Errorf("%s: event %+v, want %+v", what, got, want)
		}
	}
	from := func(what string, source, want netip.Addr) {
		t.Helper()
		if got, err := r.seenFrom(t, source); got != want || err != nil {
			t.Errorf("%s: seen from %s, want %s, error %v", what, got, want, err)
		}
	}
	told("qualified", event.AddressChange{New: teredo, Standby: true, Cause: event.Qualified})
	from("unbound", netip.Addr{}, nativeAddress)
	from("bound", teredo, teredo)
	asked := func() uint64 { _, stats := c.snapshot(); return stats.Solicitations }
	before := asked()
	bound := r.stream(t, teredo)

	r.nativeGoes(t)
	told("native goes", event.AddressChange{Old: teredo, New: teredo, Cause: event.NativeGone})
	awaitAllOf(t, r.a, normalWith(teredo)...)
	from("unbound without native IPv6", netip.Addr{}, teredo)
	await(t, c, "the normal client", qualified)
	r.nativeComes(t)
	told("native comes", event.AddressChange{Old: teredo, New: teredo, Standby: true, Cause: event.NativeIPv6})
	awaitAllOf(t, r.a, standbyWith(teredo)...)
	from("unbound again", netip.Addr{}, nativeAddress)
	bound.finish(t)
	if now := asked(); now != before {
		t.Errorf("%d solicitations more", now-before)
	}

	for name, remove := range map[string]func(*port.Host, netlink.Link) error{
		"address": func(h *port.Host, _ netlink.Link) error {
			return h.RemoveAddr("teredo", netip.PrefixFrom(teredo, addressBits))
		},
		"route": func(h *port.Host, _ netlink.Link) error {
			return h.RemoveSourceRoute(sourceRoutes(&c.cfg, "teredo", teredo)[0])
		},
		"device down and up": func(_ *port.Host, l netlink.Link) error {
			return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetUp(l))
		},
		"device": func(_ *port.Host, l netlink.Link) error { return netlink.LinkDel(l) },
	} {
		r.a.Do(t, func() error {
			host, err := port.OpenHost()
			if err != nil {
				return err
			}
			defer host.Close()
			link, err := netlink.LinkByName("teredo")
			return errors.Join(err, remove(host, link))
		})
		awaitAllOf(t, r.a, standbyWith(teredo)...)
		r.a.Do(t, func() error {
			testutil.AwaitLocal(t, teredo) // which the kernel makes later
			return nil
		})
		from("unbound, after the removal of the "+name, netip.Addr{}, nativeAddress)
		from("bound, after the removal of the "+name, teredo, teredo)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	awaitAllOf(t, r.a)
	r.leavesNothingWhenKilled(t)
	if len(changes) != 0 {
		t.Errorf("another event: %+v\n%s", <-changes, log)
	}
}

// A telephone has the standby's address ready beside the native one, although it is deprecated. When
// native IPv6 goes its call goes on by Teredo, without a qualification, and it hears of it as an
// event; when native IPv6 returns the call goes back.
func TestStandbyCarriesCall(t *testing.T) {
	r := newNativeRig(t)
	c, _ := newClient(t, standby)
	phone := func(ns *testutil.Netns, name string) (a *agent.Agent) {
		ns.Do(t, func() (err error) {
			a, err = agent.New(agent.Settings{
				UA:         ua.Settings{AOR: message.URI{Scheme: "sip", User: name, Host: "example.com"}},
				AutoAnswer: true, Latch: true,
			})
			return err
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return a
	}
	alice, bob := phone(r.a, "alice"), phone(r.host, "bob")
	c.OnAddressChange(alice.AddressChanged)
	roletest.Start(t, r.a, c)
	teredo := await(t, c, "on standby", func(s Status) bool { return s.State == "standby" }).Address
	next := func(what string, wanted ...func(agent.Event) bool) { // in any order
		t.Helper()
		for late := time.After(testutil.Patience); len(wanted) > 0; {
			select {
			case v := <-alice.Events():
				if v.Kind == ua.Ended {
					t.Fatalf("%s: the call has ended by %d %s", what, v.Status, v.Reason)
				}
				if i := slices.IndexFunc(wanted, func(fits func(agent.Event) bool) bool { return fits(v) }); i >= 0 {
					wanted = slices.Delete(wanted, i, i+1)
				}
			case <-late:
				s, err := alice.State(t.Context())
				t.Fatalf("%s: %d events have not come; %+v, %v", what, len(wanted), s, err)
			}
		}
	}
	told := func(cause event.Cause, standby bool) func(agent.Event) bool {
		return func(v agent.Event) bool {
			return v.Address != nil && v.Address.Cause == cause && v.Address.New == teredo && v.Address.Standby == standby
		}
	}
	kind := func(k ua.Kind) func(agent.Event) bool {
		return func(v agent.Event) bool { return v.Media == nil && v.Address == nil && v.Kind == k }
	}
	by := func(what string, using netip.Addr) {
		t.Helper()
		for end := time.Now().Add(testutil.Patience); ; time.Sleep(time.Millisecond) {
			s, err := alice.State(t.Context())
			if err == nil && s.Path.Addr() == using {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: by %v, want %s, on standby %v, %v", what, s.Path, using, s.Standby, err)
			}
		}
	}
	next("qualified", told(event.Qualified, true))
	by("before the call", nativeAddress)
	if _, err := alice.Call(t.Context(), "sip:bob@["+farHost.String()+"]"); err != nil {
		t.Fatal(err)
	}
	next("established", kind(ua.Established))
	by("in the call", nativeAddress)

	r.nativeGoes(t)
	next("native IPv6 goes", kind(ua.Moved), told(event.NativeGone, false))
	by("without native IPv6", teredo)
	r.nativeComes(t)
	next("native IPv6 returns", kind(ua.Moved), told(event.NativeIPv6, true))
	by("with native IPv6 again", nativeAddress)
	if s, err := bob.State(t.Context()); err != nil || len(s.Calls) != 1 || s.Calls[0].Media.Received == 0 {
		t.Errorf("the other end: %+v, %v", s, err)
	}
}

// With several interfaces each has an address that stands by; one is preferred when native IPv6 goes.
func TestHandoverStandsBy(t *testing.T) {
	r := newNativeRig(t)
	r.secondLink(t)
	h, changes := newHandover(t, standby)
	stop := roletest.Start(t, r.a, h).Stop
	s := awaitPaths(t, h, "a in_use", "w standing_by")
	first, second := s.Paths[0].Address, s.Paths[1].Address
	all := func(normal bool) (list []string) {
		one := standbyWith
		if normal {
			one = normalWith
		}
		list = slices.Concat(one(first), standbyWith(second))
		slices.Sort(list)
		return list
	}
	awaitAllOf(t, r.a, all(false)...)
	if got, err := r.seenFrom(t, first); got != first || err != nil {
		t.Errorf("bound to %s: seen from %s, %v", first, got, err)
	}
	for range 2 { // a state that was left is reached again
		r.nativeGoes(t)
		awaitAllOf(t, r.a, all(true)...)
		if got, err := r.seenFrom(t, netip.Addr{}); got != first || err != nil {
			t.Errorf("without native IPv6: seen from %s, %v", got, err)
		}
		r.nativeComes(t)
		awaitAllOf(t, r.a, all(false)...)
	}
	if got, err := r.seenFrom(t, netip.Addr{}); got != nativeAddress || err != nil {
		t.Errorf("with native IPv6: seen from %s, %v", got, err)
	}
	last := event.AddressChange{}
	for len(changes) > 0 {
		last = <-changes
	}
	if last.New != first || last.Old != first || !last.Standby || last.Cause != event.NativeIPv6 {
		t.Errorf("last event %+v", last)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	awaitAllOf(t, r.a)
}
