// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package usrsctp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Messages are those of an association of a [Peer]. As a [net.Conn] it sends by stream 0, one Write for each message, and
// reads what comes by any, one message at a time.
type Messages struct {
	net.Conn
	mu  sync.Mutex // of out
	out []byte
	in  []byte
}

// streamSize is that of the number of a stream, which stands before each message, and waiting about what may wait between
// us and the program, in octets: as little as lets messages of some thousand through. It is the buffer of the association
// that is to say when its user is blocked.
const (
	streamSize = 2
	waiting    = 4 << 10
)

// newMessages makes the socket between us and a program.
func newMessages() (input *os.File, m *Messages, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	input = os.NewFile(uintptr(ends[0]), "messages")
	ours := os.NewFile(uintptr(ends[1]), "messages")
	defer ours.Close()
	err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(ends[1], unix.SOL_SOCKET, unix.SO_SNDBUF, waiting))
	if err != nil {
		return nil, nil, errors.Join(err, input.Close())
	}
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, input.Close())
	}
	return input, &Messages{Conn: c, in: make([]byte, streamSize+1<<20)}, nil
}

// WriteMessage sends a message by a stream. Messages leave one after the other: none passes one that waits for room.
func (m *Messages) WriteMessage(stream uint16, b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out = append(binary.BigEndian.AppendUint16(m.out[:0], stream), b...)
	_, err := m.Conn.Write(m.out)
	return err
}

// Write implements [io.Writer].
func (m *Messages) Write(b []byte) (int, error) { return len(b), m.WriteMessage(0, b) }

// Read implements [io.Reader].
func (m *Messages) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(m.in)
	if err != nil {
		return 0, err
	}
	if n < streamSize {
		return 0, io.EOF
	}
	if len(b) < n-streamSize {
		return 0, io.ErrShortBuffer
	}
	return copy(b, m.in[streamSize:n]), nil
}
