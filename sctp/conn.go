// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sctp/assoc"
	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// Conn is an association. As a net.Conn it is a stream of octets, in the order in which messages come: Write sends
// ordered messages of stream 0, and Read forgets where one ends. [Conn.WriteMessage] and [Conn.ReadMessage] know
// streams and messages.
type Conn struct {
	endpoint *Endpoint
	a        *assoc.Association
	inbox    inbox
	writable signal
	reading  deadline
	writing  deadline
	ready    chan struct{} // closed when it is set up
	done     chan struct{} // closed when it has ended

	// The endpoint's mutex holds these.
	byHand    map[netip.Addr]bool // addresses that the user has added, or removed: they do not follow the host
	credit    int                 // cost of what was read, for the engine
	woken     bool                // the turn with the engine knows that the reader is to be woken
	closing   bool                // nothing more is to be sent
	shut      bool                // nor read
	peer      bool                // has shut down
	restarted bool                // the peer has, and no writer knows yet
	looked    bool                // at the host's links, since it is set up
	ended     error
	remote    Addr    // at the end
	waiting   []Event // until someone asks for the channel
	events    chan Event
	lost      int         // events, since the last one that was not
	later     *time.Timer // of followLater; nil while none runs
	observer  func(time.Time, *Passage)
}

var _ net.Conn = (*Conn)(nil)

// newConn makes one. An association that a peer has set up is ready.
func newConn(e *Endpoint, ready bool) *Conn {
	c := &Conn{endpoint: e, writable: newSignal(), ready: make(chan struct{}), done: make(chan struct{})}
	c.inbox.more = newSignal()
	c.inbox.quota = max(e.par.ReceiveBuffer/4, 1)
	if ready {
		close(c.ready)
	}
	return c
}

// note does what an event asks for. Behind the end there is nothing to be done: the channel of events is closed.
func (c *Conn) note(ev *assoc.Event) {
	if c.ended != nil {
		return
	}
	switch ev.Kind {
	case assoc.Connected:
		close(c.ready)
		c.endpoint.started = append(c.endpoint.started, c)
		return
	case assoc.Received:
		c.credit += c.inbox.put(&ev.Data)
		c.wake()
		return
	case assoc.Truncated:
		c.inbox.putError(ErrTruncated, messageInfo(&ev.Data))
		c.wake()
		return
	case assoc.Writable:
		c.writable.send()
		return
	case assoc.Restarted:
		c.restarted, c.peer = true, false
		c.endpoint.started = append(c.endpoint.started, c)
		c.inbox.reopen()
		c.inbox.putError(ErrRestarted, MessageInfo{})
		c.wake()
	case assoc.AddressAdded:
		if !c.closing { // it may be the first that an address of ours reaches
			c.endpoint.started = append(c.endpoint.started, c)
		}
	case assoc.ChangeRefused:
		if c.endpoint.config.HideAddresses && ev.Cause == chunk.CauseUnresolvableAddress { // no packet from there has come: it may have been too early
			c.followLater()
		}
	case assoc.PeerShutdown:
		c.peer = true
		c.inbox.finish(io.EOF)
		c.writable.send()
	}
	c.tell(ev)
	switch ev.Kind {
	case assoc.Closed:
		c.end(io.EOF)
	case assoc.Failed:
		c.end(&Error{ev.Reason, ev.Cause, ev.Text, !isClosed(c.ready)})
	}
}

// wake has the reader look when the turn is over.
func (c *Conn) wake() {
	if !c.woken {
		c.woken = true
		c.endpoint.woken = append(c.endpoint.woken, c)
	}
}

// end is that of the association.
func (c *Conn) end(err error) {
	c.ended, c.remote = err, c.peerAddr()
	delete(c.endpoint.conns, c)
	c.inbox.finish(err)
	if c.events != nil {
		close(c.events)
	}
	close(c.done)
}

// failure is why the association has ended.
func (c *Conn) failure() error {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	return c.ended
}

// Read implements net.Conn. Without room for an octet it does not wait.
func (c *Conn) Read(b []byte) (int, error) {
	n, _, err := c.read(b)
	if err != nil && err != io.EOF {
		err = c.opError("read", err)
	}
	return n, err
}

// read waits for octets.
func (c *Conn) read(b []byte) (int, MessageInfo, error) {
	for {
		if err := c.reading.err(); err != nil {
			return 0, MessageInfo{}, c.inbox.orClosed(err)
		}
		if len(b) == 0 {
			return 0, MessageInfo{}, c.inbox.orClosed(nil)
		}
		n, info, credit, some, err := c.inbox.read(b)
		if credit > 0 {
			c.give(credit)
		}
		if some {
			return n, info, err
		}
		select {
		case <-c.inbox.more:
		case <-c.reading.wait():
		}
	}
}

// give has the engine know what was read.
func (c *Conn) give(credit int) {
	t := c.endpoint.begin()
	if c.ended == nil {
		c.a.Read(credit, t.now, t.Output)
	}
	c.endpoint.finish(t)
}

