// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package stun asks and answers the one request of STUN that user agents of SIP send to keep a flow
// alive, and to learn what a NAT has made of their address (RFC 5389, RFC 5626 section 4.4.2).
//
//house:codec
package stun

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

const (
	headerSize = 20
	cookie     = 0x2112a442

	bindingRequest  = 0x0001
	bindingResponse = 0x0101
	mappedAddress   = 0x0020 // XOR-MAPPED-ADDRESS
	fingerprint     = 0x8028
	fingerprintXOR  = 0x5354554e
)

// IsMessage reports whether a datagram is one of STUN, not of SIP, whose messages begin with a
// letter (RFC 5389 section 6).
func IsMessage(b []byte) bool {
	return len(b) >= headerSize && b[0]&0xc0 == 0 && binary.BigEndian.Uint32(b[4:]) == cookie
}

// AppendAnswer appends the answer to a binding request from an address; nothing if it is no such
// request, or one that wants more than is known here.
func AppendAnswer(b, request []byte, from netip.AddrPort) []byte {
	if !IsMessage(request) || binary.BigEndian.Uint16(request) != bindingRequest {
		return b
	}
	wanted, ok := wantsFingerprint(request[headerSize:])
	if !ok || int(binary.BigEndian.Uint16(request[2:])) != len(request)-headerSize {
		return b
	}
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, bindingResponse)
	b = append(b, 0, 0) // the length
	b = append(b, request[4:headerSize]...)
	b = appendAddress(b, request, from)
	if !wanted {
		binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at-headerSize))
		return b
	}
	binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at-headerSize+8)) // section 15.5: with the fingerprint
	sum := crc32.ChecksumIEEE(b[at:]) ^ fingerprintXOR
	b = binary.BigEndian.AppendUint16(b, fingerprint)
	b = binary.BigEndian.AppendUint16(b, 4)
	return binary.BigEndian.AppendUint32(b, sum)
}

// wantsFingerprint reads attributes. Not ok: they are malformed, or one must be understood and is
// not (section 7.3.1).
func wantsFingerprint(b []byte) (wanted, ok bool) {
	for len(b) > 0 {
		if len(b) < 4 {
			return false, false
		}
		kind, size := binary.BigEndian.Uint16(b), (int(binary.BigEndian.Uint16(b[2:]))+3)&^3
		if kind < 0x8000 || len(b) < 4+size {
			return false, false
		}
		wanted = wanted || kind == fingerprint
		b = b[4+size:]
	}
	return wanted, true
}

// appendAddress appends XOR-MAPPED-ADDRESS (section 15.2).
func appendAddress(b, request []byte, from netip.AddrPort) []byte {
	address := from.Addr().Unmap().AsSlice()
	family := byte(1)
	if len(address) == 16 {
		family = 2
	}
	b = binary.BigEndian.AppendUint16(b, mappedAddress)
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(address)))
	b = append(b, 0, family)
	b = binary.BigEndian.AppendUint16(b, from.Port()^cookie>>16)
	for i, octet := range address {
		b = append(b, octet^request[4+i]) // the cookie, and of IPv6 the transaction
	}
	return b
}

// AppendRequest appends a binding request.
func AppendRequest(b []byte, transaction [12]byte) []byte {
	b = binary.BigEndian.AppendUint16(b, bindingRequest)
	b = append(b, 0, 0) // no attributes
	b = binary.BigEndian.AppendUint32(b, cookie)
	return append(b, transaction[:]...)
}

// Mapped reports whether a message is the answer to a binding request, and which address that came
// from, as its receiver saw it; not valid if the answer does not say.
func Mapped(b []byte, transaction [12]byte) (at netip.AddrPort, ok bool) {
	if !IsMessage(b) || binary.BigEndian.Uint16(b) != bindingResponse || [12]byte(b[8:headerSize]) != transaction {
		return at, false
	}
	for a := b[headerSize:]; len(a) >= 4; {
		kind, n := binary.BigEndian.Uint16(a), int(binary.BigEndian.Uint16(a[2:]))
		if len(a) < 4+n {
			break
		}
		if v := a[4 : 4+n]; kind == mappedAddress && (n == 8 || n == 20) {
			var key [16]byte
			copy(key[:], b[4:headerSize])
			for i := range v[4:] {
				key[i] ^= v[4+i]
			}
			address, _ := netip.AddrFromSlice(key[:n-4])
			return netip.AddrPortFrom(address, binary.BigEndian.Uint16(v[2:])^cookie>>16), true
		}
		a = a[min(len(a), 4+(n+3)&^3):]
	}
	return at, true
}
