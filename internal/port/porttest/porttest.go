// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package porttest holds in-memory doubles of the ports, so that the loops of a
// role run in tests without root, sockets or time.
package porttest

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
)

// queueLen is how many packets a double holds each way before a sender waits.
const queueLen = 1024

var (
	_ port.Tun      = (*Tun)(nil)
	_ port.UDPConn  = (*UDP)(nil)
	_ port.IPWriter = (*Tun)(nil)
)

// closer is a channel that is closed once.
type closer struct {
	once sync.Once
	done chan struct{}
}

// Close makes waiting reads return port.ErrClosed.
func (c *closer) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

// closed reports whether Close was called.
func (c *closer) closed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Tun is a port.Tun whose other side is two channels.
type Tun struct {
	closer
	// FromHost carries what the host's stack sends: ReadBatch returns it.
	FromHost chan []byte
	// ToHost carries copies of what WriteBatch is given.
	ToHost chan []byte
}

// NewTun returns an open device.
func NewTun() *Tun {
	return &Tun{
		closer:   closer{done: make(chan struct{})},
		FromHost: make(chan []byte, queueLen),
		ToHost:   make(chan []byte, queueLen),
	}
}

// ReadBatch implements port.Tun.
func (t *Tun) ReadBatch(pkts [][]byte) (int, error) { return readBatch(&t.closer, t.FromHost, pkts) }

// WriteBatch implements port.Tun. It waits when no one takes from ToHost.
func (t *Tun) WriteBatch(pkts [][]byte) error {
	for _, p := range pkts {
		if err := write(&t.closer, t.ToHost, slices.Clone(p)); err != nil {
			return err
		}
	}
	return nil
}

// UDP is a port.UDPConn whose other side is two channels.
type UDP struct {
	closer
	// In carries datagrams from the network: ReadBatch returns them.
	In chan port.Message
	// Out carries copies of what WriteBatch is given.
	Out   chan packet.Datagram
	local netip.AddrPort
}

// NewUDP returns an open socket bound to local.
func NewUDP(local netip.AddrPort) *UDP {
	return &UDP{
		closer: closer{done: make(chan struct{})},
		In:     make(chan port.Message, queueLen),
		Out:    make(chan packet.Datagram, queueLen),
		local:  local,
	}
}

// Deliver puts a datagram from the network into the socket. The payload is
// copied.
func (u *UDP) Deliver(from netip.AddrPort, payload []byte) {
	u.In <- port.Message{Payload: slices.Clone(payload), From: from, To: u.local.Addr()}
}

// ReadBatch implements port.UDPConn.
func (u *UDP) ReadBatch(msgs []port.Message) (int, error) { return readBatch(&u.closer, u.In, msgs) }

// WriteBatch implements port.UDPConn. It waits when no one takes from Out.
func (u *UDP) WriteBatch(dgrams []packet.Datagram) error {
	for _, d := range dgrams {
		d.Payload = slices.Clone(d.Payload)
		if err := write(&u.closer, u.Out, d); err != nil {
			return err
		}
	}
	return nil
}

// LocalAddr implements port.UDPConn.
func (u *UDP) LocalAddr() netip.AddrPort { return u.local }

// readBatch waits for one item, then takes what is there.
func readBatch[T any](c *closer, from <-chan T, into []T) (int, error) {
	if c.closed() {
		return 0, port.ErrClosed
	}
	n := 0
	select {
	case <-c.done:
		return 0, port.ErrClosed
	case into[0] = <-from:
		n = 1
	}
	for n < min(len(into), port.MaxBatch) {
		select {
		case into[n] = <-from:
			n++
		default:
			return n, nil
		}
	}
	return n, nil
}

// write hands an item to the other side.
func write[T any](c *closer, to chan<- T, item T) error {
	if c.closed() {
		return port.ErrClosed
	}
	select {
	case <-c.done:
		return port.ErrClosed
	case to <- item:
		return nil
	}
}
