// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
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

// bumpless checks that nothing bumped since it was last looked.
func (f *stage) bumpless(during string) {
	f.t.Helper()
	select {
	case <-f.table.bumps:
		f.t.Errorf("%s made a new generation; %+v", during, f.follower.Stats())
	default:
	}
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
