// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
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
	roletest.Start(t, w.net, w.plat)
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
	w.stop = roletest.Start(t, w.host, w.clat).Stop
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
