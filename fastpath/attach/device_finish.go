// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package attach

import "golang.org/x/sys/unix"

// FinishesPackets reports whether packets leave by a device with all their checksums,
// and so cut into segments. Where a device leaves that to hardware, and there is
// none, as behind a veth, only another kernel can make sense of what is in a tunnel.
func FinishesPackets(name string) bool {
	fd, err := ethtoolSocket()
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	offloaded, err := ethtool(fd, name, ethtoolChecksum, 0)
	return err == nil && offloaded == 0
}
