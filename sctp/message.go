// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"io"
	"time"

	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// Message says how a message is sent. The zero value is an ordered one of stream 0.
type Message struct {
	// Stream of the message: messages of one arrive in their order, and wait for none of another.
	Stream uint16
	// PPID is the payload protocol identifier (RFC 9260 section 15.5): a number for the peer's user.
	PPID uint32
	// Unordered has it delivered as soon as it has come.
	Unordered bool
	// Immediate has the peer acknowledge it at once (RFC 7053).
	Immediate bool
	// Lifetime is after when it is given up, and Tries how often its chunks may be sent, where the peer can take that
	// (RFC 3758); 0 is without end. What was given up is an event.
	Lifetime time.Duration
	Tries    int
}

// MessageInfo says what was read.
type MessageInfo struct {
	Stream    uint16
	PPID      uint32
	Unordered bool
	// First and Last say that the message begins and ends with what was read. What is larger than the buffer, or than
	// half of Parameters.ReceiveBuffer, comes in parts; between those may be other streams' messages.
	First, Last bool
}

// messageInfo is what the engine says of a message.
func messageInfo(d *assoc.Data) MessageInfo {
	return MessageInfo{Stream: d.Stream, PPID: d.Protocol, Unordered: d.Unordered, First: d.First, Last: d.Last}
}

// WriteMessage sends a message, and waits while the send buffer is full: it has some room left for streams of which little
// waits. A message has not more than Parameters.SendBuffer octets, and not none.
func (c *Conn) WriteMessage(b []byte, m Message) error {
	if len(b) == 0 {
		return c.opError("write", assoc.ErrEmpty)
	}
	err := c.send(&assoc.Message{
		Stream: m.Stream, Protocol: m.PPID, Unordered: m.Unordered, Immediate: m.Immediate,
		Lifetime: m.Lifetime, Tries: m.Tries, User: b,
	})
	if err != nil {
		return c.opError("write", err)
	}
	return nil
}

// ReadMessage reads the next message, of whatever stream, or the part of it that fits into b; the rest comes next.
// The error is io.EOF when the peer has shut the association down and all is read.
func (c *Conn) ReadMessage(b []byte) (n int, info MessageInfo, err error) {
	n, info, err = c.read(b)
	if err != nil && err != io.EOF {
		err = c.opError("read", err)
	}
	return n, info, err
}
