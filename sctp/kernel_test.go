// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// requireKernelEnv makes a test fail that would be skipped since the kernel has no SCTP; it acts when set to 1.
const requireKernelEnv = "ISTHMUS_REQUIRE_KERNEL_SCTP"

// kernelWorld is two hosts with two networks between them. The SCTP of one is ours, in UDP; of the other the kernel's.
//
//	ours ---- 2001:db8:1::/64 ---- kernel
//	     ---- 2001:db8:2::/64 ----
type kernelWorld struct{ ours, kernel *testutil.Netns }

const kernelPort = 5000

func newKernelWorld(t *testing.T) *kernelWorld {
	w := &kernelWorld{testutil.NewNetns(t), testutil.NewNetns(t)}
	if _, err := os.Stat("/proc/sys/net/sctp"); err != nil && os.Getenv(requireKernelEnv) != "1" {
		t.Skip("this kernel has no SCTP")
	}
	w.kernel.Do(t, func() error {
		var errs []error
		for _, s := range []struct{ name, value string }{
			{"udp_port", "9899"}, {"encap_port", "9899"}, {"auth_enable", "1"}, {"addip_enable", "1"}, {"rto_min", "200"},
			{"hb_interval", "1000"}, {"path_max_retrans", "2"},
		} {
			errs = append(errs, os.WriteFile(filepath.Join("/proc/sys/net/sctp", s.name), []byte(s.value), 0))
		}
		return errors.Join(errs...)
	})
	for i := range 2 {
		name, other := fmt.Sprintf("net%d", i+1), fmt.Sprintf("peer%d", i+1)
		w.ours.Do(t, func() error {
			veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: other, PeerNamespace: netlink.NsFd(w.kernel.Handle())}
			veth.Name = name
			if err := netlink.LinkAdd(veth); err != nil {
				return err
			}
			// As on a wire: Linux 6.1 panics when its SCTP gets a train of datagrams in one buffer.
			if err := netlink.LinkSetGSOMaxSegs(veth, 1); err != nil {
				return err
			}
			return addHost(name, i+1, "a")
		})
		w.kernel.Do(t, func() error { return addHost(other, i+1, "b") })
	}
	return w
}

// addHost sets a link up with an address of a network.
func addHost(name string, network int, host string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(fmt.Sprintf("2001:db8:%d::%s/64", network, host))
	if err != nil {
		return err
	}
	address.Flags = unix.IFA_F_NODAD
	return errors.Join(netlink.LinkSetUp(link), netlink.AddrAdd(link, address))
}

// setLink sets the kernel's end of a network up or down.
func (w *kernelWorld) setLink(t *testing.T, network int, up bool) {
	w.kernel.Do(t, func() error {
		link, err := netlink.LinkByName(fmt.Sprintf("peer%d", network))
		switch {
		case err != nil:
			return err
		case up:
			return addHost(link.Attrs().Name, network, "b")
		}
		return netlink.LinkSetDown(link)
	})
}

// kernelSocket is one of the kernel's.
type kernelSocket int

// socket opens one that is bound to addresses.
func (w *kernelWorld) socket(t *testing.T, addresses ...string) (s kernelSocket) {
	t.Helper()
	w.kernel.Do(t, func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		if err != nil {
			return err
		}
		s = kernelSocket(fd)
		t.Cleanup(func() { unix.Close(fd) })
		const events = 11 // SCTP_EVENTS: what comes says its stream
		if err := s.set(events, []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			return err
		}
		return s.bind(addresses...)
	})
	return s
}

func (s kernelSocket) set(option int, value []byte) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s), unix.IPPROTO_SCTP, uintptr(option), uintptr(unsafe.Pointer(&value[0])), uintptr(len(value)), 0)
	if errno != 0 {
		return fmt.Errorf("option %d: %w", option, errno)
	}
	return nil
}

// Options of sctp.h that take lists of socket addresses.
const (
	bindAdd    = 100
	bindRemove = 101
	connectTo  = 110
)

func (s kernelSocket) bind(list ...string) error { return s.set(bindAdd, socketAddresses(list)) }

// socketAddresses are sockaddr_in6.
func socketAddresses(list []string) (b []byte) {
	for _, text := range list {
		octets := netip.MustParseAddr(text).As16()
		b = binary.NativeEndian.AppendUint16(b, unix.AF_INET6)
		b = binary.BigEndian.AppendUint16(b, kernelPort)
		b = append(b, 0, 0, 0, 0)
		b = append(b, octets[:]...)
		b = append(b, 0, 0, 0, 0)
	}
	return b
}

// echo sends each message back by the stream that it came by, until the peer shuts down.
func (s kernelSocket) echo() error {
	message, control := make([]byte, 1<<18), make([]byte, 256)
	size := 0
	for {
		n, used, flags, _, err := unix.Recvmsg(int(s), message[size:], control, 0)
		if n == 0 || err != nil {
			return err
		}
		if size += n; flags&unix.MSG_EOR == 0 {
			continue
		}
		// Of SCTP_SNDRCV the stream and the protocol identifier alone go back.
		info := control[:used]
		if len(info) < unix.CmsgLen(32) {
			return fmt.Errorf("no information on a message of %d octets", size)
		}
		data := info[unix.CmsgLen(0):]
		clear(data[2:6])
		clear(data[12:32])
		if _, err := unix.SendmsgN(int(s), message[:size], info[:unix.CmsgSpace(32)], nil, 0); err != nil {
			return err
		}
		size = 0
	}
}

