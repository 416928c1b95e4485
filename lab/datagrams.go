// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

// datagramHeader is the sequence number at the start of each datagram.
const datagramHeader = 8

// DatagramConfig says what constant stream of UDP to send.
type DatagramConfig struct {
	From, To *Node
	Addr     netip.Addr // of To
	Local    netip.Addr // of From, the kernel's choice if not valid
	Size     int        // payload bytes of a datagram, at least 8
	// Rate of datagrams per second, kept by absolute times.
	Rate int
	// Count of datagrams, of which the first Skip do not count in the result:
	// while queues fill, nothing is lost.
	Count, Skip int
	// Timeout after the last one, 2 s if 0.
	Timeout time.Duration
}

// DatagramResult is what became of the stream, without the skipped part.
type DatagramResult struct {
	Sent, Received int
	// Reordered counts datagrams that came after a later one.
	Reordered int
	// Span is the time from the first to the last that arrived.
	Span time.Duration
}

// Rate is that of the datagrams that arrived, in bit/s of packets of so many bytes.
func (r DatagramResult) Rate(size int) float64 {
	if r.Span <= 0 {
		return 0
	}
	return float64((r.Received-1)*size*8) / r.Span.Seconds()
}

// Loss is the share of datagrams that did not arrive, 0 to 1.
func (r DatagramResult) Loss() float64 {
	if r.Sent == 0 {
		return 0
	}
	return 1 - float64(r.Received)/float64(r.Sent)
}

// Datagrams sends a constant stream of UDP from one node to another.
func Datagrams(ctx context.Context, c DatagramConfig) (DatagramResult, error) {
	if c.Size < datagramHeader || c.Rate < 1 || c.Count < 1 || c.Skip >= c.Count {
		return DatagramResult{}, fmt.Errorf("no stream of datagrams can be sent as %+v", c)
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Second
	}
	var receiver, sender *net.UDPConn
	err := c.To.Do(func() (err error) {
		receiver, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.Addr, 0)))
		return err
	})
	if err != nil {
		return DatagramResult{}, err
	}
	defer receiver.Close()
	err = c.From.Do(func() (err error) {
		var local *net.UDPAddr
		if c.Local.IsValid() {
			local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.Local, 0))
		}
		sender, err = net.DialUDP("udp", local, receiver.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		return DatagramResult{}, err
	}
	defer sender.Close()
	received := make(chan DatagramResult, 1)
	go func() { received <- c.receive(receiver) }()
	err = c.send(ctx, sender)
	_ = receiver.SetReadDeadline(time.Now().Add(c.Timeout))
	r := <-received
	r.Sent = c.Count - c.Skip
	return r, err
}

func (c DatagramConfig) send(ctx context.Context, conn *net.UDPConn) error {
	b := make([]byte, c.Size)
	start := time.Now()
	for i := range c.Count {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(c.Rate))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(due)):
		}
		binary.BigEndian.PutUint64(b, uint64(i))
		if _, err := conn.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// receive counts until all have come or the read deadline passes.
func (c DatagramConfig) receive(conn *net.UDPConn) (r DatagramResult) {
	b := make([]byte, c.Size)
	latest := -1
	var first time.Time
	for latest < c.Count-1 {
		n, err := conn.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return r
		}
		if err != nil || n < datagramHeader {
			continue
		}
		number := int(binary.BigEndian.Uint64(b))
		if number >= c.Skip {
			r.Received++
			if first.IsZero() {
				first = time.Now()
			}
			r.Span = time.Since(first)
			if number < latest {
				r.Reordered++
			}
		}
		latest = max(latest, number)
	}
	return r
}
