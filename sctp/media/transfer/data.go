// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"encoding/binary"
	"time"
)

// DigestSize is that of SHA-256.
const DigestSize = 32

// Data is a piece of the media:
//
//	| header (4) | offset (8) | when it was written, ns since 1970 (8) | media |
type Data struct {
	Transfer uint16
	Offset   uint64 // from where the transfer begins
	Written  time.Time
	Media    []byte
}

func (*Data) kind() Kind { return KindData }

// Append implements [Message].
func (m *Data) Append(b []byte) []byte {
	b = begin(b, m, m.Transfer)
	b = binary.BigEndian.AppendUint64(b, m.Offset)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Written.UnixNano()))
	return append(b, m.Media...)
}

func readData(transfer uint16, r *reader) *Data {
	m := &Data{Transfer: transfer, Offset: r.uint64(), Written: time.Unix(0, int64(r.uint64()))}
	m.Media = r.take(len(r.b))
	switch {
	case len(m.Media) == 0, len(m.Media) > MaxData:
		r.fail("a size of media that cannot be")
	case m.Offset+uint64(len(m.Media)) < m.Offset:
		r.fail("an offset that cannot be")
	}
	return m
}

// End says that all data of a transfer are sent:
//
//	| header (4) | status (2) | reserved (2) | octets (8) | messages (8) | SHA-256 (32) |
type End struct {
	Transfer uint16
	Status   Status
	Octets   uint64
	Messages uint64
	Digest   [DigestSize]byte // of the octets; zero unless the status is OK
}

func (*End) kind() Kind { return KindEnd }

// Append implements [Message].
func (m *End) Append(b []byte) []byte {
	b = begin(b, m, m.Transfer)
	b = binary.BigEndian.AppendUint16(b, uint16(m.Status))
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint64(b, m.Octets)
	b = binary.BigEndian.AppendUint64(b, m.Messages)
	return append(b, m.Digest[:]...)
}

func readEnd(transfer uint16, r *reader) *End {
	m := &End{Transfer: transfer, Status: Status(r.uint16())}
	if r.uint16() != 0 || m.Status >= numStatuses {
		r.fail("a status that is not known")
	}
	m.Octets, m.Messages, m.Digest = r.uint64(), r.uint64(), [DigestSize]byte(r.take(DigestSize))
	return m
}
