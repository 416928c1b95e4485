// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offloads are the features that a wire switches off at both ends: with them
// frames larger than the MTU and without checksums would cross it.
var offloads = []uint32{
	unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_SGRO, unix.ETHTOOL_STXCSUM, unix.ETHTOOL_SRXCSUM, unix.ETHTOOL_SSG,
}

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct{ command, data uint32 }

// ifreqPointer is struct ifreq of linux/if.h with ifr_data: 16 bytes of name
// and a union of 24.
type ifreqPointer struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

// DisableOffloads switches off segmentation and checksum offload of an interface,
// so that what its far end receives is what a wire would carry.
func (n *Node) DisableOffloads(iface string) error { return n.offload(iface, 0, offloads...) }

// EnableGRO switches on generic receive offload of an interface. On a virtual
// Ethernet link it also makes the interface take frames that XDP redirects to its
// far end.
func (n *Node) EnableGRO(iface string) error { return n.offload(iface, 1, unix.ETHTOOL_SGRO) }

// offload sets features of an interface.
func (n *Node) offload(iface string, on uint32, commands ...uint32) error {
	return n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, command := range commands {
			value := ethtoolValue{command: command, data: on}
			request := ifreqPointer{data: unsafe.Pointer(&value)}
			copy(request.name[:unix.IFNAMSIZ-1], iface)
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
			runtime.KeepAlive(&value)
			if errno != 0 {
				return fmt.Errorf("cannot set offload %#x of %s in node %s to %d: %w", command, iface, n.name, on, errno)
			}
		}
		return nil
	})
}
