// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/clat"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64role"
)

// patience is how long a test waits for what is sure to come.
const patience = testutil.Patience

var (
	site  = netip.MustParseAddrPort("198.51.100.7:8080")
	pool4 = netip.MustParseAddr("203.0.113.1")
	pool6 = netip.MustParsePrefix("2001:db8:64::/96")
)

// world is a host with IPv6 alone, a network with a NAT64, and a site with IPv4 alone
// behind it:
//
//	host -- up0 -- 2001:db8:1::1 net 192.0.2.1 -- v4 -- site 198.51.100.7
type world struct {
	host, net, site *testutil.Netns
	plat            *nat64role.NAT64
	clat            *CLAT
	stop            func() error
}

// worlds counts them.
var worlds atomic.Int32

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldBehind(t, fastpath.ModeOff)
}

// newWorldBehind has the NAT64 carry packets by a fast path.
func newWorldBehind(t *testing.T, mode fastpath.Mode) *world {
	t.Helper()
	w := &world{host: testutil.NewNetns(t), net: testutil.NewNetns(t), site: testutil.NewNetns(t)}
	for _, ns := range []*testutil.Netns{w.host, w.net, w.site} {
		ns.AddressesAtOnce(t)
	}
	connect(t, w.net, w.host, "up0", "2001:db8:1::1/64", "2001:db8:1::2/64")
	connect(t, w.net, w.site, "v4", "192.0.2.1/24", "192.0.2.7/24")
	w.host.Do(t, func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8:1::1")}) })
	w.site.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(site.Addr().String() + "/32")
		return errors.Join(err, netlink.AddrAdd(lo, a), netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("192.0.2.1")}))
	})
	w.net.Do(t, func() error {
		_, sites, err := net.ParseCIDR("198.51.100.0/24")
		return errors.Join(err,
			netlink.RouteAdd(&netlink.Route{Dst: sites, Gw: net.ParseIP("192.0.2.7")}),
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0))
	})
	c := *configtest.One(t, nat64role.Role.Section, nat64role.Role.Smallest()).(*nat64role.Settings)
	c.Name = fmt.Sprintf("plat%d", worlds.Add(1)) // its tables have a name that all of this process see
	c.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}
	c.Pool6 = []netip.Prefix{pool6}
	c.Pool4 = []nat64role.PoolRange{{Prefix: netip.PrefixFrom(pool4, 32), Transports: nat64role.AllTransports, First: 1024, Last: 65535}}
	c.MaxSessions, c.MaxClients, c.FastPath = 4096, 64, mode
	c.StateFile = filepath.Join(t.TempDir(), "state")
	var err error
	if w.plat, err = nat64role.New(c, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	start(t, w.net, w.plat)
	return w
}

// connect joins two namespaces by a veth pair whose ends have one name, and which carries
// packets then.
func connect(t *testing.T, a, b *testutil.Netns, name, addrA, addrB string) {
	t.Helper()
	address := func(addr string) error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		p, err := netlink.ParseAddr(addr)
		if err != nil {
			return err
		}
		p.Flags = unix.IFA_F_NODAD
		return errors.Join(netlink.AddrAdd(l, p), netlink.LinkSetUp(l))
	}
	a.Do(t, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(b.Handle())}
		return errors.Join(netlink.LinkAdd(veth), address(addrA))
	})
	b.Do(t, func() error { return address(addrB) })
	a.AwaitLinks(t, name)
	b.AwaitLinks(t, name)
}

// start runs an instance in a namespace until its stop is called or the test ends.
func start(t *testing.T, ns *testutil.Netns, i role.Instance) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(ns.Handle(), unix.CLONE_NEWNET); err != nil {
			ended <- err
			return
		}
		ended <- i.Run(ctx)
	}()
	wait := sync.OnceValue(func() error { return <-ended })
	stop = func() error { cancel(); return wait() }
	t.Cleanup(func() { _ = stop() })
	select {
	case <-i.Ready():
	case err := <-ended:
		ended <- err
		t.Fatalf("%s ended: %v", i.Role(), err)
	}
	return stop
}

// defaults are the settings of a section without keys.
func defaults() (s Settings) {
	key.SetDefaults(s.keys())
	return s
}

// startCLAT runs a CLAT on the host.
func (w *world) startCLAT(t *testing.T) {
	t.Helper()
	w.startCLATWith(t, slog.DiscardHandler)
}

