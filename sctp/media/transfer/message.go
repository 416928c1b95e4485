// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What both ends know of each other.
const (
	// Version is the first octet of every message.
	Version = 1
	// PPID is the payload protocol identifier (RFC 9260 section 15.5) of all messages: "ISMT". It is not registered.
	PPID = 0x49534d54
	// ControlStream carries all but data.
	ControlStream = 0
)

// Bounds of what an end accepts.
const (
	MaxName    = 255       // octets of the name of a source
	MaxText    = 255       // octets of a reason
	MaxControl = 16 << 10  // octets of a message that is not data
	MaxData    = 60_000    // octets of media in a message
	MaxStreams = 1<<16 - 2 // that may carry data
	MaxEntries = 64        // of a list, in one message
	MaxReport  = 16        // paths in a report, and as many marks
	DataHeader = 4 + 8 + 8 // octets before those of the media
	header     = 4
)

// Kind is that of a message.
type Kind uint8

// Kinds of messages.
const (
	KindRequest Kind = 1 + iota // client to server: send a source
	KindAnswer                  // server to client: what comes, or why nothing does
	KindData                    // octets of the media
	KindEnd                     // server to client: that was all, with its digest
	KindCancel                  // client to server: no more
	KindList                    // client to server: what is there
	KindEntries                 // server to client: some of that
	KindReport                  // server to client: how the sender's paths are
)

// ErrMessage is what all errors of this package wrap.
var ErrMessage = errors.New("not a message of a media transfer")

func fault(text string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMessage, fmt.Sprintf(text, args...))
}

// Message is one of the types of this package.
type Message interface {
	// Append appends the message's octets.
	Append(b []byte) []byte
	kind() Kind
}

// Parse reads a message. Data alias b.
func Parse(b []byte) (Message, error) {
	switch {
	case len(b) < header:
		return nil, fault("%d octets", len(b))
	case b[0] != Version:
		return nil, fault("version %d", b[0])
	case Kind(b[1]) != KindData && len(b) > MaxControl:
		return nil, fault("%d octets of kind %d", len(b), b[1])
	}
	r := reader{b: b[header:]}
	m := read(Kind(b[1]), binary.BigEndian.Uint16(b[2:]), &r)
	switch {
	case m == nil:
		return nil, fault("kind %d", b[1])
	case r.problem != "":
		return nil, fault("%s, in kind %d", r.problem, b[1])
	case len(r.b) > 0:
		return nil, fault("%d octets behind its end, in kind %d", len(r.b), b[1])
	}
	return m, nil
}

// read reads what follows the header; nil if the kind is not known.
func read(k Kind, transfer uint16, r *reader) Message {
	switch k {
	case KindRequest:
		return readRequest(transfer, r)
	case KindAnswer:
		return readAnswer(transfer, r)
	case KindData:
		return readData(transfer, r)
	case KindEnd:
		return readEnd(transfer, r)
	case KindCancel:
		return &Cancel{transfer}
	case KindList:
		return readList(transfer, r)
	case KindEntries:
		return readEntries(transfer, r)
	case KindReport:
		return readReport(transfer, r)
	}
	return nil
}

func begin(b []byte, m Message, transfer uint16) []byte {
	return binary.BigEndian.AppendUint16(append(b, Version, byte(m.kind())), transfer)
}

// CheckName returns what is wrong with the name of a source: it is that of a file below the server's folder, with
// slashes between folders, and no part of it begins with a dot.
func CheckName(name string) error {
	switch {
	case name == "", len(name) > MaxName:
		return fault("a name of %d octets", len(name))
	case !utf8.ValidString(name), strings.ContainsFunc(name, misleads):
		return fault("the name %q, which is not printable", name)
	case !fs.ValidPath(name), strings.HasPrefix(name, "."), strings.Contains(name, "/."):
		return fault("the name %q, which leads elsewhere", name)
	}
	return nil
}

// misleads reports whether a character would steer a terminal, or have a name look like another one.
func misleads(c rune) bool {
	return unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) || c == '\\'
}

// reader takes values off the front of a message. Behind the first problem all are zero.
type reader struct {
	b       []byte
	problem string
}

func (r *reader) fail(text string) {
	if r.problem == "" {
		r.problem = text
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if r.problem != "" || len(r.b) < n {
		r.fail("it is cut off")
		return make([]byte, n)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) uint8() uint8   { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

// text reads a length of one octet and so many octets of UTF-8.
func (r *reader) text() string {
	b := r.take(int(r.uint8()))
	if !utf8.Valid(b) {
		r.fail("a text is not UTF-8")
	}
	return string(b)
}

// appendText appends at most 255 octets of a text, whole characters.
func appendText(b []byte, s string) []byte {
	for len(s) > MaxText {
		_, last := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-last]
	}
	return append(append(b, byte(len(s))), s...)
}
