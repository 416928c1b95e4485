// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"bytes"
	"io"
	"sync"

	"github.com/isthmus-net/isthmus/sip/message"
)

// framer finds messages in what a stream brings, with an effort that grows with what comes and not
// with the number of pieces in which it comes.
type framer struct {
	data     []byte // not taken yet
	searched int    // of data, without the end of a header
	needed   int    // octets of the message that data begins with; 0: not known
	taken    int    // of data, by the last message
}

const firstBuffer = 2048

var headerEnd = []byte("\r\n\r\n")

// read reads more.
func (f *framer) read(from io.Reader) error {
	if f.data == nil {
		f.data = make([]byte, 0, firstBuffer)
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

// next returns the next message, good until the next call; nil: more has to come. Ping tells of a
// keep-alive before that.
func (f *framer) next() (one []byte, ping bool, fault *message.Fault) {
	f.drop()
	for len(f.data) > 0 && (f.data[0] == '\r' || f.data[0] == '\n') {
		n, isPing, fault := message.Frame(f.data, message.MaxSize)
		switch {
		case fault != nil:
			return nil, ping, fault
		case n == 0:
			return nil, ping, nil
		case n > len(headerEnd):
			f.taken = n
			return f.data[:n], ping, nil
		}
		ping = ping || isPing
		f.taken = n
		f.drop()
	}
	if len(f.data) < f.needed {
		return nil, ping, nil
	}
	if f.needed == 0 && !f.headed() && len(f.data) < message.MaxSize {
		return nil, ping, nil
	}
	n, _, fault := message.Frame(f.data, message.MaxSize)
	if fault != nil {
		return nil, ping, fault
	}
	if n == 0 {
		if f.needed, fault = measure(f.data); fault != nil {
			return nil, ping, fault
		}
		return nil, ping, nil
	}
	f.taken = n
	return f.data[:n], ping, nil
}

// drop forgets the last message.
func (f *framer) drop() {
	if f.taken > 0 {
		f.data = f.data[:copy(f.data, f.data[f.taken:])]
		f.taken, f.searched, f.needed = 0, 0, 0
	}
}

// headed reports whether a whole header is there.
func (f *framer) headed() bool {
	from := max(f.searched-len(headerEnd)+1, 0)
	f.searched = len(f.data)
	return bytes.Contains(f.data[from:], headerEnd)
}

var scratch = sync.Pool{New: func() any { return new([message.MaxSize]byte) }}

// measure finds how long the message will be whose header is there.
func measure(data []byte) (int, *message.Fault) {
	room := scratch.Get().(*[message.MaxSize]byte)
	defer scratch.Put(room)
	copy(room[:], data)
	n, _, fault := message.Frame(room[:], message.MaxSize)
	return n, fault
}
