// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// pipeline bounds the queries of one connection that wait at a time (RFC 7766
	// section 6.2.1.1).
	pipeline = 32
	// shareOfOne is which part of all connections one client may have.
	shareOfOne = 8
	// leastIdle is how long a connection is never closed for another.
	leastIdle = time.Second
	// shortage is how long nobody is let in when the host has no room for connections.
	shortage = 50 * time.Millisecond
	// sendTimeout is how long a client may take to read an answer.
	sendTimeout = 5 * time.Second
)

// streams are the TCP connections, in all and by client: an IPv4 address or an IPv6 /64, in
// which a host can take any address.
type streams struct {
	mu    sync.Mutex
	limit int
	open  map[*stream]bool
	by    map[netip.Prefix]int
}

// stream is one connection.
type stream struct {
	conn   *net.TCPConn
	client netip.Prefix
	heard  time.Time // when it was made, or its last query came
}

const (
	clientBits4 = 32
	clientBits6 = 64
)

// clientOf returns whose connection it is.
func clientOf(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := clientBits6
	if from.Is4() {
		bits = clientBits4
	}
	return netip.PrefixFrom(from, bits).Masked()
}

func (s *streams) set(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	if s.by == nil {
		s.open, s.by = make(map[*stream]bool), make(map[netip.Prefix]int)
	}
}

func (s *streams) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// enter takes a place for a connection; nil if there is none. Where all are taken, the
// connection goes that has been silent longest (RFC 7766 section 6.2.3): of the same
// client, if that one has its share. closed tells that one went.
func (s *streams) enter(conn *net.TCPConn, from netip.Addr, now time.Time) (one *stream, closed bool) {
	one = &stream{conn, clientOf(from), now}
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.by[one.client] >= max(s.limit/shareOfOne, 1)
	if share || len(s.open) >= s.limit {
		idlest := s.idlest(func(o *stream) bool { return !share || o.client == one.client })
		if idlest == nil || now.Sub(idlest.heard) < leastIdle {
			return nil, false
		}
		s.remove(idlest)
		_ = idlest.conn.Close()
		closed = true
	}
	s.open[one] = true
	s.by[one.client]++
	return one, closed
}

// idlest returns which of some connections has been silent longest; s.mu is held.
func (s *streams) idlest(among func(*stream) bool) (found *stream) {
	for one := range s.open {
		if among(one) && (found == nil || one.heard.Before(found.heard)) {
			found = one
		}
	}
	return found
}

// asked notes that a query came.
func (s *streams) asked(one *stream, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.heard = now
}

func (s *streams) leave(one *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(one)
}

// remove gives a place back, once; s.mu is held.
func (s *streams) remove(one *stream) {
	if !s.open[one] {
		return
	}
	delete(s.open, one)
	if s.by[one.client]--; s.by[one.client] == 0 {
		delete(s.by, one.client)
	}
}

// serveTCP takes connections until the socket is closed.
func (i *Instance) serveTCP(ctx context.Context, listener *net.TCPListener) error {
	for {
		conn, err := listener.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if temporary(err) {
				i.counters.connectionsRefused.Add(1)
				time.Sleep(shortage)
				continue
			}
			return fmt.Errorf("cannot take connections on %s: %w", listener.Addr(), err)
		}
		from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
		one, closed := i.streams.enter(conn, from.Addr(), time.Now())
		if closed || one == nil {
			i.counters.connectionsRefused.Add(1)
		}
		if one == nil {
			_ = conn.Close()
			continue
		}
		i.pending.Go(func() { i.serveStream(ctx, one, from) })
	}
}

// serveStream answers the queries of one connection (RFC 7766), each when its answer is
// there.
func (i *Instance) serveStream(ctx context.Context, one *stream, from netip.AddrPort) {
	conn := one.conn
	defer i.streams.leave(one)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var pending sync.WaitGroup
	defer pending.Wait()
	places := make(chan struct{}, pipeline)
	background := func(f func()) {
		places <- struct{}{}
		pending.Go(func() {
			defer func() { <-places }()
			f()
		})
	}
	var sending sync.Mutex
	send := func(b []byte) {
		framed := append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(b)), uint16(len(b))), b...)
		sending.Lock()
		defer sending.Unlock()
		_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
		if _, err := conn.Write(framed); err != nil {
			i.counters.unsent.Add(1)
			_ = conn.Close()
		}
	}
	var length [2]byte
	for {
		_ = conn.SetReadDeadline(time.Now().Add(time.Duration(i.idle.Load())))
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		raw := make([]byte, min(int(binary.BigEndian.Uint16(length[:])), maxQuery))
		if _, err := io.ReadFull(conn, raw); err != nil || len(raw) < int(binary.BigEndian.Uint16(length[:])) {
			return
		}
		i.counters.tcp.Add(1)
		i.streams.asked(one, time.Now())
		i.handle(ctx, raw, from, true, send, background)
	}
}
