// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"encoding/binary"
	"strings"
)

// Request asks for a source:
//
//	| header (4) | data streams (2) | flags (2) | report ms (4) | message size (4) | messages a second (4) |
//	| offset (8) | limit (8) | name length (1) | name |
type Request struct {
	Transfer uint16
	Streams  uint16 // that may carry data; 0 is as many as the server likes
	Report   uint32 // milliseconds between reports; 0 is none
	Size     uint32 // octets of media in a message; 0 is as the server likes
	Rate     uint32 // messages a second at most; 0 is as the source is
	Offset   uint64 // octets that are left out
	Limit    uint64 // octets at most; 0 is all
	Name     string
}

func (*Request) kind() Kind { return KindRequest }

// Append implements [Message].
func (m *Request) Append(b []byte) []byte {
	b = begin(b, m, m.Transfer)
	b = binary.BigEndian.AppendUint16(b, m.Streams)
	b = append(b, 0, 0) // no flags yet
	b = binary.BigEndian.AppendUint32(b, m.Report)
	b = binary.BigEndian.AppendUint32(b, m.Size)
	b = binary.BigEndian.AppendUint32(b, m.Rate)
	b = binary.BigEndian.AppendUint64(b, m.Offset)
	b = binary.BigEndian.AppendUint64(b, m.Limit)
	return appendText(b, m.Name)
}

func readRequest(transfer uint16, r *reader) *Request {
	m := &Request{Transfer: transfer, Streams: r.uint16()}
	if r.uint16() != 0 {
		r.fail("flags that are not known")
	}
	m.Report, m.Size, m.Rate, m.Offset, m.Limit, m.Name = r.uint32(), r.uint32(), r.uint32(), r.uint64(), r.uint64(), r.text()
	if r.problem == "" && CheckName(m.Name) != nil {
		r.fail("a name that cannot be")
	}
	if m.Size > MaxData {
		r.fail("a message size that cannot be")
	}
	return m
}

// Status is what becomes of a request.
type Status uint16

// Statuses.
const (
	OK        Status = iota
	NotFound         // there is no such source
	Busy             // another transfer of the association is under way
	TooLarge         // the file is larger than the server sends
	Refused          // the offset lies behind the end, the name cannot be, or data have no stream
	Failed           // the source cannot be read, or has changed
	Cancelled        // the client has asked for that
	numStatuses
)

var statusWords = [numStatuses]string{
	"ok", "not found", "busy with another transfer", "too large", "refused", "failed", "cancelled",
}

// String returns the status in words.
func (s Status) String() string {
	if s >= numStatuses {
		return "unknown"
	}
	return statusWords[s]
}

// Answer says what comes:
//
//	| header (4) | status (2) | data streams (2) | message size (4) | messages a second (4) | total (8) | text length (1) | text |
type Answer struct {
	Transfer uint16
	Status   Status
	Streams  uint16 // that carry data: 1 to this one
	Size     uint32 // octets of media in a message; the last one may have fewer
	Rate     uint32 // messages a second; 0 is as fast as they go
	Total    uint64 // octets that come
	Text     string // why not
}

func (*Answer) kind() Kind { return KindAnswer }

// Append implements [Message].
func (m *Answer) Append(b []byte) []byte {
	b = begin(b, m, m.Transfer)
	b = binary.BigEndian.AppendUint16(b, uint16(m.Status))
	b = binary.BigEndian.AppendUint16(b, m.Streams)
	b = binary.BigEndian.AppendUint32(b, m.Size)
	b = binary.BigEndian.AppendUint32(b, m.Rate)
	b = binary.BigEndian.AppendUint64(b, m.Total)
	return appendText(b, m.Text)
}

// Why is the reason of a refusal in the words of the server, without what would steer a terminal.
func (m *Answer) Why() string {
	text := strings.Map(func(c rune) rune {
		if misleads(c) {
			return -1
		}
		return c
	}, m.Text)
	return cmp.Or(strings.TrimSpace(text), m.Status.String())
}

func readAnswer(transfer uint16, r *reader) *Answer {
	m := &Answer{Transfer: transfer, Status: Status(r.uint16()), Streams: r.uint16(), Size: r.uint32(), Rate: r.uint32(), Total: r.uint64(), Text: r.text()}
	switch {
	case m.Status >= numStatuses:
		r.fail("a status that is not known")
	case m.Size > MaxData, m.Status == OK && (m.Size == 0 || m.Streams == 0):
		r.fail("a message size, or streams, that cannot be")
	}
	return m
}

// Cancel ends a transfer: the header alone.
type Cancel struct{ Transfer uint16 }

func (*Cancel) kind() Kind { return KindCancel }

// Append implements [Message].
func (m *Cancel) Append(b []byte) []byte { return begin(b, m, m.Transfer) }
