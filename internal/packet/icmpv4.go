// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"net/netip"
)

// ProtoICMPv4 is the protocol number of ICMP for IPv4 (RFC 792).
const ProtoICMPv4 = 1

// icmpv4Most is how long an ICMP error may be (RFC 1812 section 4.3.2.3).
const icmpv4Most = 576

// AppendICMPv4Error appends an ICMP error about the IPv4 packet cause, sent from src to
// cause's source, which is 576 octets at most (RFC 1812 section 4.3.2.3). param is the
// second word of the message: the MTU for code 4 of Destination Unreachable (RFC 1191
// section 4), else 0. id identifies the packet; one with 0 is not to be cut (RFC 6864 section
// 4.1). It appends nothing when no error may be sent about cause; see
// [MayAnswerIPv4WithError]. The header of cause is whole.
func AppendICMPv4Error(b []byte, src netip.Addr, id uint16, typ, code byte, param uint32, cause []byte) []byte {
	if !MayAnswerIPv4WithError(cause) {
		return b
	}
	quote := cause[:min(len(cause), icmpv4Most-IPv4HeaderLen-8)]
	start, from := len(b), src.As4()
	b = append(b, 0x45, 0xc0) // precedence of network control (RFC 1812 section 4.3.2.5)
	b = binary.BigEndian.AppendUint16(b, uint16(IPv4HeaderLen+8+len(quote)))
	flags := uint16(0)
	if id == 0 {
		flags = DontFragment
	}
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, id), flags)
	b = append(b, 64, ProtoICMPv4, 0, 0)
	b = append(append(b, from[:]...), cause[12:16]...)
	b = append(b, typ, code, 0, 0)
	b = append(binary.BigEndian.AppendUint32(b, param), quote...)
	header, message := b[start:start+IPv4HeaderLen], b[start+IPv4HeaderLen:]
	binary.BigEndian.PutUint16(header[10:], ^Fold(Sum(0, header)))
	binary.BigEndian.PutUint16(message[2:], ^Fold(Sum(0, message)))
	return b
}

// MayAnswerIPv4WithError reports whether an ICMP error may be sent about an IPv4 packet (RFC
// 1812 section 4.3.2.7): not about an ICMP error, nor a fragment that is not the first, nor
// when source or destination is no single host.
func MayAnswerIPv4WithError(p []byte) bool {
	head := int(p[0]&0xf) * 4
	src, dst := netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
	single := func(a netip.Addr) bool {
		return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a.As4()[0] < 240
	}
	if binary.BigEndian.Uint16(p[6:])&offsetMask != 0 || !single(src) || !single(dst) {
		return false
	}
	if p[9] != ProtoICMPv4 {
		return true
	}
	// Errors are types 3, 4, 5, 11 and 12; all others ask or answer (RFC 1122 section 3.2.2).
	const errors = 1<<3 | 1<<4 | 1<<5 | 1<<11 | 1<<12
	return len(p) > head && (p[head] > 31 || errors&(1<<p[head]) == 0)
}
