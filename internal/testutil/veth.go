// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReceiveByNAPI switches GRO on or off at a veth; without it, it drops what XDP redirects
// into its other end.
func ReceiveByNAPI(name string, on bool) error {
	return setFeature(name, 0x2c, on) // ETHTOOL_SGRO
}

// ChecksumByDevice switches on or off that packets sent by a veth leave their checksums to its far end.
func ChecksumByDevice(name string, on bool) error {
	return setFeature(name, 0x17, on) // ETHTOOL_STXCSUM
}

// setFeature has a command of ethtool set a value.
func setFeature(name string, command uint32, on bool) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{command: command}
	if on {
		value.data = 1
	}
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(request.name[:], name)
	request.data = unsafe.Pointer(&value)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return errno
	}
	return nil
}
