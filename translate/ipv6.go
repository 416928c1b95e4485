// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/binary"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// header6 is a parsed IPv6 header with its extension headers (RFC 8200 section 4)
// over its packet.
type header6 struct {
	packet       []byte // headers, and what is there of the payload
	length       int    // payload length field
	size         int    // of all headers to be taken off
	trafficClass uint8
	hopLimit     uint8
	proto        uint8 // the first header that is not taken off
	src, dst     *[16]byte

	hasFragment bool
	offset      uint16 // fragment offset in units of 8 octets
	mf          bool
	id          uint32

	segmentsLeft int // offset of the octet Segments Left that is not zero; 0 when there is none
}

// payload returns what follows the headers.
func (h *header6) payload() []byte { return h.packet[h.size:] }

// fragment reports whether the packet is one of several; an atomic fragment is none
// (RFC 6946).
func (h *header6) fragment() bool { return h.mf || h.offset != 0 }

// payloadLen returns the length of the payload by the header's fields, which in a
// quoted packet is more than what is there.
func (h *header6) payloadLen() int { return ipv6HeaderLen + h.length - h.size }

// maxExtensionHeaders bounds the chain: legal packets have at most one of each kind
// and two of one (RFC 8200 section 4.1).
const maxExtensionHeaders = 8

// readHeader6 reads the headers without asking whether the payload is there.
func readHeader6(p []byte) (h header6, r Reason) {
	if len(p) < ipv6HeaderLen {
		return h, ReasonTruncated
	}
	if p[0]>>4 != 6 {
		return h, ReasonVersion
	}
	h.length = int(binary.BigEndian.Uint16(p[4:]))
	h.packet = p[:min(len(p), ipv6HeaderLen+h.length)]
	h.trafficClass = p[0]<<4 | p[1]>>4
	h.hopLimit = p[7]
	h.src, h.dst = (*[16]byte)(p[8:24]), (*[16]byte)(p[24:40])
	return h, h.walk(p[6])
}

// walk reads the chain of extension headers. Those that mean nothing in IPv4 are
// skipped over (RFC 7915 section 5.1); a Fragment Header is the last one taken off
// (section 5.1.1).
func (h *header6) walk(next uint8) Reason {
	h.size = ipv6HeaderLen
	for range maxExtensionHeaders {
		switch next {
		case packet.ProtoHopByHop, packet.ProtoRouting, packet.ProtoDestOpts, packet.ProtoFragment:
		default:
			h.proto = next
			return ReasonNone
		}
		rest := h.packet[h.size:]
		if len(rest) < 8 {
			return ReasonExtensionHeaders
		}
		if next == packet.ProtoFragment {
			return h.readFragment(rest)
		}
		n := 8 + 8*int(rest[1])
		if len(rest) < n {
			return ReasonExtensionHeaders
		}
		if next == packet.ProtoRouting && rest[3] != 0 && h.segmentsLeft == 0 {
			h.segmentsLeft = h.size + 3
		}
		next = rest[0]
		h.size += n
	}
	return ReasonExtensionHeaders
}

// readFragment reads a Fragment Header (RFC 8200 section 4.5).
func (h *header6) readFragment(b []byte) Reason {
	word := binary.BigEndian.Uint16(b[2:])
	h.hasFragment = true
	h.proto, h.offset, h.mf = b[0], word>>3, word&1 != 0
	h.id = binary.BigEndian.Uint32(b[4:])
	h.size += fragmentHeaderLen
	switch h.proto {
	case packet.ProtoHopByHop, packet.ProtoRouting, packet.ProtoFragment, packet.ProtoDestOpts,
		protoAH, protoMobility, protoHIP, protoShim6:
		return ReasonFragmentExtension // RFC 7915 section 5.1.1; ESP is let through
	}
	return ReasonNone
}

// parseIPv6 reads a whole packet. Bytes behind its length are cut off.
func parseIPv6(p []byte) (h header6, r Reason) {
	if len(p) >= ipv6HeaderLen && p[0]>>4 == 6 && len(p) < ipv6HeaderLen+int(binary.BigEndian.Uint16(p[4:])) {
		return h, ReasonTruncated
	}
	h, r = readHeader6(p)
	if r == ReasonNone && h.fragment() && !soundFragment(len(h.payload()), int(h.offset)*8, h.mf) {
		r = ReasonFragment
	}
	return h, r
}

// fields6 are the fields of an IPv6 header to be written, with a Fragment Header or
// without.
type fields6 struct {
	trafficClass, hopLimit, proto uint8
	payload                       int // length behind all headers
	hasFragment                   bool
	offset                        uint16 // in units of 8 octets
	mf                            bool
	id                            uint16
	src, dst                      [16]byte
}

// appendHeader6 appends the headers (RFC 7915 section 4.1): flow label 0, and in the
// Fragment Header an identification of 16 bits.
func appendHeader6(b []byte, f *fields6) []byte {
	length, next := f.payload, f.proto
	if f.hasFragment {
		length, next = length+fragmentHeaderLen, packet.ProtoFragment
	}
	b = append(b, 0x60|f.trafficClass>>4, f.trafficClass<<4, 0, 0, byte(length>>8), byte(length), next, f.hopLimit)
	b = append(b, f.src[:]...)
	b = append(b, f.dst[:]...)
	if f.hasFragment {
		word := fragmentWord(f.offset, f.mf)
		b = append(b, f.proto, 0, byte(word>>8), byte(word), 0, 0, byte(f.id>>8), byte(f.id))
	}
	return b
}

// fragmentWord returns offset and M flag as a Fragment Header holds them.
func fragmentWord(offset uint16, more bool) uint16 {
	if more {
		return offset<<3 | 1
	}
	return offset << 3
}