// maxWrite is the largest message that Write makes.
const maxWrite = 32 << 10

// Write implements net.Conn. What is larger than 32 KiB becomes several messages.
func (c *Conn) Write(b []byte) (n int, err error) {
	largest := min(maxWrite, c.endpoint.par.SendBuffer)
	for first := true; first || n < len(b); first = false {
		m := assoc.Message{User: b[n:min(len(b), n+largest)]}
		if err := c.send(&m); err != nil {
			return n, c.opError("write", err)
		}
		n += len(m.User)
	}
	return n, nil
}

// send sends a message, and waits for room.
func (c *Conn) send(m *assoc.Message) error {
	for {
		late := c.writing.err()
		t := c.endpoint.begin()
		err := c.mayWrite()
		switch {
		case err != nil:
		case late != nil:
			err = late
		case len(m.User) > 0:
			err = c.a.Send(*m, t.now, t.Output)
		}
		c.endpoint.finishSend(t)
		if err != assoc.ErrBlocked {
			c.writable.send() // for the next writer
			return err
		}
		select {
		case <-c.writable:
		case <-c.done:
		case <-c.writing.wait():
		}
	}
}

// mayWrite is why nothing can be sent.
func (c *Conn) mayWrite() error {
	switch {
	case c.closing:
		return net.ErrClosed
	case c.ended != nil && c.ended != io.EOF:
		return c.ended
	case c.ended != nil, c.peer:
		return errPeerShutdown
	case c.restarted:
		c.restarted = false
		return ErrRestarted
	}
	return nil
}

// LocalAddr implements net.Conn: all addresses that the association has on this host, or those of the endpoint while it
// is not set up.
func (c *Conn) LocalAddr() net.Addr {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	here := c.endpoint.addr
	if isClosed(c.ready) {
		here.Hosts = c.a.Locals()
	}
	return &here
}

// RemoteAddr implements net.Conn: all addresses that the peer has now.
func (c *Conn) RemoteAddr() net.Addr {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	if c.ended != nil {
		return &c.remote
	}
	now := c.peerAddr()
	return &now
}

func (c *Conn) peerAddr() (a Addr) {
	a.Hosts, a.Port, a.UDP = c.a.Remote()
	return a
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(t, &c.reading, &c.writing) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, &c.reading) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, &c.writing) }

// setDeadline sets some of the two, unless the association is closed.
func (c *Conn) setDeadline(t time.Time, list ...*deadline) error {
	if err := c.inbox.orClosed(nil); err != nil {
		return c.opError("set deadline", err)
	}
	for _, d := range list {
		d.at(t)
	}
	return nil
}

// Endpoint returns what the association is one of.
func (c *Conn) Endpoint() *Endpoint { return c.endpoint }

// CloseWrite ends the association when all that was written is acknowledged (RFC 9260 section 9.2). Until then, and
// until the peer has written what it had begun with, messages come and can be read.
func (c *Conn) CloseWrite() error {
	t := c.endpoint.begin()
	was := c.closing
	if !was {
		c.closing = true
		c.shutdown(t)
	}
	c.endpoint.finish(t)
	if was {
		return c.opError("close", net.ErrClosed)
	}
	return nil
}

// Close is CloseWrite, and reads no more. What was written is delivered behind it: a peer that does not take it ends
// the association by an error, or when it has taken nothing for five times RTO.Max; so long it has for the rest of the end, too.
func (c *Conn) Close() error {
	t := c.endpoint.begin()
	was := c.shut
	if !was {
		c.close(t)
	}
	c.endpoint.finish(t)
	if was {
		return c.opError("close", net.ErrClosed)
	}
	return nil
}

func (c *Conn) close(t turn) {
	c.shut, c.closing = true, true
	credit := c.inbox.close()
	if c.ended == nil {
		c.a.Read(credit, t.now, t.Output)
	}
	c.shutdown(t)
}

func (c *Conn) shutdown(t turn) {
	c.writable.send()
	if c.ended == nil {
		c.a.Shutdown(t.now, t.Output)
	}
}

// Shutdown is CloseWrite, and waits until the association has ended: the peer has all that was sent. When ctx is
// done before, it aborts the association.
func (c *Conn) Shutdown(ctx context.Context) error {
	_ = c.CloseWrite() // or it was called before
	select {
	case <-c.done:
		if err := c.failure(); err != io.EOF {
			return c.opError("shutdown", err)
		}
		return nil
	case <-ctx.Done():
		c.abort("shutdown takes too long")
		return c.opError("shutdown", ctx.Err())
	}
}

// Abort ends the association at once, and tells the peer why. What was not delivered is lost.
func (c *Conn) Abort(reason string) {
	c.abort(reason)
}

func (c *Conn) abort(reason string) {
	t := c.endpoint.begin()
	if c.ended == nil {
		c.a.Abort(reason, t.Output)
	}
	c.endpoint.finish(t)
}

func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: c.endpoint.network.name, Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
