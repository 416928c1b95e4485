// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"time"
)

// transferBlock is the unit of the data: pseudo-random, stamped with its
// number, so that a block lost, doubled or moved changes the checksum.
const transferBlock = 64 << 10

// connectLimit bounds the wait for a connection, which needs milliseconds; the rest is for a
// loaded machine.
const connectLimit = time.Minute

// TransferConfig says what to transfer from where.
type TransferConfig struct {
	// Server is the node that listens, at Addr (its own address).
	Server *Node
	Addr   netip.Addr
	// Client is the node that connects, to Dial, if that is not Addr itself but leads there.
	Client *Node
	Dial   netip.Addr
	// Upload has the client send; else it fetches.
	Upload bool
	// Bytes to transfer.
	Bytes int64
}

// TransferResult is what was measured.
type TransferResult struct {
	// Bytes that arrived.
	Bytes int64
	// Connect is the time from the start to the established connection.
	Connect time.Duration
	// Duration is the time from the established connection to the last byte.
	Duration time.Duration
	// Intact reports that what arrived is what was sent.
	Intact bool
}

// Goodput is the rate of the data in bit/s.
func (r TransferResult) Goodput() float64 {
	if r.Duration <= 0 {
		return 0
	}
	return float64(r.Bytes) * 8 / r.Duration.Seconds()
}

// Transfer sends data by TCP from one node to another.
func Transfer(ctx context.Context, c TransferConfig) (r TransferResult, err error) {
	start := time.Now()
	client, server, err := Connect(ctx, c.Client, c.Server, c.Addr, c.Dial)
	if err != nil {
		return r, fmt.Errorf("cannot connect from node %s to %v of node %s: %w", c.Client.name, c.Addr, c.Server.name, err)
	}
	connected := time.Now()
	r.Connect = connected.Sub(start)
	defer client.Close()
	defer server.Close()
	defer context.AfterFunc(ctx, func() { client.Close(); server.Close() })()
	from, to := server, client
	if c.Upload {
		from, to = client, server
	}
	type sent struct {
		sum uint32
		err error
	}
	sender := make(chan sent, 1)
	go func() {
		sum, err := sendData(from, c.Bytes)
		sender <- sent{sum, err}
	}()
	hash := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	r.Bytes, err = io.CopyBuffer(struct{ io.Writer }{hash}, struct{ io.Reader }{to}, make([]byte, transferBlock))
	r.Duration = time.Since(connected)
	if err != nil {
		to.Close()
	}
	s := <-sender
	if err = errors.Join(err, s.err); err != nil {
		return r, fmt.Errorf("the transfer between node %s and node %s broke off: %w", c.Client.name, c.Server.name, err)
	}
	r.Intact = s.sum == hash.Sum32() && r.Bytes == c.Bytes
	return r, nil
}

// Connect connects two nodes by TCP: the server's listens at an address of its own, and the
// client's dials that or, if it is valid, another one that leads there.
func Connect(ctx context.Context, from, to *Node, at, dial netip.Addr) (client, server net.Conn, err error) {
	var listener net.Listener
	err = to.Do(func() (err error) {
		// Multipath TCP, Go's default for listeners, is not what is measured.
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		listener, err = config.Listen(ctx, "tcp", netip.AddrPortFrom(at, 0).String())
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = listener.Accept()
		accepted <- err
	}()
	target := listener.Addr().(*net.TCPAddr).AddrPort()
	if dial.IsValid() {
		target = netip.AddrPortFrom(dial, target.Port())
	}
	err = from.Do(func() (err error) {
		dialer := net.Dialer{Timeout: connectLimit}
		client, err = dialer.DialContext(ctx, "tcp", target.String())
		return err
	})
	if err != nil {
		listener.Close()
	}
	if err = errors.Join(err, <-accepted); err != nil {
		for _, conn := range []net.Conn{client, server} {
			if conn != nil {
				conn.Close()
			}
		}
	}
	return client, server, err
}

// sendData sends the data, closes the connection and gives the checksum.
func sendData(conn net.Conn, size int64) (uint32, error) {
	defer conn.Close()
	table := crc32.MakeTable(crc32.Castagnoli)
	block := make([]byte, transferBlock)
	for i := range block {
		block[i] = byte(i * i >> 3)
	}
	var sum uint32
	for number := uint64(0); size > 0; number++ {
		binary.BigEndian.PutUint64(block, number)
		part := block[:min(size, transferBlock)]
		sum = crc32.Update(sum, table, part)
		if _, err := conn.Write(part); err != nil {
			return sum, err
		}
		size -= int64(len(part))
	}
	return sum, nil
}