func (w *world) startCLATWith(t *testing.T, log slog.Handler) {
	t.Helper()
	c := defaults()
	c.Prefixes = []netip.Prefix{pool6}
	var err error
	if w.clat, err = New(c, slog.New(log)); err != nil {
		t.Fatal(err)
	}
	w.stop = start(t, w.host, w.clat)
}

// await waits for a state of the instance.
func (w *world) await(t *testing.T, state string) Status {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		st := w.clat.Status().(Status)
		if st.State == state {
			return st
		}
		if time.Now().After(end) {
			t.Fatalf("the state is %s, want %s", st.State, state)
		}
	}
}

// transfer sends so many bytes each way over TCP from the host to the site, whose
// programs know IPv4 alone, and returns whom the site saw.
func (w *world) transfer(t *testing.T, size int) netip.Addr {
	t.Helper()
	var listener net.Listener
	w.site.Do(t, func() (err error) {
		listener, err = net.Listen("tcp4", site.String())
		return err
	})
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
	var conn net.Conn
	w.host.Do(t, func() (err error) {
		conn, err = net.DialTimeout("tcp4", site.String(), patience)
		return err
	})
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	sent := make([]byte, size)
	_, _ = rand.Read(sent)
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, size)
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sent, got) {
		t.Error("what came back differs")
	}
	return conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr()
}

// left lists what there is of IPv4 and of devices on the host.
func (w *world) left(t *testing.T) (left []string) {
	t.Helper()
	w.host.Do(t, func() error {
		routes, err := testutil.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
		for _, r := range routes {
			left = append(left, "route "+r.String())
		}
		links, err2 := testutil.Whole(func() ([]netlink.Link, error) { return netlink.LinkList() })
		for _, l := range links {
			if n := l.Attrs().Name; n != "lo" && n != "up0" {
				left = append(left, "link "+n)
			}
		}
		return errors.Join(err, err2)
	})
	return left
}

func TestCarriesTCP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	st := w.await(t, "serving")
	if st.Uplink != "up0" || !netip.MustParsePrefix("2001:db8:1::/64").Contains(st.Address6) || st.Address4 != clat.HostIPv4 {
		t.Errorf("status %+v", st)
	}
	// Enough for the kernel to merge segments, and to leave checksums to the device.
	if from := w.transfer(t, 16<<20); from != clat.HostIPv4 {
		t.Errorf("connected from %s", from)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if left := w.left(t); len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
}

// TestStepsAside has a host that gets, and loses, IPv4 of its own.
func TestStepsAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	w.await(t, "serving")
	native := &netlink.Route{Scope: unix.RT_SCOPE_LINK, Priority: 5000}
	w.host.Do(t, func() error {
		up0, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		_, all, _ := net.ParseCIDR("0.0.0.0/0")
		native.Dst, native.LinkIndex = all, up0.Attrs().Index
		return netlink.RouteAdd(native)
	})
	w.await(t, "aside")
	for _, line := range w.left(t) {
		if strings.Contains(line, "2048") {
			t.Errorf("aside, but there is %s", line)
		}
	}
	w.host.Do(t, func() error { return netlink.RouteDel(native) })
	w.await(t, "serving")
	w.transfer(t, 1<<10)
}

// TestFollowsTheUplink has the network given another prefix.
func TestFollowsTheUplink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	first := w.await(t, "serving").Address6
	readdress := func(ns *testutil.Netns, old, now string) {
		ns.Do(t, func() error {
			up0, err := netlink.LinkByName("up0")
			if err != nil {
				return err
			}
			before, _ := netlink.ParseAddr(old)
			after, _ := netlink.ParseAddr(now)
			after.Flags = unix.IFA_F_NODAD
			return errors.Join(netlink.AddrAdd(up0, after), netlink.AddrDel(up0, before))
		})
	}
	readdress(w.net, "2001:db8:1::1/64", "2001:db8:2::1/64")
	readdress(w.host, "2001:db8:1::2/64", "2001:db8:2::2/64")
	w.host.Do(t, func() error { return netlink.RouteReplace(&netlink.Route{Gw: net.ParseIP("2001:db8:2::1")}) })
	// While both prefixes are there it may take another address of the first.
	second := netip.MustParsePrefix("2001:db8:2::/64")
	for end := time.Now().Add(patience); !second.Contains(w.await(t, "serving").Address6); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it has no address of %s, at first %s", second, first)
		}
	}
	w.transfer(t, 1<<10)
}

