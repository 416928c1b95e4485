// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"bytes"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/translate/clat"
)

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
// the claimed address: it would answer that no one is there.
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