// both are the addresses of one end.
func both(host string) []string { return []string{"2001:db8:1::" + host, "2001:db8:2::" + host} }

// dialKernel sets up an association from us to an echo of the kernel.
func (w *kernelWorld) dialKernel(t *testing.T) (*Conn, <-chan error) {
	t.Helper()
	s := w.socket(t, both("b")...)
	if err := unix.Listen(int(s), 1); err != nil {
		t.Fatal(err)
	}
	echoed := make(chan error, 1)
	go func() {
		fd, _, err := unix.Accept(int(s))
		if err == nil {
			err = kernelSocket(fd).echo()
			unix.Close(fd)
		}
		echoed <- err
	}()
	var c *Conn
	w.ours.Do(t, func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c, err = (&Config{UDPPort: DefaultUDPPort}).Dial(ctx, "sctp6+udp", "[2001:db8:1::b]/[2001:db8:2::b]:5000")
		return err
	})
	return c, echoed
}

// listenForKernel has the kernel set up an association, and echo.
func (w *kernelWorld) listenForKernel(t *testing.T) (*Conn, kernelSocket, <-chan error) {
	t.Helper()
	var l *Listener
	w.ours.Do(t, func() (err error) {
		l, err = Listen("sctp6+udp", "[2001:db8:1::a]/[2001:db8:2::a]:5000")
		return err
	})
	t.Cleanup(func() { l.Close() })
	s := w.socket(t, both("b")...)
	echoed := make(chan error, 1)
	go func() {
		err := s.set(connectTo, socketAddresses(both("a")))
		if err == nil {
			err = s.echo()
		}
		echoed <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := l.AcceptSCTP(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c, s, echoed
}

// exchange sends messages of many sizes by four streams, and compares what comes back. between is called half-way.
func exchange(t *testing.T, c *Conn, n int, between func()) {
	t.Helper()
	text := func(i int) []byte { return fmt.Appendf(nil, "%d %0*d", i, 1+i*997%20000, i) }
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			if i == n/2 && between != nil {
				between()
			}
			if err := c.WriteMessage(text(i), Message{Stream: uint16(i % 4), PPID: uint32(i)}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	b := make([]byte, 1<<16)
	var parts [4][]byte
	next := [4]int{0, 1, 2, 3}
	for got := 0; got < n; {
		if err := c.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		size, info, err := c.ReadMessage(b)
		if err != nil {
			t.Fatalf("%d messages have come back: %v", got, err)
		}
		s := info.Stream
		parts[s] = append(parts[s], b[:size]...)
		if !info.Last {
			continue
		}
		if want := text(next[s]); !bytes.Equal(parts[s], want) || info.PPID != uint32(next[s]) {
			t.Fatalf("stream %d: %.30q (%d octets, %d), want %.30q (%d octets)", s, parts[s], len(parts[s]), info.PPID, want, len(want))
		}
		parts[s], next[s] = parts[s][:0], next[s]+4
		got++
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// finish shuts an association down from here, and waits for the echo to end.
func finish(t *testing.T, c *Conn, echoed <-chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-echoed; err != nil {
		t.Errorf("the kernel's echo: %v", err)
	}
}

// TestKernelSCTP talks to the SCTP of the kernel, in UDP, between hosts of two addresses each: messages of four streams
// both ways, and both ends set up.
func TestKernelSCTP(t *testing.T) {
	t.Run("we set up", func(t *testing.T) {
		w := newKernelWorld(t)
		c, echoed := w.dialKernel(t)
		exchange(t, c, 200, nil)
		finish(t, c, echoed)
	})
	t.Run("the kernel sets up", func(t *testing.T) {
		w := newKernelWorld(t)
		c, _, echoed := w.listenForKernel(t)
		exchange(t, c, 200, nil)
		finish(t, c, echoed)
	})
	t.Run("the kernel shuts down", func(t *testing.T) {
		w := newKernelWorld(t)
		c, s, _ := w.listenForKernel(t)
		exchange(t, c, 10, nil)
		if err := unix.Shutdown(int(s), unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.ReadMessage(make([]byte, 100)); err != io.EOF {
			t.Errorf("the end is %v", err)
		}
	})
}

// TestKernelSCTPCut takes one of two networks away while messages travel, and brings it back.
func TestKernelSCTPCut(t *testing.T) {
	w := newKernelWorld(t)
	c, echoed := w.dialKernel(t)
	exchange(t, c, 200, func() { w.setLink(t, 1, false) })
	w.setLink(t, 1, true)
	exchange(t, c, 200, nil)
	finish(t, c, echoed)
}

// TestKernelSCTPChange has the kernel delete one of its addresses, and add it again (RFC 5061).
func TestKernelSCTPChange(t *testing.T) {
	w := newKernelWorld(t)
	c, s, echoed := w.listenForKernel(t)
	second := []string{"2001:db8:2::b"}
	exchange(t, c, 100, func() {
		if err := s.set(bindRemove, socketAddresses(second)); err != nil {
			t.Error(err)
		}
	})
	awaitHosts(t, c, 1)
	exchange(t, c, 100, func() {
		if err := s.bind(second...); err != nil {
			t.Error(err)
		}
	})
	awaitHosts(t, c, 2)
	finish(t, c, echoed)
}

// awaitHosts waits until the peer has so many addresses.
func awaitHosts(t *testing.T, c *Conn, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		hosts := c.RemoteAddr().(*Addr).Hosts
		if len(hosts) == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the peer's addresses are %v", hosts)
		}
	}
}