// TestForwardingHost has a host that forwards, which must keep its hands off what is for
// the claimed address: it would answer that nobody is there.
func TestForwardingHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host.Do(t, func() error {
		return errors.Join(
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0))
	})
	w.startCLAT(t)
	w.await(t, "serving")
	w.transfer(t, 1<<10)
	w.host.Do(t, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp6")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); f[0] == "Ip6OutForwDatagrams" && f[1] != "0" {
				t.Errorf("the host forwarded %s packets for the address", f[1])
			}
		}
		return err
	})
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w.host.Do(t, func() error {
		routes, err := testutil.Whole(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Type: unix.RTN_BLACKHOLE}, netlink.RT_FILTER_TYPE)
		})
		if len(routes) > 0 {
			t.Errorf("left behind: %v", routes)
		}
		return err
	})
}

// TestLinkGoesAndComes takes the uplink down and up. The kernel takes its addresses away
// meanwhile.
func TestLinkGoesAndComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	w.await(t, "serving")
	uplink := func(f func(netlink.Link) error) {
		w.host.Do(t, func() error {
			up0, err := netlink.LinkByName("up0")
			return errors.Join(err, f(up0))
		})
	}
	uplink(netlink.LinkSetDown)
	w.await(t, "waiting_for_ipv6")
	if left := w.left(t); len(left) > 0 {
		t.Errorf("without an uplink there is %s", strings.Join(left, ", "))
	}
	uplink(func(l netlink.Link) error {
		a, err := netlink.ParseAddr("2001:db8:1::2/64")
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		return errors.Join(netlink.LinkSetUp(l), netlink.AddrReplace(l, a), netlink.RouteReplace(&netlink.Route{Gw: net.ParseIP("2001:db8:1::1")}))
	})
	w.await(t, "serving")
	w.transfer(t, 1<<10)
}

// TestNarrowUplink has a link that carries no more than every IPv6 link must.
func TestNarrowUplink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, ns := range []*testutil.Netns{w.host, w.net} {
		ns.Do(t, func() error {
			up0, err := netlink.LinkByName("up0")
			return errors.Join(err, netlink.LinkSetMTU(up0, 1280))
		})
	}
	w.startCLAT(t)
	w.await(t, "serving")
	w.transfer(t, 4<<20)
}

// TestFragments sends datagrams each way that no link carries whole.
func TestFragments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	w.await(t, "serving")
	var there net.PacketConn
	w.site.Do(t, func() (err error) {
		there, err = net.ListenPacket("udp4", site.String())
		return err
	})
	defer there.Close()
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := there.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = there.WriteTo(b[:n], from)
		}
	}()
	var here net.Conn
	w.host.Do(t, func() (err error) {
		here, err = net.Dial("udp4", site.String())
		return err
	})
	defer here.Close()
	for _, size := range []int{1452, 1453, 1473, 4000, 30000} {
		sent, got := make([]byte, size), make([]byte, 1<<16)
		_, _ = rand.Read(sent)
		back := false
		// The site learns the MTU of the way back by losing its first answer; answers to
		// what was sent again may come late.
		for end := time.Now().Add(patience); !back; {
			if time.Now().After(end) {
				t.Fatalf("%d bytes did not come back", size)
			}
			if _, err := here.Write(sent); err != nil {
				t.Fatal(err)
			}
			if err := here.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			for n, err := here.Read(got); err == nil && !back; {
				if back = bytes.Equal(sent, got[:n]); !back {
					n, err = here.Read(got)
				}
			}
		}
	}
}

// refusals is a log that takes note when it is told of another translator.
type refusals chan string

func (r refusals) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "another program translates for this host already") {
		select {
		case r <- string(line):
		default:
		}
	}
	return len(line), nil
}

// TestSecondTranslator refuses to share the addresses of RFC 7335.
func TestSecondTranslator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		a, _ := netlink.ParseAddr("192.0.0.4/32")
		return netlink.AddrAdd(lo, a)
	})
	refused := make(refusals, 1)
	w.startCLATWith(t, slog.NewTextHandler(refused, nil))
	select {
	case <-refused:
	case <-time.After(patience):
		t.Error("nothing is logged")
	}
	if st := w.clat.Status().(Status); st.State == "serving" {
		t.Errorf("status %+v", st)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

func TestResolvers(t *testing.T) {
	got := readResolvers("# resolv.conf\nsearch example\nnameserver 2001:db8::53\nnameserver 127.0.0.53\nnameserver ::1\nnameserver 192.0.2.1\nnameserver\noptions edns0\nnameserver 2001:db8::54 # second\n")
	want := []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::53]:53"), netip.MustParseAddrPort("[2001:db8::54]:53")}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("read %v, want %v", got, want)
	}
}
