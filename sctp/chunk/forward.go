// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"encoding/binary"
	"iter"
)

// ForwardTSN tells the receiver to wait no longer for what was given up: FORWARD TSN (RFC 3758 section 3.2) or
// I-FORWARD-TSN (RFC 8260 section 2.3.1):
//
//	| new cumulative TSN (4) | stream (2) | sequence number (2) | ...
//	| new cumulative TSN (4) | stream (2) | 15 bits of 0, unordered (2) | message (4) | ...
type ForwardTSN struct {
	TSN         uint32
	interleaved bool
	skips       []byte
}

// Skip is the last message of a stream that is skipped.
type Skip struct {
	Stream    uint16
	Unordered bool   // of I-FORWARD-TSN; FORWARD TSN names ordered messages alone
	Message   uint32 // its number in the stream, 16 bits of it in FORWARD TSN
}

// skipSize is the size of a skip.
func skipSize(interleaved bool) int {
	if interleaved {
		return 8
	}
	return 4
}

// ParseForwardTSN reads a chunk of type FORWARD TSN or I-FORWARD-TSN.
func ParseForwardTSN(c Chunk) (f ForwardTSN, err error) {
	interleaved := c.Type == TypeIForwardTSN
	if len(c.Body) < 4 || (len(c.Body)-4)%skipSize(interleaved) != 0 {
		return f, ErrLength
	}
	return ForwardTSN{binary.BigEndian.Uint32(c.Body), interleaved, c.Body[4:]}, nil
}

// Skips are the last messages that are skipped, of each stream.
func (f ForwardTSN) Skips() iter.Seq[Skip] {
	return func(yield func(Skip) bool) {
		size := skipSize(f.interleaved)
		for b := f.skips; len(b) > 0; b = b[size:] {
			s := Skip{Stream: binary.BigEndian.Uint16(b), Message: uint32(binary.BigEndian.Uint16(b[2:]))}
			if f.interleaved {
				s.Unordered, s.Message = b[3]&1 != 0, binary.BigEndian.Uint32(b[4:])
			}
			if !yield(s) {
				return
			}
		}
	}
}

// AppendForwardTSN writes a FORWARD TSN, or an I-FORWARD-TSN if messages may be interleaved.
func AppendForwardTSN(b []byte, tsn uint32, skips []Skip, interleaved bool) []byte {
	t := TypeForwardTSN
	if interleaved {
		t = TypeIForwardTSN
	}
	b, at := open(b, t, 0)
	b = binary.BigEndian.AppendUint32(b, tsn)
	for _, s := range skips {
		b = binary.BigEndian.AppendUint16(b, s.Stream)
		switch {
		case !interleaved:
			b = binary.BigEndian.AppendUint16(b, uint16(s.Message))
			continue
		case s.Unordered:
			b = append(b, 0, 1)
		default:
			b = append(b, 0, 0)
		}
		b = binary.BigEndian.AppendUint32(b, s.Message)
	}
	return closeChunk(b, at)
}
