// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package fastpathtest holds what tests of the fast path and of its roles share.
package fastpathtest

import (
	"net"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Wire is a veth pair: port is in the namespace Near, the other end, host, in the
// namespace Far.
type Wire struct {
	Near, Far *testutil.Netns
}

// NewWire makes the pair, as the options say, with both ends up.
func NewWire(t *testing.T, options ...func(*netlink.Veth)) *Wire {
	t.Helper()
	w := &Wire{Near: testutil.NewNetns(t), Far: testutil.NewNetns(t)}
	w.Plug(t, options...)
	return w
}

// Plug makes the pair.
func (w *Wire) Plug(t *testing.T, options ...func(*netlink.Veth)) {
	t.Helper()
	w.Near.Do(t, func() error {
		v := &netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: "port", MTU: 1500},
			PeerName:      "host",
			PeerNamespace: netlink.NsFd(w.Far.Handle()),
		}
		for _, o := range options {
			o(v)
		}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		return Up("port")
	})
	w.Far.Do(t, func() error { return Up("host") })
}

// Up sets a link of the calling thread's namespace up.
func Up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// Show makes the far namespace one that can be found: that of a process.
func (w *Wire) Show(t *testing.T) {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	w.Far.Do(t, cmd.Start)
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// PacketSocket sends and receives frames of a link of the calling thread's
// namespace. It gives up waiting now and then.
func PacketSocket(link string) (int, error) {
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00
	device, err := net.InterfaceByName(link)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device.Index}); err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
		return -1, err
	}
	return fd, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
}
