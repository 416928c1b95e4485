// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"encoding/binary"
	"fmt"
)

// Type is that of a chunk (RFC 9260 section 3.2).
type Type uint8

// The types of chunks.
const (
	TypeData             Type = 0
	TypeInit             Type = 1
	TypeInitAck          Type = 2
	TypeSACK             Type = 3
	TypeHeartbeat        Type = 4
	TypeHeartbeatAck     Type = 5
	TypeAbort            Type = 6
	TypeShutdown         Type = 7
	TypeShutdownAck      Type = 8
	TypeError            Type = 9
	TypeCookieEcho       Type = 10
	TypeCookieAck        Type = 11
	TypeShutdownComplete Type = 14
	TypeAuth             Type = 15  // RFC 4895 section 4.1
	TypeIData            Type = 64  // RFC 8260 section 2.1
	TypeASCONFAck        Type = 128 // RFC 5061 section 4.1.2
	TypePad              Type = 132 // RFC 4820 section 3
	TypeForwardTSN       Type = 192 // RFC 3758 section 3.2
	TypeASCONF           Type = 193 // RFC 5061 section 4.1.1
	TypeIForwardTSN      Type = 194 // RFC 8260 section 2.3.1
)

var typeNames = map[Type]string{
	TypeData: "DATA", TypeInit: "INIT", TypeInitAck: "INIT ACK", TypeSACK: "SACK", TypeHeartbeat: "HEARTBEAT",
	TypeHeartbeatAck: "HEARTBEAT ACK", TypeAbort: "ABORT", TypeShutdown: "SHUTDOWN", TypeShutdownAck: "SHUTDOWN ACK",
	TypeError: "ERROR", TypeCookieEcho: "COOKIE ECHO", TypeCookieAck: "COOKIE ACK", TypeShutdownComplete: "SHUTDOWN COMPLETE",
	TypeAuth: "AUTH", TypeIData: "I-DATA", TypeASCONFAck: "ASCONF-ACK", TypeForwardTSN: "FORWARD TSN", TypeASCONF: "ASCONF",
	TypeIForwardTSN: "I-FORWARD-TSN", TypePad: "PAD",
}

// String returns the name that the RFCs give the type.
func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("chunk type %d", uint8(t))
}

// The two highest bits of a type say what becomes of one that is not known (RFC 9260 section 3.2). Those of a
// parameter's are of the same sense (section 3.2.1).
const (
	skipBit   = 0x80
	reportBit = 0x40
)

// Skipped reports whether a receiver that does not know the type goes on with what follows.
func (t Type) Skipped() bool { return t&skipBit != 0 }

// Reported reports whether a receiver that does not know the type says so to the sender.
func (t Type) Reported() bool { return t&reportBit != 0 }

// Reflected is the T bit of ABORT and SHUTDOWN COMPLETE: the verification tag is the receiver's own, sent back
// (RFC 9260 sections 3.3.7 and 3.3.13).
const Reflected = 0x01

// chunkHeader is the size of a chunk's header: type, flags, length.
const chunkHeader = 4

// Chunk is one of any type (RFC 9260 section 3.2):
//
//	| type (1) | flags (1) | length (2) | body | padding to a multiple of 4 |
type Chunk struct {
	Type  Type
	Flags uint8
	Body  []byte // without header and padding
	Whole []byte // with its header, without padding: as reports and authentication want it
}

// Next cuts the first chunk off the chunks of a packet. The last one's padding may be missing. After an error
// there is nothing more to be read.
func Next(chunks []byte) (c Chunk, rest []byte, err error) {
	if len(chunks) < chunkHeader {
		return c, nil, ErrLength
	}
	length := int(binary.BigEndian.Uint16(chunks[2:]))
	if length < chunkHeader || length > len(chunks) {
		return c, nil, ErrLength
	}
	c = Chunk{Type(chunks[0]), chunks[1], chunks[chunkHeader:length:length], chunks[:length:length]}
	return c, chunks[min(padded(length), len(chunks)):], nil
}

// Append writes a chunk of any type with a body that stands as it is.
func Append(b []byte, t Type, flags uint8, body []byte) []byte {
	b, at := open(b, t, flags)
	return closeChunk(append(b, body...), at)
}

// open begins a chunk; at is where.
func open(b []byte, t Type, flags uint8) (with []byte, at int) {
	return append(b, byte(t), flags, 0, 0), len(b)
}

// closeChunk writes the length of the chunk that began at a place, and pads it.
func closeChunk(b []byte, at int) []byte {
	binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at))
	return pad(b, len(b)-at)
}

// closeList closes a chunk that ends with a list of parameters or causes, which begins so many octets behind
// the chunk's header. The padding of the last one is the chunk's, and does not count (RFC 9260 section 3.2).
func closeList(b []byte, at, head int) []byte {
	end := at + chunkHeader + head
	for list := b[end:]; len(list) > 0; {
		_, _, whole, rest, err := nextTLV(list)
		if err != nil {
			end = len(b)
			break
		}
		end = len(b) - len(list) + len(whole)
		list = rest
	}
	binary.BigEndian.PutUint16(b[at+2:], uint16(end-at))
	return b
}

// padded is a length with its padding.
func padded(length int) int { return (length + 3) &^ 3 }

// pad appends the padding behind so many octets.
func pad(b []byte, length int) []byte {
	for range padded(length) - length {
		b = append(b, 0)
	}
	return b
}
