// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// transports are the usual flows, one of each protocol.
var transports = []state.Transport{state.TCP, state.UDP, state.ICMP}

func usual(transport state.Transport) flow {
	return flow{transport: transport, client: clientAddr, pool: poolAddr, peer: serverAddr, poolPort: poolPort}
}

func protocolOf(t state.Transport, six bool) byte {
	switch {
	case t == state.TCP:
		return 6
	case t == state.UDP:
		return 17
	case six:
		return 58
	}
	return 1
}

// seal writes the checksum of the transport of a packet.
func seal(ip []byte) []byte {
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

// seal4 writes the checksum of an IPv4 header.
func seal4(ip []byte) []byte {
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^packet.Fold(packet.Sum(0, ip[:int(ip[0]&15)*4])))
	return ip
}

// message makes a transport message of n bytes.
func message(proto byte, n int, src, dst uint16) []byte {
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

// packet6 makes the packet of a flow's client with a message of n bytes.
func (w *natWorld) packet6(f flow, n int) []byte {
	proto := protocolOf(f.transport, true)
	ip := packet.AppendIPv6Header(nil, proto, 64, n, f.client, w.peer6(f))
	return seal(append(ip, message(proto, n, clientPort, serverPort)...))
}

// packet4 makes the packet of a flow's server, with DF.
func (w *natWorld) packet4(f flow, n int) []byte {
	proto := protocolOf(f.transport, false)
	ip := []byte{0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, proto, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+n))
	ip = append(append(ip, f.peer.AsSlice()...), f.pool.AsSlice()...)
	m := message(proto, n, serverPort, f.poolPort)
	if f.transport == state.ICMP {
		binary.BigEndian.PutUint16(m[4:], f.poolPort)
	}
	return seal4(seal(append(ip, m...)))
}

// change is what is special about a packet.
type change func(ip []byte) []byte

// put writes bytes at an offset and leaves checksums as they are.
func put(at int, b ...byte) change {
	return func(ip []byte) []byte {
		copy(ip[at:], b)
		return ip
	}
}

// header is put with the right checksum of an IPv4 header.
func header(at int, b ...byte) change {
	return func(ip []byte) []byte { return seal4(put(at, b...)(ip)) }
}

// body is put with the right checksum of the transport.
func body(at int, b ...byte) change {
	return func(ip []byte) []byte { return seal(put(at, b...)(ip)) }
}

func from6(a string) change { return body(8, netip.MustParseAddr(a).AsSlice()...) }
func to6(a string) change   { return body(24, netip.MustParseAddr(a).AsSlice()...) }
func from4(a string) change {
	return func(ip []byte) []byte { return seal4(body(12, netip.MustParseAddr(a).AsSlice()...)(ip)) }
}
func to4(a string) change {
	return func(ip []byte) []byte { return seal4(body(16, netip.MustParseAddr(a).AsSlice()...)(ip)) }
}

// half leaves the transport checksum as a sender leaves it to hardware.
func half(ip []byte) []byte {
	header, at := 20, map[byte]int{6: 16, 17: 6}[ip[9]]
	acc := packet.Sum(uint64(len(ip)-20)+uint64(ip[9]), ip[12:20])
	if ip[0]>>4 == 6 {
		header, at = 40, map[byte]int{6: 16, 17: 6}[ip[6]]
		acc = packet.Sum(uint64(len(ip)-40)+uint64(ip[6]), ip[8:40])
	}
	binary.BigEndian.PutUint16(ip[header+at:], packet.Fold(acc))
	return ip
}
