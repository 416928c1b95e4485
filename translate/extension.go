// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// minExtended is the least length of the quoted packet where an extension follows
// (RFC 4884 section 4).
const minExtended = 128

// splitError splits an ICMP error behind its first 8 octets into the quoted packet and
// the extension (RFC 4884 section 4). length is the length attribute in octets; 0 says
// that there is no extension (section 5.4).
func splitError(m []byte, length int) (quote, extension []byte, r Reason) {
	body := m[icmpHeaderLen:]
	switch {
	case length == 0:
		return body, nil, ReasonNone
	case length > len(body):
		return nil, nil, ReasonICMPExtension
	}
	return body[:length], body[length:], ReasonNone
}

// zeros pads quoted packets.
var zeros [minExtended]byte

// finishError brings the message b, whose quoted packet starts at quote, to at most
// limit octets and appends the extension. Where both do not fit the quoted packet is
// cut, down to 128 octets, and then the extension (RFC 7915 section 4.2). The quoted
// packet is padded to a multiple of unit; length is the attribute in such units, 0
// without an extension.
func finishError(b []byte, quote, limit, unit int, extension []byte) (out []byte, length uint8) {
	if most := limit - quote - minExtended; len(extension) > most {
		extension = extension[:most&^3]
	}
	if len(extension) == 0 {
		return b[:min(len(b), limit)], 0
	}
	room := min((limit-quote-len(extension))/unit, 255) * unit
	n := min(len(b)-quote, room)
	padded := max(minExtended, (n+unit-1)/unit*unit)
	b = append(b[:quote+n], zeros[:min(padded-n, minExtended)]...)
	return append(b, extension...), uint8(padded / unit)
}

// Numbers of the Interface Information Object (RFC 5837 sections 4.1, 4.2).
const (
	extensionVersion = 2 << 4 // RFC 4884 section 7
	interfaceClass   = 2
	incomingAddress  = 0x04 // role 0, the incoming interface, with an address
	afiIPv6          = 2

	extensionHeaderLen = 4
	objectHeaderLen    = 4
	addressObjectLen   = objectHeaderLen + 4 + 16
)

// appendInterfaceObject returns the extension with an Interface Information Object that
// holds the IPv6 source of the error (RFC 6791 section 4). An extension that cannot be
// read, or that names its incoming interface already, is returned as it is.
func appendInterfaceObject(out *packet.Batch, extension []byte, src *[16]byte) []byte {
	if len(extension) != 0 && !takesObject(extension) {
		return extension
	}
	b := append(out.Alloc(extensionHeaderLen+len(extension)+addressObjectLen), extension...)
	signed := true
	if len(b) == 0 {
		b = append(b, extensionVersion, 0, 0, 0)
	} else {
		signed = b[2]|b[3] != 0 // RFC 4884 section 7: zero is no checksum
	}
	b = append(b, 0, addressObjectLen, interfaceClass, incomingAddress, 0, afiIPv6, 0, 0)
	b = append(b, src[:]...)
	if signed {
		b[2], b[3] = 0, 0
		fill(b[2:4], 0, b)
	}
	return b
}

// takesObject reports whether an extension is sound and has no object about the
// incoming interface, of which there may be one (RFC 5837 section 4.5).
func takesObject(extension []byte) bool {
	if len(extension) < extensionHeaderLen || extension[0]>>4 != extensionVersion>>4 {
		return false
	}
	if extension[2]|extension[3] != 0 && packet.Fold(packet.Sum(0, extension)) != 0xffff {
		return false
	}
	for rest := extension[extensionHeaderLen:]; len(rest) > 0; {
		if len(rest) < objectHeaderLen {
			return false
		}
		n := int(binary.BigEndian.Uint16(rest))
		incoming := rest[2] == interfaceClass && rest[3]>>6 == 0
		if n < objectHeaderLen || n > len(rest) || n%4 != 0 || incoming {
			return false
		}
		rest = rest[n:]
	}
	return true
}
