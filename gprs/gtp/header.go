// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "encoding/binary"

// Version of GTP, the upper three bits of the first octet.
type Version uint8

// The versions of this package. GTPv1 is that of GTP-C and of GTP-U.
const (
	V0 Version = 0
	V1 Version = 1
)

// Header sizes in octets.
const (
	headerLenV0      = 20         // TS 09.60 section 6
	headerLenV1      = 8          // TS 29.060 section 6
	optionalLen      = 4          // sequence number, N-PDU number, type of the first extension header
	maxDatagram      = 0xffff - 8 // the payload of UDP, which the length field of either version holds
	firstOctetV0     = 0x1e       // version 0, protocol type 1, spare bits 111
	firstOctetV1     = 0x30       // version 1, protocol type 1, spare bit 0
	flagProtocolType = 0x10
	flagExtension    = 0x04 // E
	flagSequence     = 0x02 // S
	flagNPDU         = 0x01 // PN; SNN in version 0
	versionShift     = 5
	spareSNDCP       = 0xff // N-PDU number of version 0 where there is none
	offsetLength     = 2
	offsetExtensions = headerLenV1 + optionalLen
)

// Header is the header of a datagram of either version, and what follows it.
//
// Version 0 (TS 09.60 section 6):
//
//	| 000 PT 111 SNN | type | length (2) | sequence (2) | flow label (2) |
//	| SNDCP N-PDU LLC number | ff ff ff | TID (8) |
//
// Version 1 (TS 29.060 section 6, TS 29.281 section 5.1), the second line only if any
// of E, S and PN is set, and then all of it; a field counts if its own flag is set:
//
//	| 001 PT 0 E S PN | type | length (2) | TEID (4) |
//	| sequence (2) | N-PDU number | type of the first extension header |
type Header struct {
	Version     Version
	Type        MessageType
	HasSequence bool // always true of version 0
	HasNPDU     bool
	NPDU        uint8
	Sequence    uint16
	FlowLabel   uint16 // version 0
	TEID        uint32 // version 1
	TID         TID    // version 0
	Extensions  Extensions
	Payload     []byte // elements, or the user's packet
}

// Peek returns version and type of a datagram of any version, even of one that
// [ParseHeader] refuses: a message of an unknown version is answered by Version Not
// Supported unless it is one (TS 29.060 section 11.1.1). ok is false if it is too short
// for a header of either version, or is of GTP', and so gets no answer.
func Peek(b []byte) (v Version, t MessageType, ok bool) {
	if len(b) < headerLenV1 || b[0]&flagProtocolType == 0 && b[0]>>versionShift < 2 {
		return 0, 0, false
	}
	return Version(b[0] >> versionShift), MessageType(b[1]), true
}

// ParseHeader takes a datagram apart, with the chain of extension headers. Its length
// field must agree with the datagram's. The header is returned with a refusal, too, as
// far as it was read, so that a request can be answered.
func ParseHeader(b []byte) (h Header, err error) {
	if fault := h.parse(b); fault != 0 {
		err = refuse(fault, 0)
	}
	return h, err
}

func (h *Header) parse(b []byte) Fault {
	if len(b) < headerLenV1 {
		return FaultTruncated
	}
	h.Version = Version(b[0] >> versionShift)
	switch {
	case h.Version > V1:
		return FaultVersion
	case b[0]&flagProtocolType == 0:
		return FaultProtocolType
	}
	h.Type = MessageType(b[1])
	if h.Version == V0 {
		return h.parseV0(b)
	}
	return h.parseV1(b)
}

func (h *Header) parseV0(b []byte) Fault {
	if len(b) < headerLenV0 {
		return FaultTruncated
	}
	h.HasSequence, h.Sequence = true, binary.BigEndian.Uint16(b[4:])
	h.FlowLabel, h.TID = binary.BigEndian.Uint16(b[6:]), TID(b[12:20])
	if b[0]&flagNPDU != 0 {
		h.HasNPDU, h.NPDU = true, b[8]
	}
	h.Payload = b[headerLenV0:]
	if int(binary.BigEndian.Uint16(b[offsetLength:])) != len(h.Payload) {
		return FaultLength
	}
	return 0
}

func (h *Header) parseV1(b []byte) Fault {
	h.TEID = binary.BigEndian.Uint32(b[4:])
	h.Payload = b[headerLenV1:]
	counted := len(h.Payload)
	flags := b[0] & (flagExtension | flagSequence | flagNPDU)
	if flags != 0 {
		if counted < optionalLen {
			return FaultTruncated
		}
		if flags&flagSequence != 0 {
			h.HasSequence, h.Sequence = true, binary.BigEndian.Uint16(h.Payload)
		}
		if flags&flagNPDU != 0 {
			h.HasNPDU, h.NPDU = true, h.Payload[2]
		}
		h.Payload = h.Payload[optionalLen:]
	}
	if int(binary.BigEndian.Uint16(b[offsetLength:])) != counted {
		return FaultLength
	}
	if flags&flagExtension == 0 {
		return 0
	}
	var fault Fault
	h.Extensions, h.Payload, fault = parseExtensions(ExtensionType(b[offsetExtensions-1]), h.Payload)
	return fault
}

// Len returns how many octets the header takes.
func (h *Header) Len() int {
	switch {
	case h.Version == V0:
		return headerLenV0
	case h.HasSequence || h.HasNPDU || !h.Extensions.Empty():
		return headerLenV1 + optionalLen + len(h.Extensions.octets)
	}
	return headerLenV1
}

// AppendTo appends the header of a payload of n octets; h.Payload is not looked at. It
// refuses a payload that the length field cannot hold.
func (h *Header) AppendTo(b []byte, n int) ([]byte, error) {
	if h.Len()+n > maxDatagram {
		return b, refuse(FaultTooLong, 0)
	}
	if h.Version == V0 {
		return h.appendV0(b, n), nil
	}
	return h.appendV1(b, n), nil
}

func (h *Header) appendV1(b []byte, n int) []byte {
	first, head := byte(firstOctetV1), h.Len()
	if h.HasSequence {
		first |= flagSequence
	}
	if h.HasNPDU {
		first |= flagNPDU
	}
	if !h.Extensions.Empty() {
		first |= flagExtension
	}
	b = append(b, first, byte(h.Type))
	b = binary.BigEndian.AppendUint16(b, uint16(head-headerLenV1+n))
	b = binary.BigEndian.AppendUint32(b, h.TEID)
	if head == headerLenV1 {
		return b
	}
	// Fields whose flag is not set are zero, so that no memory leaks.
	var sequence uint16
	var npdu byte
	if h.HasSequence {
		sequence = h.Sequence
	}
	if h.HasNPDU {
		npdu = h.NPDU
	}
	b = binary.BigEndian.AppendUint16(b, sequence)
	b = append(b, npdu, byte(h.Extensions.first))
	return append(b, h.Extensions.octets...)
}

func (h *Header) appendV0(b []byte, n int) []byte {
	first, npdu := byte(firstOctetV0), byte(spareSNDCP)
	if h.HasNPDU {
		first, npdu = first|flagNPDU, h.NPDU
	}
	b = append(b, first, byte(h.Type))
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	b = binary.BigEndian.AppendUint16(b, h.Sequence)
	b = binary.BigEndian.AppendUint16(b, h.FlowLabel)
	b = append(b, npdu, 0xff, 0xff, 0xff)
	return append(b, h.TID[:]...)
}
