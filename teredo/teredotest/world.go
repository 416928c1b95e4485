// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package teredotest has what the tests of Teredo's roles share: namespaces joined by
// links, and what instances in them send.
package teredotest

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// Secret is one that may be shared.
const Secret = "correct horse battery staple"

// Vain is how long a check that is to fail may wait.
const Vain = 150 * time.Millisecond

// Link joins two namespaces by a veth pair named name at both ends, which carries
// packets then.
func Link(t *testing.T, a, b *testutil.Netns, name string, addrsA []string, addrB string) {
	t.Helper()
	a.AddressesAtOnce(t)
	b.AddressesAtOnce(t)
	a.Do(t, func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(b.Handle())}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return SetUp(name, addrsA...)
	})
	b.Do(t, func() error { return SetUp(name, addrB) })
	a.AwaitLinks(t, name)
	b.AwaitLinks(t, name)
}

// SetUp gives a link addresses and sets it up.
func SetUp(link string, addrs ...string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	for _, s := range addrs {
		a, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

// FinishChecksums has packets that leave by a veth look as if they came from a wire, with
// the checksums that are otherwise left to a device: as ethtool -K tx off does.
func FinishChecksums(link string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := [2]uint32{unix.ETHTOOL_STXCSUM, 0}
	request := struct {
		name  [unix.IFNAMSIZ]byte
		value *[2]uint32
		_     [16]byte
	}{value: &value}
	copy(request.name[:], link)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}

// Route sets a route in a namespace.
func Route(t *testing.T, ns *testutil.Netns, to, gateway string, metric int) {
	t.Helper()
	ns.Do(t, func() error {
		dst, err := netlink.ParseIPNet(to)
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(gateway), Priority: metric})
	})
}

// Receive returns what the socket receives next, and from where.
func Receive(t *testing.T, conn *net.UDPConn) (teredo.Packet, netip.AddrPort) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	n, from, err := conn.ReadFromUDPAddrPort(buf)
	if err != nil {
		t.Fatal(err)
	}
	p, err := teredo.Parse(buf[:n])
	if err != nil {
		t.Fatalf("what was sent does not parse: %v", err)
	}
	return p, from
}

// File writes a file with these permissions, whatever the umask is, and returns its path.
func File(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}
