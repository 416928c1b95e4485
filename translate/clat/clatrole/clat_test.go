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
	undo := w.native(t)
	for _, line := range w.left(t) {
		if strings.Contains(line, "2048") {
			t.Errorf("aside, but there is %s", line)
		}
	}
	undo()
	w.await(t, "serving")
	w.transfer(t, 1<<10)
}

// TestAsideElsewhere has the network given another prefix while the host has IPv4 of its own:
// nothing of before is missed there.
func TestAsideElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log bytes.Buffer
	w.startCLATWith(t, slog.NewTextHandler(&log, nil))
	w.await(t, "serving")
	undo := w.native(t)
	before := w.await(t, "aside").Address6
	if st := w.renumber(t, "aside"); st.Address6 == before || len(st.Missing) > 0 {
		t.Errorf("status %+v", st)
	}
	undo()
	if st := w.await(t, "serving"); len(st.Missing) > 0 {
		t.Errorf("status %+v", st)
	}
	w.transfer(t, 1<<10)
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Contains(text, "WARN") || strings.Contains(text, "removed") {
		t.Errorf("logged:\n%s", text)
	}
	if left := w.left(t); len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
}

// TestTriedAgain ends a session from within, and has the next one refused until its device's
// name is free.
func TestTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	name := w.await(t, "serving").Interface
	w.clat.mu.Lock()
	s := w.clat.current
	w.clat.mu.Unlock()
	s.end(errors.New("a port was lost"))
	if st := w.await(t, retrying); st.Error != "a port was lost" {
		t.Errorf("status %+v", st)
	}
	other := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"}
	w.host.Do(t, func() (err error) {
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if err = netlink.LinkAdd(other); !errors.Is(err, unix.EEXIST) { // the device is going
				break
			}
		}
		return err
	})
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if st := w.await(t, retrying); strings.Contains(st.Error, name) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("status %+v", w.clat.Status())
		}
	}
	w.host.Do(t, func() error { return netlink.LinkDel(other) })
	if st := w.await(t, "serving"); st.Error != "" {
		t.Errorf("status %+v", st)
	}
	w.transfer(t, 1<<10)
}

// addresses adds an address to an end of the uplink, and removes another, unless either is "".
func addresses(t *testing.T, ns *testutil.Netns, add, remove string) {
	t.Helper()
	ns.Do(t, func() error {
		up0, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		var errs []error
		if add != "" {
			a, err := netlink.ParseAddr(add)
			a.Flags = unix.IFA_F_NODAD
			errs = append(errs, err, netlink.AddrAdd(up0, a))
		}
		if remove != "" {
			a, err := netlink.ParseAddr(remove)
			errs = append(errs, err, netlink.AddrDel(up0, a))
		}
		return errors.Join(errs...)
	})
}

// renumber gives the uplink another prefix, and awaits that the CLAT, in a state, is there.
func (w *world) renumber(t *testing.T, state string) Status {
	t.Helper()
	addresses(t, w.net, "2001:db8:2::1/64", "2001:db8:1::1/64")
	addresses(t, w.host, "2001:db8:2::2/64", "2001:db8:1::2/64")
	w.host.Do(t, func() error { return netlink.RouteReplace(&netlink.Route{Gw: net.ParseIP("2001:db8:2::1")}) })
	second := netip.MustParsePrefix("2001:db8:2::/64")
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		st := w.await(t, state)
		if second.Contains(st.Address6) {
			return st
		}
		if time.Now().After(end) {
			t.Fatalf("it has no address of %s: %+v", second, st)
		}
	}
}

// TestFollowsTheUplink has the network given another prefix.
func TestFollowsTheUplink(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	w.await(t, "serving")
	w.renumber(t, "serving")
	w.transfer(t, 1<<10)
}

// TestKeepsItsNetwork has the uplink given other networks beside the one in use, which the
// kernel lists before it.
func TestKeepsItsNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	addresses(t, w.host, "fd00:1::2/64", "")
	w.startCLAT(t)
	before := w.await(t, "serving")
	if !netip.MustParsePrefix("2001:db8:1::/64").Contains(before.Address6) {
		t.Fatalf("beside a global network it is in another: %+v", before)
	}
	addresses(t, w.host, "2001:db8:2::2/64", "")
	addresses(t, w.host, "fd00:2::2/64", "fd00:1::2/64")
	w.native(t)() // until then it has seen them
	if st := w.await(t, "serving"); st.Address6 != before.Address6 {
		t.Errorf("the address changed from %s to %s", before.Address6, st.Address6)
	}
	w.transfer(t, 1<<10)
}

// native gives the host a default route of IPv4 by the uplink, until undo.
func (w *world) native(t *testing.T) (undo func()) {
	t.Helper()
	route := &netlink.Route{Scope: unix.RT_SCOPE_LINK, Priority: 5000}
	w.host.Do(t, func() error {
		up0, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		_, all, _ := net.ParseCIDR("0.0.0.0/0")
		route.Dst, route.LinkIndex = all, up0.Attrs().Index
		return netlink.RouteAdd(route)
	})
	w.await(t, "aside")
	return func() { w.host.Do(t, func() error { return netlink.RouteDel(route) }) }
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
	if st := w.await(t, retrying); !strings.Contains(st.Error, "another program") {
		t.Errorf("status %+v", st)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}
