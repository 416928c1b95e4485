// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// Path is an address of the host with the sockets on it, ready for use whether calls go
// there or not.
type Path struct {
	// ID is its owner's number.
	ID int
	// Name is for people.
	Name string
	// Local is the address and port of its SIP sockets, UDP and TCP alike. No two paths have the
	// same: packets say by it where they leave.
	Local netip.AddrPort
	// MTU is that of the way to any peer, 0 if it is not known. A Teredo interface has 1280.
	MTU int
}

const (
	headersUDP6 = 48   // that IPv6 and UDP add to a message
	widestMTU   = 1500 // that is believed: a link may have more, the way to a peer hardly
)

// limits returns the largest request that goes by UDP while there is TCP, and the largest
// that goes by UDP at all (RFC 3261 section 18.1.1).
func (p *Path) limits() (wanted, most int) {
	wanted = message.MaxDatagram(min(p.MTU, widestMTU))
	if p.MTU == 0 {
		return wanted, wanted
	}
	return wanted, p.MTU - headersUDP6
}

// path is a Path in use, until its address is lost.
type path struct {
	Path
	lost bool
}

// write writes a message, in short where the path is narrow (section 7.3.3).
func (p *path) write(m *message.Message) []byte {
	if p != nil && p.MTU > 0 && p.MTU <= 1280 {
		m = m.Clone()
		m.Compact()
	}
	return m.Append(make([]byte, 0, usualHead+len(m.Body)))
}

// usualHead is room for the head of a message, in octets.
const usualHead = 1 << 10

// pathAt is the path of an address, nil if there is none.
func (e *Engine) pathAt(local netip.AddrPort) *path {
	for _, p := range e.paths {
		if p.Local == local {
			return p
		}
	}
	return nil
}

// contact is our Contact on a path. Which transport serves is the sender's choice, by size.
func (e *Engine) contact(p *path) message.Address {
	return message.Address{URI: message.URI{Scheme: "sip", User: e.set.AOR.User, Host: p.Local.Addr().String(), Port: p.Local.Port()}}
}

// AddPath adds a path, on standby until [Engine.Use]. A path whose address changed is a new
// path, with a new number.
func (e *Engine) AddPath(p Path) {
	e.paths[p.ID] = &path{Path: p}
}

// LosePath tells that a path's address is gone: what waits for answers there ends as a
// transport error, at once (RFC 3261 section 17.1.4). Calls go on when another path is in use.
func (e *Engine) LosePath(id int, now time.Time, out *Output) {
	defer e.enter(now, out)()
	p := e.paths[id]
	if p == nil || p.lost {
		return
	}
	p.lost = true
	if e.use == p {
		e.use = nil
	}
	delete(e.paths, id)
	e.layer.FailAll(func(c *transaction.Client) bool { return c.Waiting() && c.To.Local == p.Local }, &e.tx)
	e.settle()
	e.sweep()
	for _, c := range e.sorted() {
		c.leftBehind(p)
	}
}

// RemovePath forgets a path that calls have left, whose sockets its owner closes.
func (e *Engine) RemovePath(id int, now time.Time, out *Output) { e.LosePath(id, now, out) }

// Use has all calls, and the registration, go by a path from now on. Each call is moved at
// once, some calls behind the others, or as soon as what is pending in it has ended. Several
// changes while something is pending are one.
func (e *Engine) Use(id int, now time.Time, out *Output) {
	defer e.enter(now, out)()
	p := e.paths[id]
	if p == nil || p == e.use {
		return
	}
	e.use = p
	e.sweep()
	e.followers = e.sorted()
	for _, c := range e.followers {
		c.usePath()
	}
	e.follow()
	e.reg.move()
	waiting := e.waiting
	e.waiting = nil
	for _, send := range waiting {
		send()
	}
}

// atOnce is how many calls ask their peers to follow before what they ask is sent: of a thousand, the
// first are answered while the last still ask.
const atOnce = 8

// follow has the next calls ask their peers to follow to the path in use. The others are due behind
// this turn.
func (e *Engine) follow() {
	n := min(atOnce, len(e.followers))
	for _, c := range e.followers[:n] {
		c.pursue()
	}
	e.followers = e.followers[n:]
	if len(e.followers) > 0 {
		e.after(e.following, 1)
	}
}

// Using returns the number of the path in use, and whether there is one.
func (e *Engine) Using() (id int, ok bool) {
	if e.use == nil {
		return 0, false
	}
	return e.use.ID, true
}

// sweep has responses leave by the path in use if theirs is gone.
func (e *Engine) sweep() {
	if e.use != nil {
		e.layer.MoveServers(func(local netip.AddrPort) bool { return e.pathAt(local) == nil }, e.use.Local)
	}
}
