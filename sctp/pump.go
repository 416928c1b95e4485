// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// turn is one with the engine: what it puts out, and at what time. The endpoint's mutex is held.
type turn struct {
	*assoc.Output
	now time.Time
}

// begin takes the engine. finish must follow.
func (e *Endpoint) begin() turn {
	e.mu.Lock()
	return turn{e.filling, time.Now()}
}

// finish does what events ask for, wakes readers, lets the engine go, and sends what has come out of it.
func (e *Endpoint) finish(t turn) {
	send := e.settle(t)
	if send {
		e.sending = true
	}
	e.mu.Unlock()
	if send {
		e.send()
	}
}

// A user who sends so many messages in a row, each so soon after the one before, is served by a goroutine that sends
// them together. For who sends now and then its start would take longer than to send.
const (
	quickly  = 50 * time.Microsecond
	quickRow = 8
)

// finishSend is finish after a user has sent a message.
func (e *Endpoint) finishSend(t turn) {
	if t.now.Sub(e.lastSend) > quickly {
		e.quickSends = 0
	}
	e.lastSend = t.now
	if e.quickSends++; e.quickSends <= quickRow {
		e.finish(t)
		return
	}
	send := e.settle(t)
	e.mu.Unlock()
	if send {
		e.handOver()
	}
}

// settle ends a turn. It reports whether there are packets that no one is sending.
func (e *Endpoint) settle(t turn) (send bool) {
	e.note(t)
	for i := 0; i < len(e.started); i++ {
		e.started[i].begun(t)
		e.note(t)
	}
	clear(e.started)
	e.started = e.started[:0]
	for _, c := range e.woken {
		if c.credit > 0 {
			c.a.Read(c.credit, t.now, t.Output)
			c.credit = 0
		}
		c.woken = false
		c.inbox.publish()
	}
	clear(e.woken)
	e.woken = e.woken[:0]
	e.note(t) // reading tells of nothing that could be read
	e.arm(t.now)
	if e.closing && len(e.conns) == 0 && !e.empty {
		e.empty = true
		close(e.emptied)
		e.linger(t.now)
	}
	return (len(t.Packets) > 0 || e.closed) && !e.sending
}

// rounds is how often who sends takes along what others have added meanwhile, before a goroutine goes on that does
// nothing else: a reader has packets to read, and a user other things to do.
const rounds = 2

// send sends what has come out of the engine: what comes while packets are being sent is taken along by the same
// goroutine. So packets leave in the order that the engine gave them, and under load many in one system call.
func (e *Endpoint) send() {
	for range rounds {
		if !e.sendRound() {
			return
		}
	}
	e.mu.Lock()
	e.sending = false
	e.mu.Unlock()
	e.handOver()
}

// handOver has sendQuick go on. Most endpoints never need it.
func (e *Endpoint) handOver() {
	e.quickOnce.Do(func() { go e.sendQuick() })
	e.quick.send()
}

// sendRound sends what there is. It returns false if there was nothing: then the caller sends no more.
func (e *Endpoint) sendRound() bool {
	e.mu.Lock()
	if len(e.filling.Packets) == 0 {
		e.sending = false
		release := e.closed && !e.released
		e.released = e.released || release
		e.mu.Unlock()
		if release {
			e.release()
		}
		return false
	}
	out := e.filling
	e.filling, e.leaving = e.leaving, out
	e.mu.Unlock()
	if e.capture.Load() != nil {
		now := time.Now()
		for i := range out.Packets {
			e.captured(now, true, &out.Packets[i])
		}
	}
	e.sockets.write(out.Packets)
	out.Reset()
	return true
}

// sendQuick sends for users who send quickly, and for whoever has sent long enough.
func (e *Endpoint) sendQuick() {
	for {
		select {
		case <-e.quick:
		case <-e.finished:
			return
		}
		e.mu.Lock()
		mine := !e.sending
		e.sending = true
		e.mu.Unlock()
		for mine && e.sendRound() {
			continue
		}
	}
}

// arm has the timer go off when the engine wants it, unless a reader rests, which does what is due when it is back. At a later
// time than it is set for it finds out by itself: that moves with each packet.
func (e *Endpoint) arm(now time.Time) {
	if e.resting > 0 || e.closed {
		return
	}
	next := e.engine.Next()
	if next.IsZero() || !e.armed.IsZero() && !next.Before(e.armed) {
		return
	}
	e.armed = next
	e.timer.Reset(next.Sub(now))
}

// tick is what the timer calls.
func (e *Endpoint) tick() {
	t := e.begin()
	e.armed = time.Time{}
	e.doDue(t)
	e.finish(t)
}

