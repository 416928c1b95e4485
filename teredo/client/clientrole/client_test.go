// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/role/roletest"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo/teredotest"
)

func TestClientSetsUpAndUndoes(t *testing.T) {
	r := newRig(t)
	c, log := newClient(t)
	stop := roletest.Start(t, r.a, c).Stop
	s := await(t, c, "qualified", qualified)
	if want := netip.MustParseAddrPort("198.51.100.2:0").Addr(); s.Mapped.Addr() != want || s.Mapped != s.Local {
		t.Errorf("mapped %s, local %s", s.Mapped, s.Local)
	}
	if s.NAT != "no NAT" {
		t.Errorf("NAT is %q", s.NAT)
	}
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	if err := stop(); err != nil {
		t.Error(err)
	}
	awaitDevice(t, r.a, "no device")
	if !strings.Contains(log.String(), `unsolicited = \"established\"`) {
		t.Errorf("the policy is not stated at the start: %s", log)
	}
}

// A client whose looks at the network fail until nothing changes there any more looks again all the same.
func TestLooksAgain(t *testing.T) {
	r := newRig(t)
	c, log := newClient(t)
	examine := c.examine
	blind := sync.OnceValue(func() time.Time { return time.Now().Add(500 * time.Millisecond) }) // from the first look on
	c.examine = func() (networkState, error) {
		if time.Now().Before(blind()) {
			return networkState{}, errors.New("no buffer space")
		}
		return examine()
	}
	roletest.Start(t, r.a, c)
	if s := await(t, c, "no NAT", func(s Status) bool { return s.NAT == "no NAT" }); s.Mapped != s.Local {
		t.Errorf("mapped %s, local %s", s.Mapped, s.Local)
	}
	if n := strings.Count(log.String(), "cannot examine the network"); n != 1 {
		t.Errorf("the failure is logged %d times", n)
	}
}

// Two clients talk over their kernels' UDP, by bubbles through the server.
func TestClientToClient(t *testing.T) {
	r := newRig(t)
	a, _ := newClient(t)
	b, _ := newClient(t, func(c *Settings) { c.Unsolicited = UnsolicitedAllow })
	roletest.Start(t, r.a, a)
	roletest.Start(t, r.b, b)
	sa, sb := await(t, a, "qualified", qualified), await(t, b, "qualified", qualified)
	awaitDevice(t, r.a, deviceWith(sa.Address)...)
	awaitDevice(t, r.b, deviceWith(sb.Address)...)
	var from, to *net.UDPConn
	r.b.Do(t, func() (err error) {
		to, err = net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(sb.Address, 7)))
		return err
	})
	defer to.Close()
	r.a.Do(t, func() (err error) {
		from, err = net.DialUDP("udp6", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(sb.Address, 7)))
		return err
	})
	defer from.Close()
	const words = "across the isthmus"
	if _, err := from.Write([]byte(words)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	_ = to.SetReadDeadline(time.Now().Add(testutil.Patience))
	n, back, err := to.ReadFromUDPAddrPort(buf)
	if err != nil || string(buf[:n]) != words || back.Addr() != sa.Address {
		t.Fatalf("got %q from %s, %v", buf[:n], back, err)
	}
	if _, err := to.WriteToUDPAddrPort([]byte("back"), back); err != nil {
		t.Fatal(err)
	}
	_ = from.SetReadDeadline(time.Now().Add(testutil.Patience))
	if n, err := from.Read(buf); err != nil || string(buf[:n]) != "back" {
		t.Fatalf("answer %q, %v", buf[:n], err)
	}
	peers, total := a.Peers(10)
	if total != 1 || peers[0].Address != sb.Address || !peers[0].Trusted || peers[0].Mapped != sb.Mapped {
		t.Errorf("peers %+v of %d", peers, total)
	}
}

func TestClientFollowsAddressChange(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t)
	roletest.Start(t, r.a, c)
	old := await(t, c, "qualified", qualified)
	awaitDevice(t, r.a, deviceWith(old.Address)...)
	began := time.Now()
	r.a.Do(t, func() error {
		if err := teredotest.SetUp("a", "198.51.100.9/24"); err != nil {
			return err
		}
		link, err := netlink.LinkByName("a")
		if err != nil {
			return err
		}
		gone, err := netlink.ParseAddr("198.51.100.2/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrDel(link, gone); err != nil {
			return err
		}
		// The kernel takes the second address of a network with the first.
		if err := teredotest.SetUp("a", "198.51.100.9/24"); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		return defaultRoute("198.51.100.1")
	})
	s := await(t, c, "at the new address", func(s Status) bool {
		return qualified(s) && s.Mapped.Addr() == netip.MustParseAddr("198.51.100.9")
	})
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	t.Logf("from the change to the new address on the device: %v", time.Since(began))
}

