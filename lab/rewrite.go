// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Rewriter changes a frame of a wire in its place and reports whether it did. Its length
// stays.
type Rewriter func(frame []byte) (changed bool)

// RewriteAddress puts one IPv4 address in the place of another wherever its four octets
// stand in the payload of a UDP datagram, whatever they mean there, and mends the checksum:
// so does a NAT that takes itself for the gateway of every application, and for the sake of
// which Teredo obfuscates the addresses that it tells (RFC 4380 section 5.1.1).
func RewriteAddress(from, to netip.Addr) Rewriter {
	old, fresh := from.As4(), to.As4()
	return func(frame []byte) (changed bool) {
		p, ok := transport(frame, packet.ProtoUDP)
		if !ok || len(p) < 8 || binary.BigEndian.Uint16(frame[12:]) != 0x0800 {
			return false
		}
		p = p[:max(8, min(len(p), int(binary.BigEndian.Uint16(p[4:]))))] // without padding
		sum := packet.Sum(0, p[8:])
		for rest := p[8:]; ; changed = true {
			at := bytes.Index(rest, old[:])
			if at < 0 {
				break
			}
			copy(rest[at:], fresh[:])
			rest = rest[at+len(fresh):]
		}
		if checksum := binary.BigEndian.Uint16(p[6:]); changed && checksum != 0 {
			// RFC 1624: what went is taken off and what came is added.
			mended := uint64(^checksum) + uint64(^packet.Fold(sum))
			checksum = ^packet.Fold(packet.Sum(mended, p[8:]))
			if checksum == 0 {
				checksum = 0xffff
			}
			binary.BigEndian.PutUint16(p[6:], checksum)
		}
		return changed
	}
}
