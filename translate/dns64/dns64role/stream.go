// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

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

	"github.com/isthmus-net/isthmus/internal/places"
	"github.com/isthmus-net/isthmus/translate/dns64"
)

const (
	// pipeline bounds the queries of one connection that wait at a time (RFC 7766
	// section 6.2.1.1).
	pipeline = 32
	// shortage is how long no one is let in when the host has no room for connections.
	shortage = 50 * time.Millisecond
	// sendTimeout is how long a client may take to read an answer.
	sendTimeout = 5 * time.Second
)

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
		if one := i.enterStream(conn, from.Addr()); one != nil {
			i.pending.Go(func() { i.serveStream(ctx, conn, one, from) })
		}
	}
}

// enterStream takes a place for a connection, or closes it. Where all are taken, one goes
// of the client that has most, that which has been silent longest (RFC 7766 section
// 6.2.3). Strangers have the share of one client together: their word is all that is
// heard.
func (i *Instance) enterStream(conn *net.TCPConn, from netip.Addr) *places.Place {
	client, known := i.policy.Load().Client(from)
	if !known {
		client = netip.Addr{}
	}
	refuse := func(dns64.Reason) {
		i.counters.connectionsRefused.Add(1)
		_ = conn.Close()
	}
	one, reason := i.streams.enter(client, refuse)
	if one == nil {
		refuse(reason)
	}
	return one
}

// serveStream answers the queries of one connection (RFC 7766), each when its answer is
// there.
func (i *Instance) serveStream(ctx context.Context, conn *net.TCPConn, one *places.Place, from netip.AddrPort) {
	defer i.streams.leave(one)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var pending sync.WaitGroup
	defer pending.Wait()
	slots := make(chan struct{}, pipeline)
	background := func(f func()) {
		slots <- struct{}{}
		pending.Go(func() {
			defer func() { <-slots }()
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
		i.streams.use(one)
		i.handle(ctx, raw, from, true, send, background)
	}
}
