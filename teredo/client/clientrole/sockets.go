// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo/client"
)

// randomSockets are the sockets of a client beside that of its service port. The
// engine says when one opens and closes; its number is bounded there.
//
// A socket belongs to the network namespace of the thread that opens it, which
// only the goroutine of Run has. So that one opens them, while the loop whose
// packets need the socket waits: it is a matter of microseconds, and happens once
// in a peer's life.
type randomSockets struct {
	open  chan openSocket
	done  chan struct{}   // closed when nobody serves open any more
	group *errgroup.Group // of the goroutines that read; set before the engine starts

	mu    sync.Mutex
	conn  map[int]*port.UDP
	ended bool
}

// openSocket asks for a socket.
type openSocket struct {
	at     netip.AddrPort
	opened chan<- *port.UDP // nil when it failed
}

func newRandomSockets() *randomSockets {
	return &randomSockets{open: make(chan openSocket), done: make(chan struct{}), conn: map[int]*port.UDP{}}
}

// serve opens sockets on the calling thread until ctx is done.
func (r *randomSockets) serve(ctx context.Context) {
	defer close(r.done)
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-r.open:
			conn, err := port.ListenUDP(port.UDPConfig{Addr: q.at, Small: true})
			if err != nil {
				conn = nil
			}
			q.opened <- conn
		}
	}
}

// listen has a socket opened; nil is a failure.
func (r *randomSockets) listen(at netip.AddrPort) *port.UDP {
	opened := make(chan *port.UDP, 1)
	select {
	case r.open <- openSocket{at, opened}:
		return <-opened
	case <-r.done:
		return nil
	}
}

// port is the local port of a socket, if it is open.
func (r *randomSockets) port(index int) (uint16, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if conn := r.conn[index]; conn != nil {
		return conn.LocalAddr().Port(), true
	}
	return 0, false
}

// keep remembers a socket, for drop and close.
func (r *randomSockets) keep(index int, conn *port.UDP) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		_ = conn.Close()
		return
	}
	r.conn[index] = conn
}

// drop closes a socket.
func (r *randomSockets) drop(index int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if conn := r.conn[index]; conn != nil {
		_ = conn.Close()
		delete(r.conn, index)
	}
}

// close closes all, and what is opened later.
func (r *randomSockets) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for i, conn := range r.conn {
		_ = conn.Close()
		delete(r.conn, i)
	}
}

// changeSockets does what the engine asks for; the loop holds its mutex.
func (c *Client) changeSockets(changes []client.SocketChange) {
	for _, s := range changes {
		if s.Port == 0 {
			c.loop.SetSocket(s.Socket, nil)
			c.sockets.drop(s.Socket)
			continue
		}
		conn := c.sockets.listen(netip.AddrPortFrom(c.conn.LocalAddr().Addr(), s.Port))
		if conn == nil {
			// Not at once: the engine is in the middle of a call.
			c.sockets.group.Go(func() error {
				c.loop.Do(func(time.Time, *client.Out) { c.engine.SocketFailed(s.Socket, s.Port) })
				return nil
			})
			continue
		}
		c.sockets.keep(s.Socket, conn)
		c.loop.SetSocket(s.Socket, conn)
		c.sockets.group.Go(func() error {
			return c.loop.ReadUDP(conn, func(m *port.Message, now time.Time, out *client.Out) {
				c.engine.HandleUDPOn(s.Socket, m.From, m.Payload, now, out)
			})
		})
	}
}
