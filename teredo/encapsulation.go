// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Indication types: the first two bytes of each (RFC 4380 section 5.1.1).
const (
	indicationOrigin = 0x0000
	indicationAuth   = 0x0001

	originLen    = 8
	authFixedLen = 13 // type, two lengths, nonce, confirmation
)

// Auth is an authentication indication (RFC 4380 section 5.1.1):
//
//	| 00 01 | ID-len (1) | AU-len (1) | client identifier | value | nonce (8) | confirmation (1) |
type Auth struct {
	ClientID     []byte // at most 255 bytes
	Value        []byte // authentication value, at most 255 bytes
	Nonce        [8]byte
	Confirmation byte // 0 from clients; from servers 0 = key valid, else get a new key
}

// AppendTo appends the indication.
func (a *Auth) AppendTo(b []byte) []byte {
	b = append(b, 0, indicationAuth, byte(len(a.ClientID)), byte(len(a.Value)))
	b = append(b, a.ClientID...)
	b = append(b, a.Value...)
	b = append(b, a.Nonce[:]...)
	return append(b, a.Confirmation)
}

// Packet is a Teredo UDP payload taken apart. Its slices alias the payload.
type Packet struct {
	HasAuth  bool
	Auth     Auth
	Origin   netip.AddrPort // not valid when absent
	IPv6     packet.IPv6
	Trailers []byte // what follows the IPv6 packet (RFC 6081 section 4)
}

// Parse takes a UDP payload apart. At most one authentication and one origin
// indication may stand before the IPv6 packet, in that order (RFC 4380 section
// 5.1.1); bytes behind the packet are trailers (RFC 6081 section 4).
func Parse(b []byte) (p Packet, err error) {
	// Data packets carry no indication; they must not pay for them.
	if len(b) > 0 && b[0]>>4 != 6 {
		if b, err = p.parseIndications(b); err != nil {
			return Packet{}, err
		}
	}
	if len(b) < packet.IPv6HeaderLen {
		return Packet{}, FaultTruncated
	}
	if b[0]>>4 != 6 {
		return Packet{}, FaultNotIPv6
	}
	var ok bool
	if p.IPv6, p.Trailers, ok = packet.ParseIPv6(b); !ok {
		return Packet{}, FaultLength
	}
	return p, nil
}

// parseIndications reads the indications before the IPv6 packet and returns what
// follows them.
func (p *Packet) parseIndications(b []byte) ([]byte, error) {
	for len(b) >= 2 && b[0] == 0 {
		switch binary.BigEndian.Uint16(b) {
		case indicationAuth:
			if p.HasAuth || p.Origin.IsValid() {
				return nil, FaultIndicationOrder
			}
			if len(b) < authFixedLen {
				return nil, FaultTruncated
			}
			idLen, auLen := int(b[2]), int(b[3])
			n := authFixedLen + idLen + auLen
			if len(b) < n {
				return nil, FaultTruncated
			}
			p.HasAuth = true
			p.Auth = Auth{
				ClientID:     b[4 : 4+idLen : 4+idLen],
				Value:        b[4+idLen : 4+idLen+auLen : 4+idLen+auLen],
				Nonce:        [8]byte(b[n-9 : n-1]),
				Confirmation: b[n-1],
			}
			b = b[n:]
		case indicationOrigin:
			if p.Origin.IsValid() {
				return nil, FaultIndicationOrder
			}
			if len(b) < originLen {
				return nil, FaultTruncated
			}
			var ip [4]byte
			binary.BigEndian.PutUint32(ip[:], ^binary.BigEndian.Uint32(b[4:]))
			p.Origin = netip.AddrPortFrom(netip.AddrFrom4(ip), ^binary.BigEndian.Uint16(b[2:]))
			b = b[originLen:]
		default:
			return nil, FaultNotIPv6
		}
	}
	return b, nil
}
