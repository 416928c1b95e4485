// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// batch is what one turn with the engine puts out.
type batch struct {
	assoc.Output
	now     time.Time
	woken   []*Conn              // have something for their readers
	refused []*assoc.Association // for whom there is no room to wait
	write   [2][]port.Paired
}

// begin takes the engine. finish must follow.
func (e *Endpoint) begin() *batch {
	e.mu.Lock()
	var b *batch
	if last := len(e.idle) - 1; last >= 0 {
		b, e.idle = e.idle[last], e.idle[:last]
	} else {
		b = &batch{}
	}
	b.now = time.Now()
	return b
}

// finish does what events ask for, lets the engine go, wakes readers and sends.
func (e *Endpoint) finish(b *batch) {
	e.note(b)
	for i := 0; i < len(b.woken); i++ {
		c := b.woken[i]
		if c.credit > 0 {
			c.a.Read(c.credit, b.now, &b.Output)
			c.credit = 0
			e.note(b)
		}
		c.woken = false
	}
	last := e.closing && len(e.conns) == 0 && !e.closed
	if last {
		e.closed = true
		e.timer.Stop()
	}
	e.arm(b.now)
	e.sending.Lock()
	e.mu.Unlock()
	for _, c := range b.woken {
		c.inbox.more.send()
	}
	e.sockets.write(b)
	e.sending.Unlock()
	if last {
		e.release()
	}
	clear(b.woken)
	b.woken = b.woken[:0]
	b.Reset()
	e.mu.Lock()
	e.idle = append(e.idle, b)
	e.mu.Unlock()
}

// release closes the sockets.
func (e *Endpoint) release() {
	e.sockets.close()
	e.host.Close()
	close(e.finished)
}

// arm has the timer go off when the engine wants it. At a later time than it is set for it finds out by itself: that
// moves with each packet.
func (e *Endpoint) arm(now time.Time) {
	next := e.engine.Next()
	if e.closed || next.IsZero() || !e.armed.IsZero() && !next.Before(e.armed) {
		return
	}
	e.armed = next
	e.timer.Reset(next.Sub(now))
}

// tick is what the timer calls.
func (e *Endpoint) tick() {
	b := e.begin()
	e.armed = time.Time{}
	if !e.closed {
		e.engine.Tick(b.now, &b.Output)
	}
	e.finish(b)
}

// read gives the engine what a socket receives, until it is closed.
func (e *Endpoint) read(s *port.Pairs) {
	msgs := make([]port.Message, port.MaxBatch)
	for {
		n, err := s.ReadBatch(msgs)
		if err != nil {
			return
		}
		b := e.begin()
		for i := range msgs[:n] {
			m := &msgs[i]
			if e.has(m.To) {
				e.engine.Handle(assoc.Packet{Pair: assoc.Pair{Local: m.To, Remote: m.From.Addr()}, Port: m.From.Port(), Octets: m.Payload}, b.now, &b.Output)
				e.note(b)
			}
		}
		e.finish(b)
	}
}

// has reports whether an address is one that the endpoint is bound to.
func (e *Endpoint) has(a netip.Addr) bool {
	for _, host := range e.addr.Hosts {
		if host == a {
			return true
		}
	}
	return len(e.addr.Hosts) == 0
}

// note does what the engine's events ask for. They hold until it is called again.
func (e *Endpoint) note(b *batch) {
	for i := range b.Events {
		ev := &b.Events[i]
		c, _ := ev.Association.User.(*Conn)
		switch {
		case ev.Kind == assoc.Accepted:
			e.enqueue(ev.Association, b)
		case c != nil:
			c.note(ev, b)
		}
	}
	clear(b.Events)
	b.Events = b.Events[:0]
	for len(b.refused) > 0 {
		a := b.refused[0]
		b.refused = b.refused[1:]
		a.Abort("no one accepts", &b.Output)
	}
}

// enqueue has an association that a peer has set up wait for Accept.
func (e *Endpoint) enqueue(a *assoc.Association, b *batch) {
	c := newConn(e, true)
	c.a = a
	select {
	case e.accepts <- c:
		a.User = c
		e.conns[c] = struct{}{}
	default:
		b.refused = append(b.refused, a)
	}
}
