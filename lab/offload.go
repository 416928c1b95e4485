// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offload is a feature of an interface, with the commands that ask for it and
// set it.
type offload struct {
	name     string
	get, set uint32
}

// offloads are the features that a wire switches off at both ends: with them
// frames larger than the MTU and without checksums would cross it. Segmentation and
// joining come first.
var offloads = []offload{
	{"tso", unix.ETHTOOL_GTSO, unix.ETHTOOL_STSO},
	{"gso", unix.ETHTOOL_GGSO, unix.ETHTOOL_SGSO},
	{"gro", unix.ETHTOOL_GGRO, unix.ETHTOOL_SGRO},
	{"tx checksum", unix.ETHTOOL_GTXCSUM, unix.ETHTOOL_STXCSUM},
	{"rx checksum", unix.ETHTOOL_GRXCSUM, unix.ETHTOOL_SRXCSUM},
	{"scatter-gather", unix.ETHTOOL_GSG, unix.ETHTOOL_SSG},
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
func (n *Node) DisableOffloads(iface string) error { return n.disable(iface, offloads) }

// DisableSegmentation switches off segmentation offload of an interface alone, so that
// its far end receives each packet by itself. Checksums are still left to the hardware.
func (n *Node) DisableSegmentation(iface string) error { return n.disable(iface, offloads[:3]) }

func (n *Node) disable(iface string, list []offload) error {
	return n.Do(func() error {
		for _, o := range list {
			// A program at the far end may have taken a feature away; the kernel
			// refuses to switch off what is not there.
			if on, err := ethtool(iface, ethtoolValue{command: o.get}); err == nil && on == 0 {
				continue
			}
			if _, err := ethtool(iface, ethtoolValue{command: o.set}); err != nil {
				return fmt.Errorf("cannot switch off %s of %s in node %s: %w", o.name, iface, n.name, err)
			}
		}
		return nil
	})
}

// EnableGRO switches on generic receive offload of an interface. On a virtual
// Ethernet link it also makes the interface take frames that XDP redirects to its
// far end.
func (n *Node) EnableGRO(iface string) error {
	return n.Do(func() error {
		if _, err := ethtool(iface, ethtoolValue{command: unix.ETHTOOL_SGRO, data: 1}); err != nil {
			return fmt.Errorf("cannot switch on GRO of %s in node %s: %w", iface, n.name, err)
		}
		return nil
	})
}

// Offloads says which segmentation and checksum offloads of an interface are on,
// in one line for a report.
func (n *Node) Offloads(iface string) (string, error) {
	var states []string
	err := n.Do(func() error {
		for _, o := range offloads {
			value, err := ethtool(iface, ethtoolValue{command: o.get})
			if err != nil {
				return fmt.Errorf("cannot determine whether %s of %s in node %s is on: %w", o.name, iface, n.name, err)
			}
			state := "off"
			if value != 0 {
				state = "on"
			}
			states = append(states, o.name+" "+state)
		}
		return nil
	})
	return strings.Join(states, ", "), err
}

// ethtool sends one command about an interface of the present namespace and
// returns the value that the kernel leaves.
func ethtool(iface string, value ethtoolValue) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	request := ifreqPointer{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], iface)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		return 0, errno
	}
	return value.data, nil
}
