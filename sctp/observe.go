// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"time"

	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// Passage is a DATA chunk that was sent or has come: by which path, with which TSN, and why.
type Passage = assoc.Passage

// PassageKind says why a chunk was sent, or how it has come.
type PassageKind = assoc.PassageKind

// Kinds of passages.
const (
	SentNew    = assoc.SentNew    // for the first time
	SentLate   = assoc.SentLate   // again, after a timeout
	SentFast   = assoc.SentFast   // again, after three reports that it is missing
	SentCopy   = assoc.SentCopy   // a copy by another path, since one is silent: see Parameters.EarlyProbe
	SentMoved  = assoc.SentMoved  // again, when the other path has answered
	Arrived    = assoc.Arrived    // for the first time
	Duplicated = assoc.Duplicated // once more
)

// Packet is a packet of SCTP, without headers of IP and UDP.
type Packet = assoc.Packet

// Observe has f called for each DATA chunk of the association from now on, in their order, and with the time at which
// the engine had it; nil ends that. f must neither wait nor call the endpoint, and the passage is its own only until it
// returns.
func (c *Conn) Observe(f func(at time.Time, p *Passage)) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.observer = f
	c.a.Observe(f != nil)
}

// Capture has f called for each packet that the endpoint sends or has received from now on; nil ends that. Several
// goroutines call it. It must neither wait nor call the endpoint, and the packet is its own only until it returns.
func (e *Endpoint) Capture(f func(at time.Time, sent bool, p *Packet)) {
	if f == nil {
		e.capture.Store(nil)
		return
	}
	e.capture.Store(&f)
}

// captured shows a packet to who captures.
func (e *Endpoint) captured(at time.Time, sent bool, p *Packet) {
	if f := e.capture.Load(); f != nil {
		(*f)(at, sent, p)
	}
}

// observe tells who observes of chunks.
func (t turn) observe() {
	for i := range t.Passages {
		p := &t.Passages[i]
		if c, _ := p.Association.User.(*Conn); c != nil && c.observer != nil {
			c.observer(t.now, p)
		}
	}
	clear(t.Passages)
	t.Passages = t.Passages[:0]
}
