// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translatebpftest

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Seal writes the checksum of the transport of a packet.
func Seal(ip []byte) []byte {
	header, src, proto := 20, ip[12:20], ip[9]
	if ip[0]>>4 == 6 {
		header, src, proto = 40, ip[8:40], ip[6]
	}
	m := ip[header:]
	at := map[byte]int{6: 16, 17: 6}[proto]
	var acc uint64
	if proto != 1 {
		acc = packet.Sum(uint64(len(m))+uint64(proto), src)
	}
	if at == 0 {
		at = 2
	}
	if len(m) < at+2 {
		return ip
	}
	m[at], m[at+1] = 0, 0
	sum := ^packet.Fold(packet.Sum(acc, m))
	if proto == 17 && sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(m[at:], sum)
	return ip
}

// Seal4 writes the checksum of an IPv4 header.
func Seal4(ip []byte) []byte {
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^packet.Fold(packet.Sum(0, ip[:int(ip[0]&15)*4])))
	return ip
}

// Message makes a transport message of n bytes.
func Message(proto byte, n int, src, dst uint16) []byte {
	m := make([]byte, n)
	for i := range m {
		m[i] = byte(i*7 + n)
	}
	switch proto {
	case 6:
		m[12], m[13] = 5<<4, 0x10
	case 17:
		binary.BigEndian.PutUint16(m[4:], uint16(n))
	default:
		m[0], m[1] = 8, 0
		if proto == 58 {
			m[0] = 128
		}
		binary.BigEndian.PutUint16(m[4:], src)
		return m
	}
	binary.BigEndian.PutUint16(m, src)
	binary.BigEndian.PutUint16(m[2:], dst)
	return m
}

// Change is what is special about a packet.
type Change func(ip []byte) []byte

// Put writes bytes at an offset and leaves checksums as they are.
func Put(at int, b ...byte) Change {
	return func(ip []byte) []byte {
		copy(ip[at:], b)
		return ip
	}
}

// Header is put with the right checksum of an IPv4 header.
func Header(at int, b ...byte) Change {
	return func(ip []byte) []byte { return Seal4(Put(at, b...)(ip)) }
}

// Body is put with the right checksum of the transport.
func Body(at int, b ...byte) Change {
	return func(ip []byte) []byte { return Seal(Put(at, b...)(ip)) }
}

func From6(a string) Change { return Body(8, netip.MustParseAddr(a).AsSlice()...) }
func To6(a string) Change   { return Body(24, netip.MustParseAddr(a).AsSlice()...) }
func From4(a string) Change {
	return func(ip []byte) []byte { return Seal4(Body(12, netip.MustParseAddr(a).AsSlice()...)(ip)) }
}
func To4(a string) Change {
	return func(ip []byte) []byte { return Seal4(Body(16, netip.MustParseAddr(a).AsSlice()...)(ip)) }
}

// Half leaves the transport checksum as a sender leaves it to hardware.
func Half(ip []byte) []byte {
	header, at := 20, map[byte]int{6: 16, 17: 6}[ip[9]]
	acc := packet.Sum(uint64(len(ip)-20)+uint64(ip[9]), ip[12:20])
	if ip[0]>>4 == 6 {
		header, at = 40, map[byte]int{6: 16, 17: 6}[ip[6]]
		acc = packet.Sum(uint64(len(ip)-40)+uint64(ip[6]), ip[8:40])
	}
	binary.BigEndian.PutUint16(ip[header+at:], packet.Fold(acc))
	return ip
}
