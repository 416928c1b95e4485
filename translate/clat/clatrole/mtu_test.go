// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clatrole

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// awaitMTU waits until the CLAT's route and status say that so much passes.
func (w *world) awaitMTU(t *testing.T, want int) {
	t.Helper()
	route := func() (mtu int) {
		w.host.Do(t, func() error {
			routes, err := testutil.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
			for _, r := range routes {
				if r.Priority == w.clat.cfg.RouteMetric {
					mtu = r.MTU
				}
			}
			return err
		})
		return mtu
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		got, st := route(), w.clat.Status().(Status)
		if got == want && st.MTU == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the MTU of the route is %d, of the status %d, want %d", got, st.MTU, want)
		}
	}
}

// narrow makes the router's end of the uplink take no more, without a word to anybody.
func (w *world) narrow(t *testing.T, mtu int) {
	t.Helper()
	w.net.Do(t, func() error {
		up0, err := netlink.LinkByName("up0")
		return errors.Join(err, netlink.LinkSetMTU(up0, mtu))
	})
}

// TestAdvertisedMTU has a router advertise less than the link takes, as on PPPoE (RFC 4861
// section 4.6.4), then still less while the CLAT works, and more again.
func TestAdvertisedMTU(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.narrow(t, 1480)
	w.net.Advertise(t, "up0", testutil.OptionMTU(1480))
	w.startCLAT(t)
	address := w.await(t, "serving").Address6
	w.awaitMTU(t, 1460)
	w.transfer(t, 4<<20)

	w.narrow(t, 1400)
	w.net.Advertise(t, "up0", testutil.OptionMTU(1400))
	w.transfer(t, 4<<20)
	w.awaitMTU(t, 1380)

	w.narrow(t, 1500)
	w.net.Advertise(t, "up0", testutil.OptionMTU(1500))
	w.awaitMTU(t, 1480)
	if now := w.await(t, "serving").Address6; now != address {
		t.Errorf("the address changed from %s to %s, which breaks all connections", address, now)
	}
}

// TestPathMTU has routes of the host's that take less than its link.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	add := func(dst string, mtu int) {
		w.host.Do(t, func() error {
			_, to, err := net.ParseCIDR(dst)
			return errors.Join(err, netlink.RouteReplace(&netlink.Route{Dst: to, Gw: net.ParseIP("2001:db8:1::1"), MTU: mtu}))
		})
	}
	w.startCLAT(t)
	w.await(t, "serving")
	w.awaitMTU(t, 1480)
	add(pool6.String(), 1450)
	w.awaitMTU(t, 1430)
	add("2001:db8:64::c633:6407/128", 1400)
	w.transfer(t, 4<<20)
	w.awaitMTU(t, 1430)
}

// TestTooBigIsAnswered sends datagrams that the host's route for one destination refuses: with
// DF the program hears what passes, without DF they pass in fragments.
func TestTooBigIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	w.await(t, "serving")
	w.host.Do(t, func() error {
		_, to, err := net.ParseCIDR("2001:db8:64::c633:6407/128")
		return errors.Join(err, netlink.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP("2001:db8:1::1"), MTU: 1400}))
	})
	var there net.PacketConn
	w.site.Do(t, func() (err error) {
		there, err = net.ListenPacket("udp4", site.String())
		return err
	})
	defer there.Close()
	dial := func(discovery int) *net.UDPConn {
		var conn *net.UDPConn
		w.host.Do(t, func() (err error) {
			d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
				var failed error
				return errors.Join(c.Control(func(fd uintptr) {
					failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, discovery)
				}), failed)
			}}
			c, err := d.Dial("udp4", site.String())
			if err == nil {
				conn = c.(*net.UDPConn)
			}
			return err
		})
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	whole := make([]byte, 1480-28)
	_, _ = rand.Read(whole)

	unbound := dial(unix.IP_PMTUDISC_DONT)
	if _, err := unbound.Write(whole); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2048)
	if err := there.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, _, err := there.ReadFrom(got); err != nil || !bytes.Equal(got[:n], whole) {
		t.Fatalf("without DF %d bytes came: %v", n, err)
	}

	strict := dial(unix.IP_PMTUDISC_DO)
	heard := func() (mtu int) {
		raw, err := strict.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) { mtu, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU) }); err != nil {
			t.Fatal(err)
		}
		return mtu
	}
	for end := time.Now().Add(patience); heard() != 1380; time.Sleep(10 * time.Millisecond) {
		_, _ = strict.Write(whole)
		if time.Now().After(end) {
			t.Fatalf("the program hears that %d bytes pass, want 1380", heard())
		}
	}
	for range 2 { // the error that was heard last is still to be told
		if _, err := strict.Write(whole[:1380-28]); err == nil {
			break
		}
	}
	if n, _, err := there.ReadFrom(got); err != nil || !bytes.Equal(got[:n], whole[:1380-28]) {
		t.Errorf("%d bytes came: %v", n, err)
	}
}

