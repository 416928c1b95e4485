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

// TransferConfig says what to fetch from where.
type TransferConfig struct {
	// Server is the node that serves, at Addr (its own address).
	Server *Node
	Addr   netip.Addr
	// Client is the node that fetches.
	Client *Node
	// Bytes to transfer.
	Bytes int64
}

// TransferResult is what the client measured.
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

// Transfer serves data by TCP in one node and fetches it in another.
func Transfer(ctx context.Context, c TransferConfig) (TransferResult, error) {
	var listener net.Listener
	err := c.Server.Do(func() (err error) {
		// Multipath TCP, Go's default for listeners, is not what is measured.
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		listener, err = config.Listen(ctx, "tcp", netip.AddrPortFrom(c.Addr, 0).String())
		return err
	})
	if err != nil {
		return TransferResult{}, fmt.Errorf("cannot serve a transfer in node %s: %w", c.Server.name, err)
	}
	defer listener.Close()
	type served struct {
		sum uint32
		err error
	}
	server := make(chan served, 1)
	go func() {
		sum, err := serveOnce(ctx, listener, c.Bytes)
		server <- served{sum, err}
	}()
	result, sum, err := fetch(ctx, c.Client, listener.Addr().String())
	if err != nil {
		listener.Close()
		return result, fmt.Errorf("cannot fetch in node %s from %v: %w", c.Client.name, c.Addr, errors.Join(err, (<-server).err))
	}
	s := <-server
	result.Intact = s.err == nil && s.sum == sum && result.Bytes == c.Bytes
	return result, s.err
}

// serveOnce sends the data to the first client and gives its checksum.
func serveOnce(ctx context.Context, listener net.Listener, size int64) (uint32, error) {
	conn, err := listener.Accept()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
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

// fetch reads to the end and gives the checksum of what came.
func fetch(ctx context.Context, client *Node, server string) (r TransferResult, sum uint32, err error) {
	var conn net.Conn
	start := time.Now()
	err = client.Do(func() (err error) {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, "tcp", server)
		return err
	})
	if err != nil {
		return r, 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	connected := time.Now()
	r.Connect = connected.Sub(start)
	hash := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	r.Bytes, err = io.CopyBuffer(struct{ io.Writer }{hash}, struct{ io.Reader }{conn}, make([]byte, transferBlock))
	r.Duration = time.Since(connected)
	return r, hash.Sum32(), err
}