// doDue has the engine do what is due.
func (e *Endpoint) doDue(t turn) {
	if !e.closed {
		e.engine.Tick(t.now, t.Output)
	}
}

// read gives the engine what a socket receives, until it is closed.
func (e *Endpoint) read(s *port.Pairs) {
	msgs := make([]port.Message, port.MaxBatch)
	var pace pace
	rests := false
	for {
		n, err := s.ReadBatch(msgs)
		t := e.begin()
		if rests {
			e.resting--
		}
		if err != nil { // it is closed, or of no use any more
			e.finish(t)
			return
		}
		for i := range msgs[:n] {
			e.handle(&msgs[i], t)
		}
		pace.note(n, t.now)
		if rests = !e.prompt && pace.brisk && t.now.Sub(e.engine.BusyAt()) > restAfter; rests {
			e.resting++
			e.rests++
			if s.Drained() { // an answer that has come is not missed
				e.doDue(t)
			}
		}
		e.finish(t)
		switch {
		case rests && s.Drained():
			s.Rest(rest)
		case rests:
			s.Rest(0) // there may be more
		}
	}
}

// keepPrompt has the endpoint rest no more if an association, or a path of one, has an RTO.Min that is too small for it. The
// endpoint's mutex is held.
func (e *Endpoint) keepPrompt(par *PathParameters) { e.prompt = e.prompt || par.RTOMin < restRTO }

// A socket of an endpoint that has had nothing to do for restAfter but heartbeats, and of those many, is read once in a
// rest, and what is due by the engine's timers waits for that: thousands of associations need no more, and to wake up for each
// packet, or for the clock, takes more than to answer. The first packet that comes for anyone is late by a rest at most, as
// round trips of heartbeats are.
const (
	rest      = 30 * time.Millisecond
	restAfter = time.Second
	// restRTO is the least RTO.Min of an endpoint that rests: with less, an answer that is late by a rest may be missed.
	restRTO = 5 * rest
)

// pace is how fast packets come.
type pace struct {
	since   time.Time
	packets int
	brisk   bool
}

// Brisk are so many packets in a rest, of a time of many. More than floodPackets come together anyway, and a socket of a process
// without privilege may have no room for a rest of them.
const (
	briskPackets = 12
	floodPackets = 150
	paceRests    = 8
)

// note counts packets.
func (p *pace) note(n int, now time.Time) {
	p.packets += n
	if d := now.Sub(p.since); d >= paceRests*rest {
		inRest := time.Duration(p.packets) * rest / d
		p.brisk = inRest >= briskPackets && inRest <= floodPackets
		p.since, p.packets = now, 0
	} else if p.packets > paceRests*floodPackets {
		p.brisk = false
	}
}

// handle gives the engine a packet, if it came to an address that the endpoint is bound to.
func (e *Endpoint) handle(m *port.Message, t turn) {
	if len(e.addr.Hosts) > 0 && !slices.Contains(e.addr.Hosts, m.To) {
		e.notBound++
		return
	}
	from := assoc.Pair{Local: m.To, Remote: m.From.Addr()}
	p := assoc.Packet{Pair: from, Port: m.From.Port(), Octets: m.Payload}
	if e.capture.Load() != nil {
		shown := p // else each packet would be allocated
		e.captured(t.now, false, &shown)
	}
	e.engine.Handle(p, t.now, t.Output)
	e.note(t)
}

// note does what the engine's events ask for. Their data hold until the engine is called again.
func (e *Endpoint) note(t turn) {
	t.observe()
	var refused []*assoc.Association
	for i := range t.Events {
		ev := &t.Events[i]
		c, _ := ev.Association.User.(*Conn)
		switch {
		case ev.Kind == assoc.Accepted:
			if !e.enqueue(ev.Association) {
				refused = append(refused, ev.Association)
			}
		case c != nil:
			c.note(ev)
		}
		if (ev.Kind == assoc.Closed || ev.Kind == assoc.Failed) && ev.Association.Streams() > 0 {
			e.lastEnd = t.now
		}
	}
	clear(t.Events)
	t.Events = t.Events[:0]
	for _, a := range refused {
		a.Abort("no one accepts it", t.Output)
	}
}

// enqueue has an association that a peer has set up wait for Accept, if there is room.
func (e *Endpoint) enqueue(a *assoc.Association) bool {
	c := newConn(e, true)
	c.a = a
	select {
	case e.accepts <- c:
		a.User = c
		e.conns[c] = struct{}{}
		e.started = append(e.started, c)
		return true
	default:
		return false
	}
}
