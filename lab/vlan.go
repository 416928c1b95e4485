// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// vlanTag is the length of a tag, between the addresses and the type of a frame (IEEE 802.1Q
// 9.3).
const vlanTag = 4

// auxdata is the length of struct tpacket_auxdata: status, two lengths of 32 bits, two offsets of
// 16, tag, protocol.
const auxdata = 20

// withTag returns the frame of n bytes behind the first four of b, with the tag that the kernel
// took off it, if any: it gives tags apart to packet sockets.
func withTag(b []byte, n int, oob []byte) []byte {
	data := controlMessage(oob, unix.SOL_PACKET, unix.PACKET_AUXDATA)
	if len(data) < auxdata || n < ethernetHeader {
		return b[vlanTag : vlanTag+n]
	}
	status := binary.NativeEndian.Uint32(data)
	if status&unix.TP_STATUS_VLAN_VALID == 0 {
		return b[vlanTag : vlanTag+n]
	}
	protocol := uint16(unix.ETH_P_8021Q)
	if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		protocol = binary.NativeEndian.Uint16(data[18:])
	}
	const addresses = 12
	copy(b, b[vlanTag:vlanTag+addresses])
	binary.BigEndian.PutUint16(b[addresses:], protocol)
	binary.BigEndian.PutUint16(b[addresses+2:], binary.NativeEndian.Uint16(data[16:]))
	return b[:vlanTag+n]
}
