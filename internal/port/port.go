// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package port is the edge where packets enter and leave the process: the TUN
// device, batched UDP over IPv4, the raw IPv6 socket, and what netlink sets up
// and watches.
//
// All of it works in the network namespace of the calling thread at the time
// an object is opened; a caller that wants another namespace locks its thread,
// enters it, and opens. Reads and writes may then come from any thread.
//
// Reads block in the kernel on the file itself, not in the Go netpoller, whose
// park and wake cost more than the packet's own way through an engine. One
// goroutine reads a port; any number may write to it at the same time. Nothing
// is allocated per packet.
package port

import (
	"errors"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// MaxBatch is the largest number of packets that one read or one system call
// for sending handles. 64 packets of a cold cache still fit in the L2 cache
// together with the peer table's hot lines.
const MaxBatch = 64

// ErrClosed is returned by reads and writes after Close.
var ErrClosed = errors.New("the port is closed")

// Tun is the device through which the host's IPv6 stack sends and receives.
type Tun interface {
	// ReadBatch waits for a packet, then takes what is there without waiting,
	// at most len(pkts). The packets belong to the reader until its next
	// ReadBatch; they may be rewritten but not extended in place.
	ReadBatch(pkts [][]byte) (int, error)
	// WriteBatch gives packets to the host's stack. A packet that the kernel
	// refuses is counted, not reported. It may change the packets' bytes.
	WriteBatch(pkts [][]byte) error
	// Close makes a waiting ReadBatch return ErrClosed.
	Close() error
}

// UDPConn is a UDP socket of one family.
type UDPConn interface {
	// ReadBatch waits for a datagram, then takes what is there without
	// waiting, at most len(msgs). Payloads belong to the reader until its next
	// ReadBatch; they may be rewritten but not extended in place.
	ReadBatch(msgs []Message) (int, error)
	// WriteBatch sends datagrams in order; Datagram.Socket is not looked at. A
	// datagram that the kernel refuses is counted, not reported.
	WriteBatch(dgrams []packet.Datagram) error
	// LocalAddr is the bound address, with the port that the kernel chose.
	LocalAddr() netip.AddrPort
	// Close makes a waiting ReadBatch return ErrClosed.
	Close() error
}

// IPWriter sends whole IPv6 packets: a Tun gives them to the host's stack, a
// Raw6 to the network.
type IPWriter interface {
	WriteBatch(pkts [][]byte) error
}

// Message is one received UDP datagram.
type Message struct {
	// Payload is valid until the next ReadBatch.
	Payload []byte
	// From is the sender.
	From netip.AddrPort
	// To is the local address that the datagram was sent to.
	To netip.Addr
	// Class is the traffic class, DSCP and ECN, that it came with, where [UDPConfig] has Class.
	Class uint8
}

var (
	_ Tun      = (*TUN)(nil)
	_ UDPConn  = (*UDP)(nil)
	_ IPWriter = (*Raw6)(nil)
	_ Tun      = (*Guest6)(nil)
)
