// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"encoding/binary"
	"net/netip"
)

// Flags is the 16-bit flags field of a Teredo address, "CzRRRRUGRRRRRRRR" from
// the most significant bit (RFC 5991 section 3.1).
type Flags uint16

// Bits of Flags.
const (
	FlagCone      Flags = 0x8000 // behind a cone NAT; new clients send 0 (RFC 5991 section 3.2)
	FlagReserved  Flags = 0x4000 // z: send 0, ignore
	FlagUniversal Flags = 0x0200 // U: send 0
	FlagGroup     Flags = 0x0100 // G: send 0

	// FlagsRandom are the 12 bits to fill from a cryptographic source (RFC 5991
	// section 3.1).
	FlagsRandom Flags = 0x3cff
)

// Cone reports whether the cone bit is set.
func (f Flags) Cone() bool { return f&FlagCone != 0 }

// Random returns the 12 random bits as one number.
func (f Flags) Random() uint16 { return uint16(f>>10&0x0f)<<8 | uint16(f&0xff) }

// Addr is a Teredo IPv6 address taken apart (RFC 4380 section 4, figure):
//
//	| prefix (32) | server IPv4 (32) | flags (16) | ~port (16) | ~IPv4 (32) |
type Addr struct {
	Prefix netip.Prefix   // service prefix, /32
	Server netip.Addr     // IPv4 address of the client's server
	Flags  Flags          // cone and random bits
	Mapped netip.AddrPort // the client's IPv4 address and port as its NAT shows them
}

// ParseAddr takes apart an address below one of the service prefixes. An address
// below none of them is a FaultNotTeredo.
func ParseAddr(a netip.Addr, prefixes ...netip.Prefix) (Addr, error) {
	for _, p := range prefixes {
		if p.Contains(a) {
			b := a.As16()
			return Addr{Prefix: p, Server: Server(&b), Flags: FlagsOf(&b), Mapped: Mapped(&b)}, nil
		}
	}
	return Addr{}, FaultNotTeredo
}

// IP puts the address together. Server and Mapped must be IPv4.
func (a Addr) IP() netip.Addr {
	var b [16]byte
	p := a.Prefix.Addr().As16()
	copy(b[:4], p[:4])
	s := a.Server.As4()
	copy(b[4:8], s[:])
	putIdentifier(&b, a.Flags, a.Mapped)
	return netip.AddrFrom16(b)
}

// LinkLocal returns fe80::/64 with the same 64-bit identifier: the address that a
// client or server uses in solicitations and advertisements (RFC 4380 section 4).
func LinkLocal(f Flags, mapped netip.AddrPort) netip.Addr {
	b := [16]byte{0: 0xfe, 1: 0x80}
	putIdentifier(&b, f, mapped)
	return netip.AddrFrom16(b)
}

func putIdentifier(b *[16]byte, f Flags, mapped netip.AddrPort) {
	binary.BigEndian.PutUint16(b[8:], uint16(f))
	binary.BigEndian.PutUint16(b[10:], ^mapped.Port())
	ip := mapped.Addr().As4()
	binary.BigEndian.PutUint32(b[12:], ^binary.BigEndian.Uint32(ip[:]))
}

// Server returns the server's IPv4 address in bits 32 to 63 of a Teredo address.
func Server(b *[16]byte) netip.Addr { return netip.AddrFrom4([4]byte(b[4:8])) }

// FlagsOf returns the flags of a Teredo address or Teredo link-local address.
func FlagsOf(b *[16]byte) Flags { return Flags(binary.BigEndian.Uint16(b[8:])) }

// Mapped returns the mapped IPv4 address and port of a Teredo address, inverted
// back (RFC 4380 section 4).
func Mapped(b *[16]byte) netip.AddrPort {
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], ^binary.BigEndian.Uint32(b[12:]))
	return netip.AddrPortFrom(netip.AddrFrom4(ip), ^binary.BigEndian.Uint16(b[10:]))
}

// AppendOrigin appends an origin indication: 00 00, then the port and the
// address, both inverted (RFC 4380 section 5.1.1).
func AppendOrigin(b []byte, origin netip.AddrPort) []byte {
	ip := origin.Addr().As4()
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, ^origin.Port())
	return binary.BigEndian.AppendUint32(b, ^binary.BigEndian.Uint32(ip[:]))
}
