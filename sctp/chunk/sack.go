// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"encoding/binary"
	"iter"
)

// sackHeader is the size of what stands in front of a SACK's blocks, the chunk's header not included.
const sackHeader = 12

// SACK says what has come (RFC 9260 section 3.3.4):
//
//	| cumulative TSN (4) | receiver window (4) | blocks (2) | duplicates (2) |
//	| first and last of a block, counted from the cumulative TSN (2, 2) ... | duplicate TSN (4) ... |
type SACK struct {
	TSN        uint32 // all up to this one has come
	Window     uint32 // octets
	blocks     []byte
	duplicates []byte
}

// Block is a run of TSNs beyond the cumulative one that has come, counted from that.
type Block struct{ First, Last uint16 }

// ParseSACK reads a SACK.
func ParseSACK(body []byte) (s SACK, err error) {
	if len(body) < sackHeader {
		return s, ErrLength
	}
	blocks := 4 * int(binary.BigEndian.Uint16(body[8:]))
	duplicates := 4 * int(binary.BigEndian.Uint16(body[10:]))
	if len(body) < sackHeader+blocks+duplicates {
		return s, ErrLength
	}
	lists := body[sackHeader:]
	return SACK{
		TSN: binary.BigEndian.Uint32(body), Window: binary.BigEndian.Uint32(body[4:]),
		blocks: lists[:blocks], duplicates: lists[blocks : blocks+duplicates],
	}, nil
}

// Blocks are those of the SACK, in its order.
func (s SACK) Blocks() iter.Seq[Block] {
	return func(yield func(Block) bool) {
		for b := s.blocks; len(b) > 0; b = b[4:] {
			if !yield(Block{binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])}) {
				return
			}
		}
	}
}

// Duplicates are the TSNs that have come once more since the last SACK.
func (s SACK) Duplicates() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for b := s.duplicates; len(b) > 0; b = b[4:] {
			if !yield(binary.BigEndian.Uint32(b)) {
				return
			}
		}
	}
}

// AppendSACK writes a SACK.
func AppendSACK(b []byte, tsn, window uint32, blocks []Block, duplicates []uint32) []byte {
	b, at := open(b, TypeSACK, 0)
	b = binary.BigEndian.AppendUint32(b, tsn)
	b = binary.BigEndian.AppendUint32(b, window)
	b = binary.BigEndian.AppendUint16(b, uint16(len(blocks)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(duplicates)))
	for _, one := range blocks {
		b = binary.BigEndian.AppendUint16(b, one.First)
		b = binary.BigEndian.AppendUint16(b, one.Last)
	}
	for _, tsn := range duplicates {
		b = binary.BigEndian.AppendUint32(b, tsn)
	}
	return closeChunk(b, at)
}
