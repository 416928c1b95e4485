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
// 5.3). By an address whose link is down, or which cannot be deleted, nothing is sent; of links see
// [Parameters.LinkEvents].
func (c *Conn) follow(before map[netip.Addr]bool, t turn) {
	if !c.established() {
		return
	}
	e := c.endpoint
	var changes []assoc.Change
	var down []netip.Addr
	for _, a := range e.local {
		if !slices.Contains(c.locals, a) && !a.IsLoopback() && !c.isLocalOnly() && c.a.Reaches(a) {
			changes = append(changes, assoc.Change{Kind: assoc.AddAddress, Address: a})
		}
	}
	for _, a := range c.locals {
		up, there := e.present[a]
		if !there {
			down = append(down, a)
			changes = append(changes, assoc.Change{Kind: assoc.DeleteAddress, Address: a})
			continue
		}
		if was, known := before[a]; known && was == up {
			continue
		}
		if up {
			c.a.LinkUp(a, t.now, t.Output)
		} else if c.a.Parameters().LinkEvents {
			down = append(down, a)
		}
	}
	if len(down) > 0 {
		c.a.LinkDown(down, t.now, t.Output)
	}
	if e.config.HideAddresses {
		return // the peer would not find the host by them (RFC 6951 section 5.7)
	}
	if len(changes) > 0 && c.a.Change(changes, t.now, t.Output) == nil {
		c.locals = apply(c.locals, changes)
	}
}

// apply returns the addresses after changes.
func apply(list []netip.Addr, changes []assoc.Change) []netip.Addr {
	for _, change := range changes {
		at := slices.Index(list, change.Address)
		switch {
		case change.Kind == assoc.AddAddress && at < 0:
			list = append(list, change.Address)
		case change.Kind == assoc.DeleteAddress && at >= 0:
			list = slices.Delete(list, at, at+1)
		}
	}
	return list
}

// begun notes the addresses that an association has at its beginning, and brings it up to date. One that the peer has begun
// again may be one that our user has closed: that holds for the new one, too.
func (c *Conn) begun(t turn) {
	if c.closing {
		c.shutdown(t)
		return
	}
	c.locals = nil
	for _, p := range c.a.Status().Paths {
		if !slices.Contains(c.locals, p.Local) {
			c.locals = append(c.locals, p.Local)
		}
	}
	if c.endpoint.present != nil {
		c.follow(c.endpoint.present, t)
	}
}

// established reports whether the association is set up, and lives.
func (c *Conn) established() bool { return isClosed(c.ready) && c.ended == nil }

// isLocalOnly reports whether the peer is on this host.
func (c *Conn) isLocalOnly() bool { return len(c.locals) > 0 && c.locals[0].IsLoopback() }
