// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"errors"
)

// HeaderSize is the size of a header, in octets:
//
//	'I' 'T' 'G' kind | flow 32 | number 32 | size 32 | time sent 64, ns since 1970
//
// in network byte order. The size is that of the message, header included, by which a stream of octets is cut.
const HeaderSize = 24

// Kinds of messages.
const (
	kindData = 0
	kindEnd  = 1 // the number is that of all messages of the flow
)

// header begins each message.
type header struct {
	kind               byte
	flow, number, size uint32
	sent               int64 // ns since 1970
}

var errHeader = errors.New("what came is no message of this generator")

// put writes the header to the begin of b.
func (h header) put(b []byte) {
	copy(b, "ITG")
	b[3] = h.kind
	binary.BigEndian.PutUint32(b[4:], h.flow)
	binary.BigEndian.PutUint32(b[8:], h.number)
	binary.BigEndian.PutUint32(b[12:], h.size)
	binary.BigEndian.PutUint64(b[16:], uint64(h.sent))
}

// parseHeader reads the header at the begin of b.
func parseHeader(b []byte) (h header, err error) {
	if len(b) < HeaderSize || string(b[:3]) != "ITG" {
		return h, errHeader
	}
	h = header{
		kind: b[3], flow: binary.BigEndian.Uint32(b[4:]), number: binary.BigEndian.Uint32(b[8:]),
		size: binary.BigEndian.Uint32(b[12:]), sent: int64(binary.BigEndian.Uint64(b[16:])),
	}
	if h.kind > kindEnd || h.flow == 0 || h.size < HeaderSize || h.size > MaxSize {
		return header{}, errHeader
	}
	return h, nil
}
