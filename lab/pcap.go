// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"io"
	"time"
)

// Constants of the pcap file format (draft-ietf-opsawg-pcap).
const (
	pcapMagicNanoseconds = 0xa1b23c4d
	pcapMajor, pcapMinor = 2, 4
	pcapFileHeader       = 24
	pcapPacketHeader     = 16
	pcapSnapLength       = 256 << 10

	linkTypeEthernet = 1
	linkTypeRaw      = 101 // IPv4 or IPv6 without a link header, as TUN devices have
)

// appendPcapHeader appends the file header: magic(4) major(2) minor(2)
// zero(8) snap length(4) link type(4), little-endian.
func appendPcapHeader(b []byte, linkType uint32) []byte {
	b = binary.LittleEndian.AppendUint32(b, pcapMagicNanoseconds)
	b = binary.LittleEndian.AppendUint16(b, pcapMajor)
	b = binary.LittleEndian.AppendUint16(b, pcapMinor)
	b = binary.LittleEndian.AppendUint64(b, 0)
	b = binary.LittleEndian.AppendUint32(b, pcapSnapLength)
	return binary.LittleEndian.AppendUint32(b, linkType)
}

// writePcapPacket writes one packet: seconds(4) nanoseconds(4) captured(4)
// original(4) data. scratch is room for the header.
func writePcapPacket(w io.Writer, scratch []byte, at time.Time, packet []byte, original int) error {
	h := binary.LittleEndian.AppendUint32(scratch[:0], uint32(at.Unix()))
	h = binary.LittleEndian.AppendUint32(h, uint32(at.Nanosecond()))
	h = binary.LittleEndian.AppendUint32(h, uint32(len(packet)))
	h = binary.LittleEndian.AppendUint32(h, uint32(original))
	if _, err := w.Write(h); err != nil {
		return err
	}
	_, err := w.Write(packet)
	return err
}