// TestDeprecated has a host whose only address is deprecated (RFC 4862 section 5.5.4): it
// serves, and prefers one that is not as soon as there is one.
func TestDeprecated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startCLAT(t)
	first := w.await(t, "serving").Address6
	set := func(ns *testutil.Netns, addr string, preferred bool) {
		ns.Do(t, func() error {
			up0, err := netlink.LinkByName("up0")
			if err != nil {
				return err
			}
			a, err := netlink.ParseAddr(addr)
			if err != nil {
				return err
			}
			if a.Flags = unix.IFA_F_NODAD; !preferred {
				a.ValidLft = 7200 // and preferred for 0 s
			}
			return netlink.AddrReplace(up0, a)
		})
	}
	set(w.host, "2001:db8:1::2/64", false)
	w.transfer(t, 1<<10)
	if st := w.await(t, "serving"); st.Address6 != first {
		t.Errorf("the address changed from %s to %s", first, st.Address6)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	w.startCLAT(t)
	w.await(t, "serving")
	w.transfer(t, 1<<10)
	set(w.net, "2001:db8:2::1/64", true)
	set(w.host, "2001:db8:2::2/64", true)
	second := netip.MustParsePrefix("2001:db8:2::/64")
	for end := time.Now().Add(patience); !second.Contains(w.await(t, "serving").Address6); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it has no address of %s", second)
		}
	}
	w.transfer(t, 1<<10)
}

// TestWidened has the uplink take larger packets than at the start: the address stays, and so do
// connections.
func TestWidened(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	widen := func(mtu int) {
		for _, ns := range []*testutil.Netns{w.host, w.net} {
			ns.Do(t, func() error {
				up0, err := netlink.LinkByName("up0")
				return errors.Join(err, netlink.LinkSetMTU(up0, mtu))
			})
		}
	}
	widen(1400)
	w.startCLAT(t)
	address := w.await(t, "serving").Address6
	w.awaitMTU(t, 1380)
	var listener net.Listener
	w.site.Do(t, func() (err error) {
		listener, err = net.Listen("tcp4", site.String())
		return err
	})
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	var conn net.Conn
	w.host.Do(t, func() (err error) {
		conn, err = net.DialTimeout("tcp4", site.String(), patience)
		return err
	})
	defer conn.Close()
	word, got := []byte("word"), make([]byte, 4)
	say := func() {
		t.Helper()
		err := conn.SetDeadline(time.Now().Add(patience))
		if err == nil {
			_, err = conn.Write(word)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, word) {
			t.Fatalf("%q came back: %v", got, err)
		}
	}
	say()
	widen(1500)
	w.awaitMTU(t, 1480)
	if now := w.await(t, "serving").Address6; now != address {
		t.Errorf("the address changed from %s to %s", address, now)
	}
	say()
}
