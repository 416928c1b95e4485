// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// header4 is a parsed IPv4 header (RFC 791 section 3.1) over its packet.
type header4 struct {
	packet   []byte // header, and what is there of the payload
	size     int    // of the header, with options
	total    int    // total length field
	tos, ttl uint8
	proto    uint8
	id       uint16
	df, mf   bool
	offset   uint16 // fragment offset in units of 8 octets
	src, dst [4]byte
}

// payload returns what follows the header and its options.
func (h *header4) payload() []byte { return h.packet[h.size:] }

// fragment reports whether the packet is one.
func (h *header4) fragment() bool { return h.mf || h.offset != 0 }

// readHeader4 reads a header without asking whether the payload is there, as in a
// packet quoted by an ICMP error.
func readHeader4(p []byte) (h header4, r Reason) {
	if len(p) < ipv4HeaderLen {
		return h, ReasonTruncated
	}
	if p[0]>>4 != 4 {
		return h, ReasonVersion
	}
	h.size = int(p[0]&15) * 4
	h.total = int(binary.BigEndian.Uint16(p[2:]))
	if h.size < ipv4HeaderLen || h.total < h.size {
		return h, ReasonHeaderLength
	}
	if len(p) < h.size {
		return h, ReasonTruncated
	}
	flags := binary.BigEndian.Uint16(p[6:])
	h.packet = p[:min(len(p), h.total)]
	h.tos, h.ttl, h.proto = p[1], p[8], p[9]
	h.id = binary.BigEndian.Uint16(p[4:])
	h.df, h.mf, h.offset = flags&0x4000 != 0, flags&0x2000 != 0, flags&0x1fff
	h.src, h.dst = [4]byte(p[12:16]), [4]byte(p[16:20])
	return h, ReasonNone
}

// parseIPv4 reads a whole packet and makes the checks of a router (RFC 1812 section
// 5.2.2). Bytes behind the total length, a link's padding, are cut off.
func parseIPv4(p []byte) (h header4, r Reason) {
	h, r = readHeader4(p)
	switch {
	case r != ReasonNone:
		return h, r
	case len(p) < h.total:
		return h, ReasonTruncated
	case packet.Fold(packet.Sum(0, p[:h.size])) != 0xffff:
		return h, ReasonHeaderChecksum
	case h.fragment() && !soundFragment(len(h.payload()), int(h.offset)*8, h.mf):
		return h, ReasonFragment
	}
	return h, ReasonNone
}

// soundFragment reports whether a fragment can be part of a packet: it holds something,
// all but the last end on a multiple of 8, and none leaves the largest packet.
func soundFragment(n, offset int, more bool) bool {
	return n > 0 && (!more || n%8 == 0) && offset+n <= 65535
}

// IPv4 options that matter here (RFC 791 section 3.1).
const (
	optionEnd         = 0
	optionNop         = 1
	optionLooseRoute  = 131
	optionStrictRoute = 137
)

// sourceRoute reports whether an unexpired source route is among the options: its
// pointer has not passed its end (RFC 791 section 3.1).
func (h *header4) sourceRoute() bool {
	options := h.packet[ipv4HeaderLen:h.size]
	for len(options) > 0 && options[0] != optionEnd {
		if options[0] == optionNop {
			options = options[1:]
			continue
		}
		if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
			return false // what cannot be read is ignored like any option
		}
		n := options[1]
		if options[0] == optionLooseRoute || options[0] == optionStrictRoute {
			return n >= 3 && options[2] <= n
		}
		options = options[n:]
	}
	return false
}

// fields4 are the fields of an IPv4 header to be written.
type fields4 struct {
	tos, ttl, proto uint8
	total           int
	id              uint16
	flags           uint16 // flags and fragment offset
	src, dst        [4]byte
}

// Flags of the IPv4 header, in the word they share with the offset.
const (
	flagDF = 0x4000
	flagMF = 0x2000
)

// appendHeader4 appends a header without options, with its checksum.
func appendHeader4(b []byte, f *fields4) []byte {
	start := len(b)
	b = append(b, 0x45, f.tos, byte(f.total>>8), byte(f.total), byte(f.id>>8), byte(f.id),
		byte(f.flags>>8), byte(f.flags), f.ttl, f.proto, 0, 0)
	b = append(b, f.src[:]...)
	b = append(b, f.dst[:]...)
	sumHeader4(b[start:])
	return b
}

// sumHeader4 writes the checksum of a header without options.
func sumHeader4(b []byte) {
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(0, b[:ipv4HeaderLen])))
}
