// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"io"
)

// Framer finds messages in what a stream brings, with an effort that grows with what comes and not
// with the number of pieces in which it comes. The zero value is ready.
type Framer struct {
	// Pongs takes a line end that is all there is for the answer to a keep-alive, not for the first half of
	// one: for who sends keep-alives.
	Pongs bool

	data     []byte
	start    int // of what is not taken yet
	searched int // octets of that without the end of a header
	needed   int // octets of the message that it begins with; 0: not known
}

const firstBuffer = 2048

// Read reads more.
func (f *Framer) Read(from io.Reader) error {
	if f.data == nil {
		f.data = make([]byte, 0, firstBuffer)
	}
	if f.start > 0 {
		f.data, f.start = f.data[:copy(f.data, f.Rest())], 0
	}
	if len(f.data) == cap(f.data) {
		f.data = append(make([]byte, 0, 2*cap(f.data)), f.data...)
	}
	n, err := from.Read(f.data[len(f.data):cap(f.data)])
	f.data = f.data[:len(f.data)+n]
	if n > 0 {
		return nil
	}
	return err
}

// Rest is what is not taken yet; behind a fault it begins with the message that has it.
func (f *Framer) Rest() []byte { return f.data[f.start:] }

// Next returns the next message, good until the next Read; nil: more has to come. Before it there was a
// keep-alive (ping), or a line end alone (pong), which answers one (RFC 5626 section 4.4.1).
func (f *Framer) Next() (one []byte, ping, pong bool, fault *Fault) {
	for bytes.HasPrefix(f.Rest(), lineEnd) {
		n, isPing, _ := Frame(f.Rest(), MaxSize)
		if n == 0 && f.Pongs && len(f.Rest()) == len(lineEnd) {
			n = len(lineEnd)
		}
		if n == 0 {
			return nil, ping, pong, nil
		}
		ping, pong = ping || isPing, pong || !isPing
		f.take(n)
	}
	if !f.ready() {
		return nil, ping, pong, nil
	}
	n, _, fault := Frame(f.Rest(), MaxSize)
	switch {
	case fault != nil:
		return nil, ping, pong, fault
	case n == 0:
		f.needed = lengthOf(f.Rest())
		return nil, ping, pong, nil
	}
	return f.take(n), ping, pong, nil
}

// take takes the next octets.
func (f *Framer) take(n int) []byte {
	taken := f.Rest()[:n]
	f.start += n
	f.searched, f.needed = 0, 0
	return taken
}

// ready reports whether there is enough for [Frame] to say more: a header, or all of its message.
func (f *Framer) ready() bool {
	rest := f.Rest()
	if f.needed > 0 {
		return len(rest) >= f.needed
	}
	from := max(f.searched-len(headerEnd)+1, 0)
	f.searched = len(rest)
	return bytes.Contains(rest[from:], headerEnd) || len(rest) >= MaxSize
}

// lengthOf is how long a message is whose header is there.
func lengthOf(data []byte) int {
	head, _, _ := bytes.Cut(data, headerEnd)
	length, _ := contentLength(string(head))
	return len(head) + len(headerEnd) + length
}
