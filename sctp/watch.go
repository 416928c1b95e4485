// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// lookAgain is how long after the host could not be looked at it is looked at again.
const lookAgain = time.Second

// watch follows the host, until the endpoint is closed. Of changes that come together the last one has it looked at.
func (e *Endpoint) watch(changes <-chan port.Change) {
	var again <-chan time.Time
	for news := false; ; {
		select {
		case c, open := <-changes:
			if !open {
				return
			}
			news = news || c.Kind != port.RouteChanged
		case <-again:
			news = true
		case <-e.finished:
			e.stopWatch()
			return
		}
		if !news || len(changes) > 0 {
			continue
		}
		if news, again = false, nil; e.look() != nil {
			again = time.After(lookAgain)
		}
	}
}

// hostAddresses are those of the host that an endpoint may use.
type hostAddresses struct {
	present map[netip.Addr]bool // whether the link carries packets
	fresh   []netip.Addr        // those that something new may use
	// broadcasts are those of all hosts of its links.
	broadcasts []netip.Addr
}

// look brings the endpoint and its associations up to date with the host.
func (e *Endpoint) look() error {
	now, err := e.listAddresses()
	if err != nil {
		return err
	}
	t := e.begin()
	if !e.closed {
		before := e.present
		e.present, e.local = now.present, now.fresh
		e.engine.SetAddresses(e.local)
		e.engine.SetBroadcasts(now.broadcasts)
		for c := range e.conns {
			c.follow(before, t)
		}
	}
	e.finish(t)
	return nil
}

// follow has an association use the addresses that the host has, as far as the peer takes that: new ones are added,
// those that went are deleted, both in one request, so that one may take the place of the other (RFC 5061 section
// 5.3). Behind a NAT, where the peer knows one address from the set-up, the others come so, too, each by itself. By an
// address whose link is down, or which cannot be deleted, nothing is sent; of links see [Parameters.LinkEvents]. What
// the user has added or removed is left to the user.
func (c *Conn) follow(before map[netip.Addr]bool, t turn) {
	if !c.established() {
		return
	}
	e, locals := c.endpoint, c.a.Locals()
	gone, works := c.followLinks(locals, before, t)
	var changes, unsure []assoc.Change
	onHost := slices.ContainsFunc(locals, netip.Addr.IsLoopback)
	for _, a := range e.local {
		add := assoc.Change{Kind: assoc.AddAddress, Address: a}
		switch {
		case slices.Contains(locals, a), c.byHand[a], a.IsLoopback(), onHost:
		case c.a.Reaches(a) && !(works && c.a.HasRefused(a)):
			changes = append(changes, add)
		case works && (c.a.Reaches(a) || c.a.Takes(a)): // the peer may get an address later that this one reaches
			unsure = append(unsure, add)
		}
	}
	for _, a := range gone {
		changes = append(changes, assoc.Change{Kind: assoc.DeleteAddress, Address: a})
	}
	c.ask(changes, t)
	c.ask(unsure, t)
}

// followLinks tells an association which of its addresses can be sent from. It returns those that the host has no more, and
// whether there is one that works.
func (c *Conn) followLinks(locals []netip.Addr, before map[netip.Addr]bool, t turn) (gone []netip.Addr, works bool) {
	if c.endpoint.present == nil {
		return nil, true // no one looks at the host
	}
	var down []netip.Addr
	for _, a := range locals {
		up, there := c.endpoint.present[a]
		if !there {
			if !c.byHand[a] {
				gone = append(gone, a)
			}
			continue
		}
		works = works || up
		if was, known := before[a]; known && was == up {
			continue
		}
		if up {
			c.a.LinkUp(a, t.now, t.Output)
		} else if c.a.Parameters().LinkEvents {
			down = append(down, a)
		}
	}
	if down = append(down, gone...); len(down) > 0 {
		c.a.LinkDown(down, t.now, t.Output)
	}
	return gone, works
}

// ask has the peer take changes, if it takes any. What cannot be asked for now is when the host is looked at next. Behind a NAT
// each is asked for by itself: of some there is no way to tell the peer (RFC 6951 section 5.7).
func (c *Conn) ask(changes []assoc.Change, t turn) {
	size := max(len(changes), 1)
	if c.endpoint.config.HideAddresses {
		size = 1
	}
	for some := range slices.Chunk(changes, size) {
		_ = c.a.Change(some, t.now, t.Output)
	}
}

// begun brings an association up to date at its beginning, and when the peer has one more address. One that the peer has begun
// again may be one that our user has closed: that holds for the new one, too.
func (c *Conn) begun(t turn) {
	if c.closing {
		c.shutdown(t)
		return
	}
	if c.endpoint.present == nil && !c.endpoint.config.HideAddresses {
		return
	}
	before := c.endpoint.present
	if !c.looked { // a link may have gone down during the set-up
		c.looked, before = true, nil
	}
	c.follow(before, t)
}

// followLater has the association ask again, an interval of heartbeats from now, for all addresses that the peer lacks. One timer
// does for them: each refusal may call this. The endpoint's mutex is held.
func (c *Conn) followLater() {
	if c.later != nil {
		return
	}
	interval := c.a.Parameters().HeartbeatInterval
	if interval <= 0 {
		interval = assoc.Defaults().HeartbeatInterval
	}
	c.later = time.AfterFunc(interval, func() {
		t := c.endpoint.begin()
		c.later = nil
		if !c.endpoint.closed && !c.closing {
			c.follow(c.endpoint.present, t)
		}
		c.endpoint.finish(t)
	})
}

// established reports whether the association is set up, and lives.
func (c *Conn) established() bool { return isClosed(c.ready) && c.ended == nil }
