// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import "encoding/binary"

// Sizes of what stands in front of user data, the chunk's header included.
const (
	DataHeader  = 16 // RFC 9260 section 3.3.1
	IDataHeader = 20 // RFC 8260 section 2.1
)

// Flags of DATA and I-DATA.
const (
	flagLast      = 0x01 // E
	flagFirst     = 0x02 // B
	flagUnordered = 0x04 // U
	flagImmediate = 0x08 // I
)

// Data is a DATA or an I-DATA chunk: a message, or a fragment of one.
//
// DATA (RFC 9260 section 3.3.1), behind the chunk's header:
//
//	| TSN (4) | stream (2) | sequence number in the stream (2) | payload protocol (4) | user data |
//
// I-DATA (RFC 8260 section 2.1), where the last field is the protocol in a first fragment, and the fragment's
// number in all others:
//
//	| TSN (4) | stream (2) | 0 (2) | message (4) | protocol or fragment (4) | user data |
type Data struct {
	TSN       uint32
	Stream    uint16
	Message   uint32 // its number in the stream, 16 bits of it in DATA
	Protocol  uint32 // as the user has named it; in I-DATA of first fragments alone
	Fragment  uint32 // of I-DATA; 0 is the first
	Immediate bool   // the sender wants a SACK at once
	Unordered bool
	First     bool // fragment of its message
	Last      bool
	User      []byte
}

// ParseData reads a chunk of type DATA or I-DATA. User data may be empty: what becomes of that is not for the
// codec to say (RFC 9260 section 3.3.1 wants an ABORT).
func ParseData(c Chunk) (d Data, err error) {
	header := DataHeader - chunkHeader
	if c.Type == TypeIData {
		header = IDataHeader - chunkHeader
	}
	if len(c.Body) < header {
		return d, ErrLength
	}
	d = Data{
		TSN: binary.BigEndian.Uint32(c.Body), Stream: binary.BigEndian.Uint16(c.Body[4:]),
		Immediate: c.Flags&flagImmediate != 0, Unordered: c.Flags&flagUnordered != 0,
		First: c.Flags&flagFirst != 0, Last: c.Flags&flagLast != 0, User: c.Body[header:],
	}
	last := binary.BigEndian.Uint32(c.Body[header-4:])
	switch {
	case c.Type == TypeData:
		d.Message, d.Protocol = uint32(binary.BigEndian.Uint16(c.Body[6:])), last
	case d.First:
		d.Message, d.Protocol = binary.BigEndian.Uint32(c.Body[8:]), last
	default:
		d.Message, d.Fragment = binary.BigEndian.Uint32(c.Body[8:]), last
	}
	return d, nil
}

// Append writes the chunk, as I-DATA if messages may be interleaved.
func (d *Data) Append(b []byte, interleaved bool) []byte {
	t := TypeData
	if interleaved {
		t = TypeIData
	}
	b, at := open(b, t, d.flags())
	b = binary.BigEndian.AppendUint32(b, d.TSN)
	b = binary.BigEndian.AppendUint16(b, d.Stream)
	last := d.Protocol
	if interleaved {
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint32(b, d.Message)
		if !d.First {
			last = d.Fragment
		}
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(d.Message))
	}
	b = binary.BigEndian.AppendUint32(b, last)
	return closeChunk(append(b, d.User...), at)
}

func (d *Data) flags() (f uint8) {
	for _, one := range []struct {
		set  bool
		flag uint8
	}{{d.Last, flagLast}, {d.First, flagFirst}, {d.Unordered, flagUnordered}, {d.Immediate, flagImmediate}} {
		if one.set {
			f |= one.flag
		}
	}
	return f
}
