// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// vnetHdrLen is the length of struct virtio_net_hdr, which precedes each packet
// of a TUN with offloads:
//
//	0: flags  1: gso_type  2: hdr_len  4: gso_size  6: csum_start  8: csum_offset
//
// 16-bit fields are in host order.
const vnetHdrLen = 10

// Offsets in the transport headers.
const (
	tcpSeqOff, tcpDataOff, tcpFlagsOff, tcpSumOff = 4, 12, 13, 16
	udpLenOff, udpSumOff                          = 4, 6
)

// Flags of the TCP header.
const (
	tcpFIN, tcpPSH, tcpACK, tcpCWR = 0x01, 0x08, 0x10, 0x80
)

// superpacket is a read that still holds packets to hand out: what the host's
// stack sent in one piece for the device to segment (TSO, USO).
type superpacket struct {
	data      []byte // headers and all payload; nil when nothing is left
	ipv4      bool
	transport int    // offset of the TCP or UDP header
	headers   int    // length of all headers
	segment   int    // payload bytes of each packet but the last
	next      int    // offset of the first payload byte not handed out
	sum       uint64 // pseudo-header sum without the length
	sumOff    int    // offset of the checksum in the transport header
}

// parse takes in what was read behind the virtio header. It returns the packet
// itself when it is a single one, its checksum completed.
func (s *superpacket) parse(hdr, data []byte) (single []byte, ok bool) {
	gso := hdr[1] &^ unix.VIRTIO_NET_HDR_GSO_ECN
	start := int(binary.NativeEndian.Uint16(hdr[6:]))
	offset := int(binary.NativeEndian.Uint16(hdr[8:]))
	needsSum := hdr[0]&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM != 0
	if needsSum && start+offset+2 > len(data) {
		return nil, false
	}
	if gso == unix.VIRTIO_NET_HDR_GSO_NONE {
		if needsSum {
			putSum(data, start+offset, packet.Sum(0, data[start:]))
		}
		return data, true
	}
	if ip := headerLen(data); !needsSum || ip == 0 || start < ip {
		return nil, false
	}
	*s = superpacket{
		ipv4:      data[0]>>4 == 4,
		transport: start,
		segment:   int(binary.NativeEndian.Uint16(hdr[4:])),
		sumOff:    offset,
	}
	switch gso {
	case unix.VIRTIO_NET_HDR_GSO_TCPV4, unix.VIRTIO_NET_HDR_GSO_TCPV6:
		if s.ipv4 != (gso == unix.VIRTIO_NET_HDR_GSO_TCPV4) || len(data) < start+20 || offset != tcpSumOff {
			return nil, false
		}
		words := int(data[start+tcpDataOff] >> 4)
		if words < 5 {
			return nil, false
		}
		s.headers = start + words*4
	case unix.VIRTIO_NET_HDR_GSO_UDP_L4:
		if offset != udpSumOff {
			return nil, false
		}
		s.headers = start + packet.UDPHeaderLen
	default:
		return nil, false
	}
	if s.segment == 0 || s.headers >= len(data) {
		return nil, false
	}
	// The checksum field holds the pseudo-header's sum with the length of the
	// whole; that length is taken out again (RFC 1624).
	field := data[start+offset:]
	s.sum = uint64(binary.BigEndian.Uint16(field)) + uint64(^uint16(len(data)-start))
	field[0], field[1] = 0, 0
	s.data, s.next = data, s.headers
	return nil, true
}

// hand writes the next packet into buf and returns its length; 0 means that
// the packet does not fit and the whole superpacket is given up.
func (s *superpacket) hand(buf []byte) int {
	payload := s.data[s.next:min(s.next+s.segment, len(s.data))]
	n := s.headers + len(payload)
	if n > len(buf) {
		s.data = nil
		return 0
	}
	p := buf[:n]
	copy(p, s.data[:s.headers])
	copy(p[s.headers:], payload)
	first, last := s.next == s.headers, s.next+len(payload) == len(s.data)
	if s.ipv4 {
		s.handIPv4(p)
	} else {
		binary.BigEndian.PutUint16(p[4:], uint16(n-packet.IPv6HeaderLen))
	}
	t := p[s.transport:]
	if s.sumOff == tcpSumOff {
		seq := binary.BigEndian.Uint32(t[tcpSeqOff:]) + uint32(s.next-s.headers)
		binary.BigEndian.PutUint32(t[tcpSeqOff:], seq)
		if !first {
			t[tcpFlagsOff] &^= tcpCWR
		}
		if !last {
			t[tcpFlagsOff] &^= tcpFIN | tcpPSH
		}
	} else {
		binary.BigEndian.PutUint16(t[udpLenOff:], uint16(len(t)))
	}
	putSum(t, s.sumOff, packet.Sum(s.sum+uint64(len(t)), t))
	s.next += len(payload)
	if last {
		s.data = nil
	}
	return n
}

// handIPv4 writes what differs in the IPv4 header of each packet: the length, the
// identification, counted up as the kernel would, and the checksum.
func (s *superpacket) handIPv4(p []byte) {
	binary.BigEndian.PutUint16(p[ipv4LenOff:], uint16(len(p)))
	id := binary.BigEndian.Uint16(p[ipv4IDOff:]) + uint16((s.next-s.headers)/s.segment)
	binary.BigEndian.PutUint16(p[ipv4IDOff:], id)
	fillIPv4Sum(p[:headerLen(p)])
}

// putSum stores the complement of a sum. Zero is written as 0xffff, its equal
// in one's complement, because UDP keeps zero for "no checksum".
func putSum(b []byte, at int, sum uint64) {
	c := ^packet.Fold(sum)
	if c == 0 {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(b[at:], c)
}
