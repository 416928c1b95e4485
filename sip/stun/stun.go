// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package stun asks and answers the one request of STUN that user agents of SIP send to keep a flow
// alive, and to learn what a NAT has made of their address (RFC 8489, RFC 5626 section 4.4.2).
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
	bindingError    = 0x0111
	errorCode       = 0x0009
	unknownAttrs    = 0x000a
	mappedAddress   = 0x0020 // XOR-MAPPED-ADDRESS
	fingerprint     = 0x8028
	fingerprintXOR  = 0x5354554e
)

// IsMessage reports whether a datagram is one of STUN, not of SIP, whose messages begin with a
// letter (RFC 8489 section 5).
func IsMessage(b []byte) bool {
	return len(b) >= headerSize && b[0]&0xc0 == 0 && binary.BigEndian.Uint32(b[4:]) == cookie
}

// maxUnknown is how many attributes an error names.
const maxUnknown = 8

// AppendAnswer appends the answer to a binding request from an address: the address, or an error if the request has
// attributes that must be understood and are not (RFC 8489 section 6.3.1). Nothing if it is no such request, or a small one
// that an error would be larger than, for it goes to whoever is named as the source.
func AppendAnswer(b, request []byte, from netip.AddrPort) []byte {
	if !IsMessage(request) || binary.BigEndian.Uint16(request) != bindingRequest {
		return b
	}
	has, ok := read(request)
	if !ok {
		return b
	}
	kind := uint16(bindingResponse)
	if has.count > 0 {
		kind = bindingError
	}
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, kind)
	b = append(b, 0, 0) // the length
	b = append(b, request[4:headerSize]...)
	if has.count > 0 {
		b = appendUnknown(b, has.unknown[:has.count])
	} else {
		b = appendAddress(b, request, from)
	}
	b = finish(b, at, has.fingerprint)
	if has.count > 0 && len(b)-at > len(request) {
		return b[:at]
	}
	return b
}

// finish sets the length of the message that begins at a place, and appends the fingerprint.
func finish(b []byte, at int, withFingerprint bool) []byte {
	size := len(b) - at - headerSize
	if !withFingerprint {
		binary.BigEndian.PutUint16(b[at+2:], uint16(size))
		return b
	}
	binary.BigEndian.PutUint16(b[at+2:], uint16(size+8)) // section 14.7: with the fingerprint
	sum := checksum(b[at:])
	b = binary.BigEndian.AppendUint16(b, fingerprint)
	b = binary.BigEndian.AppendUint16(b, 4)
	return binary.BigEndian.AppendUint32(b, sum)
}

// checksum is the fingerprint of a message up to it.
func checksum(b []byte) uint32 { return crc32.ChecksumIEEE(b) ^ fingerprintXOR }

// attributes are what a request has.
type attributes struct {
	fingerprint bool
	unknown     [maxUnknown]uint16 // the first that must be understood and are not
	count       int
}

// read reads attributes. Not ok: they are malformed, or the fingerprint is not the last, or wrong (sections 6.3 and 14.7).
func read(m []byte) (has attributes, ok bool) {
	if int(binary.BigEndian.Uint16(m[2:])) != len(m)-headerSize {
		return has, false
	}
	for at := headerSize; at < len(m); {
		if len(m)-at < 4 {
			return has, false
		}
		kind, size := binary.BigEndian.Uint16(m[at:]), int(binary.BigEndian.Uint16(m[at+2:]))
		end := at + 4 + (size+3)&^3
		if end > len(m) {
			return has, false
		}
		if kind == fingerprint {
			has.fingerprint = true
			return has, size == 4 && end == len(m) && binary.BigEndian.Uint32(m[at+4:]) == checksum(m[:at])
		}
		if kind < 0x8000 && has.count < maxUnknown {
			has.unknown[has.count] = kind
			has.count++
		}
		at = end
	}
	return has, true
}

// appendUnknown appends ERROR-CODE 420, without a phrase, and UNKNOWN-ATTRIBUTES (sections 14.8 and 14.13).
func appendUnknown(b []byte, unknown []uint16) []byte {
	b = binary.BigEndian.AppendUint16(b, errorCode)
	b = append(b, 0, 4, 0, 0, 4, 20)
	b = binary.BigEndian.AppendUint16(b, unknownAttrs)
	b = binary.BigEndian.AppendUint16(b, uint16(2*len(unknown)))
	for _, kind := range unknown {
		b = binary.BigEndian.AppendUint16(b, kind)
	}
	if len(unknown)%2 == 1 {
		b = append(b, 0, 0)
	}
	return b
}

// appendAddress appends XOR-MAPPED-ADDRESS (section 14.2).
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