func TestClientStepsAside(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t)
	roletest.Start(t, r.a, c)
	await(t, c, "qualified", qualified)
	var route *netlink.Route
	r.a.Do(t, func() error {
		if err := teredotest.SetUp("a", "2001:db8::2/64"); err != nil {
			return err
		}
		route = &netlink.Route{Gw: net.ParseIP("2001:db8::1")}
		return netlink.RouteAdd(route)
	})
	await(t, c, "dormant", func(s Status) bool { return s.State == "dormant" })
	awaitDevice(t, r.a)
	r.a.Do(t, func() error { return netlink.RouteDel(route) })
	s := await(t, c, "qualified again", qualified)
	awaitDevice(t, r.a, deviceWith(s.Address)...)
}

// The kernel drops addresses and routes of a device that is set down.
func TestClientEquipsDeviceAgain(t *testing.T) {
	r := newRig(t)
	c, log := newClient(t)
	stop := roletest.Start(t, r.a, c).Stop
	s := await(t, c, "qualified", qualified)
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	change := func(steps ...func(netlink.Link) error) {
		t.Helper()
		r.a.Do(t, func() error {
			link, err := netlink.LinkByName("teredo")
			for _, step := range steps {
				err = errors.Join(err, step(link))
			}
			return err
		})
	}
	change(netlink.LinkSetDown, netlink.LinkSetUp) // at once, before it can be heard of
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	// The kernel takes the address away with that. What the client does for the change before may come
	// behind it.
	change(netlink.LinkSetDown)
	await(t, c, "down", func(s Status) bool { return s.DeviceDown })
	change(netlink.LinkSetUp)
	awaitDevice(t, r.a, deviceWith(s.Address)...)
	await(t, c, "up", func(s Status) bool { return !s.DeviceDown })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the device is down", "the device is up again"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

// A client that gets its address while its device is down has it afterwards.
func TestClientQualifiesWhileDeviceIsDown(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t, func(c *Settings) { c.Servers = []Host{{Name: "teredo.example.net"}} })
	found := make(chan struct{})
	c.lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
		select {
		case <-found:
			return []netip.Addr{netip.MustParseAddr("203.0.113.1")}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	roletest.Start(t, r.a, c)
	change := func(f func(netlink.Link) error) {
		t.Helper()
		r.a.Do(t, func() error {
			link, err := netlink.LinkByName("teredo")
			if err != nil {
				return err
			}
			return f(link)
		})
	}
	change(netlink.LinkSetDown)
	close(found)
	s := await(t, c, "addressed", func(s Status) bool { return s.State == "device_down" && s.Address.IsValid() })
	change(netlink.LinkSetUp)
	awaitDevice(t, r.a, deviceWith(s.Address)...)
}

func TestClientIgnoresNative(t *testing.T) {
	configtest.InEffect(t, "teredo_client", "native")
	r := newRig(t)
	r.a.Do(t, func() error {
		if err := teredotest.SetUp("a", "2001:db8::2/64"); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8::1")})
	})
	c, _ := newClient(t, func(c *Settings) { c.Native = NativeIgnore })
	roletest.Start(t, r.a, c)
	await(t, c, "qualified", qualified)
}

// A server given by name is looked up, again while that fails.
func TestClientLooksUpServer(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t, func(c *Settings) { c.Servers = []Host{{Name: "teredo.example.net"}} })
	var asked atomic.Int32
	c.lookup = func(_ context.Context, name string) ([]netip.Addr, error) {
		if asked.Add(1) == 1 {
			return nil, errors.New("no answer")
		}
		return []netip.Addr{netip.MustParseAddr("203.0.113.1")}, nil
	}
	roletest.Start(t, r.a, c)
	await(t, c, "qualified", qualified)
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want 2", n)
	}
}

func TestClientReload(t *testing.T) {
	r := newRig(t)
	c, _ := newClient(t, func(c *Settings) {
		c.Servers = []Host{{Addr: netip.MustParseAddr("203.0.113.77")}}
	})
	roletest.Start(t, r.a, c)
	await(t, c, "starting", func(s Status) bool { return s.State == "starting" })
	want := rigSettings()
	want.Port = 3555
	restart, err := roletest.Reload(Role, c, c.cfg, want)
	if diff := cmp.Diff([]string{"port"}, restart); diff != "" || err != nil {
		t.Errorf("keys that wait for a restart (-want +got):\n%s\n%v", diff, err)
	}
	await(t, c, "qualified", qualified)
}

// Every counter has a help text and a name of its own.
func TestClientMetrics(t *testing.T) {
	c, _ := newClient(t)
	seen := map[string]bool{}
	c.Collect(func(m role.Metric) {
		if id := m.Name + " " + m.Reason; m.Help == "" || seen[id] {
			t.Errorf("metric %q: help %q, seen before: %v", id, m.Help, seen[id])
		} else {
			seen[id] = true
		}
	})
	if len(seen) < 40 {
		t.Errorf("only %d metrics", len(seen))
	}
}
