// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ua

import (
	"net/netip"
	"time"

	"github.com/emiago/sipgo/sip"
)

// Path is an address of the host with the sockets on it, ready for use whether calls go
// there or not.
type Path struct {
	// ID is its owner's number, which packets that leave by it carry as their Socket.
	ID int
	// Name is for people.
	Name string
	// Local is the address and port of its SIP sockets, UDP and TCP alike.
	Local netip.AddrPort
	// MTU is that of the way to any peer, 0 if it is not known. A Teredo interface has 1280.
	MTU int
}

// headersUDP6 is what IPv6 and UDP add to a message.
const headersUDP6 = 48

// limits returns the largest request that goes by UDP while there is TCP, and the largest
// that goes by UDP at all (RFC 3261 section 18.1.1).
func (p *Path) limits() (wanted, most int) {
	if p.MTU == 0 {
		return 1300, 1300
	}
	return min(p.MTU-200, 1300), p.MTU - headersUDP6
}

// compact reports whether messages are to be written in short (section 7.3.3).
func (p *Path) compact() bool { return p.MTU > 0 && p.MTU <= 1280 }

// path is a Path in use, until its address is lost.
type path struct {
	Path
	lost bool
}

// contact is the URI by which the host is reached on a path. Which transport serves is the
// sender's choice, by size.
func (e *Engine) contact(p *path) sip.Uri {
	return sip.Uri{Scheme: "sip", User: e.set.AOR.User, Host: host(p.Local.Addr()), Port: int(p.Local.Port())}
}

// host writes an address as URIs and Via have it.
func host(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
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
	e.layer.FailSocket(id, now, &out.Output)
	e.sweep()
}

// RemovePath forgets a path that calls have left, whose sockets its owner closes.
func (e *Engine) RemovePath(id int, now time.Time, out *Output) { e.LosePath(id, now, out) }

// Use has all calls, and the registration, go by a path from now on. Each call is moved at
// once, or as soon as what is pending in it has ended. Several changes while something is
// pending are one.
func (e *Engine) Use(id int, now time.Time, out *Output) {
	defer e.enter(now, out)()
	p := e.paths[id]
	if p == nil || p == e.use {
		return
	}
	e.use = p
	e.sweep()
	for _, c := range e.sorted() {
		c.usePath()
	}
	e.reg.move()
	waiting := e.waiting
	e.waiting = nil
	for _, send := range waiting {
		send()
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
		e.layer.MoveServers(func(socket int) bool { return e.paths[socket] == nil }, e.use.ID)
	}
}
