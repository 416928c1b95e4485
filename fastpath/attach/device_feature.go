// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The generic netlink family "netdev" (Linux 6.3, uapi/linux/netdev.h).
const (
	netdevFamily      = "netdev"
	netdevGet         = 1 // NETDEV_CMD_DEV_GET
	netdevIndex       = 1 // NETDEV_A_DEV_IFINDEX
	netdevXDPFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES

	xdpNeeded    = 1<<0 | 1<<1 // NETDEV_XDP_ACT_BASIC, NETDEV_XDP_ACT_REDIRECT
	xdpTransmit  = 1 << 2      // NETDEV_XDP_ACT_NDO_XMIT
	xdpFragments = 1 << 5      // NETDEV_XDP_ACT_RX_SG
)

// Requests of the ethtool interface that x/sys has no function for; both answer
// 0 or 1 (uapi/linux/ethtool.h).
const (
	ethtoolChecksum = 0x16 // ETHTOOL_GTXCSUM
	ethtoolGRO      = 0x2b // ETHTOOL_GGRO
)

// xdpFeatures returns what the driver says that it can do with XDP; ok is false
// for a kernel that does not tell.
func xdpFeatures(index int) (features uint64, ok bool) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if err != nil {
		return 0, false
	}
	req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	req.AddData(genericHeader{netdevGet, 1})
	req.AddData(nl.NewRtAttr(netdevIndex, nl.Uint32Attr(uint32(index))))
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, false
	}
	for _, m := range answers {
		if len(m) < nl.SizeofGenlmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			continue
		}
		for _, a := range attrs {
			if a.Attr.Type&nl.NLA_TYPE_MASK == netdevXDPFeatures && len(a.Value) >= 8 {
				return binary.NativeEndian.Uint64(a.Value), true
			}
		}
	}
	return 0, false
}

// genericHeader is struct genlmsghdr: command, version and two bytes that must be
// zero. The one of the netlink package ends before those two and sends what
// happens to lie behind it.
type genericHeader [nl.SizeofGenlmsg]byte

// Len returns the size in bytes.
func (genericHeader) Len() int { return nl.SizeofGenlmsg }

// Serialize returns the bytes.
func (h genericHeader) Serialize() []byte { return h[:] }

// driverOf returns the name of a device's driver, empty if it has none.
func driverOf(name string) string {
	fd, err := ethtoolSocket()
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

func ethtoolSocket() (int, error) {
	return unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
}

// ethtool makes a request that takes and gives one number.
func ethtool(fd int, name string, request, data uint32) (uint32, error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	value := struct{ request, data uint32 }{request, data}
	// The layout of struct ifreq whose union holds a pointer, which x/sys keeps
	// to itself.
	arg := struct {
		name    [unix.IFNAMSIZ]byte
		pointer unsafe.Pointer
		_       [16]byte
	}{pointer: unsafe.Pointer(&value)}
	copy(arg.name[:], ifr.Name())
	if _, _, errno := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		return 0, errno
	}
	return value.data, nil
}
