// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Sizes and numbers of packets.
const (
	// Protocol is SCTP's number in IP (RFC 9260 section 14).
	Protocol = 132
	// EncapsulationPort is that of UDP by which packets may travel (RFC 6951 section 3).
	EncapsulationPort = 9899
	// HeaderSize is the common header's, in octets.
	HeaderSize = 12

	tagAt      = 4
	checksumAt = 8
)

// What is wrong with a packet as a whole.
var (
	ErrShort    = errors.New("the packet is shorter than the common header")
	ErrChecksum = errors.New("the packet's checksum is wrong")
	ErrLength   = errors.New("a length is shorter than what it counts, or longer than what there is")
)

// Header is the common header (RFC 9260 section 3.1):
//
//	| source port (2) | destination port (2) | verification tag (4) | CRC32c (4) |
type Header struct {
	Source, Destination uint16
	Tag                 uint32
}

// Open checks length and checksum of a packet. It returns its header and the chunks.
func Open(packet []byte) (h Header, chunks []byte, err error) {
	if len(packet) < HeaderSize {
		return h, nil, ErrShort
	}
	h = Header{binary.BigEndian.Uint16(packet), binary.BigEndian.Uint16(packet[2:]), binary.BigEndian.Uint32(packet[tagAt:])}
	if binary.LittleEndian.Uint32(packet[checksumAt:]) != checksum(packet) {
		return h, nil, ErrChecksum
	}
	return h, packet[HeaderSize:], nil
}

// Begin appends a header without a checksum, which [Seal] fills in.
func Begin(b []byte, h Header) []byte {
	b = binary.BigEndian.AppendUint16(b, h.Source)
	b = binary.BigEndian.AppendUint16(b, h.Destination)
	b = binary.BigEndian.AppendUint32(b, h.Tag)
	return append(b, 0, 0, 0, 0)
}

// Seal writes the checksum of a whole packet into it. Sealed again after a change it is right again.
func Seal(packet []byte) {
	binary.LittleEndian.PutUint32(packet[checksumAt:], checksum(packet))
}

// zeros stand for the checksum while it is computed.
var zeros [HeaderSize - checksumAt]byte

// checksum is CRC32c over a packet whose checksum is zero. The polynomial's remainder is sent with its lowest
// octet first (RFC 9260 appendix A).
func checksum(packet []byte) uint32 {
	castagnoli := crc32.MakeTable(crc32.Castagnoli) // RFC 9260 appendix A; made once
	sum := crc32.Update(0, castagnoli, packet[:checksumAt])
	sum = crc32.Update(sum, castagnoli, zeros[:])
	return crc32.Update(sum, castagnoli, packet[HeaderSize:])
}
