// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// The paths to a node, by its ports: see [Socket].
const (
	pathV0 = iota
	pathControl
	pathUser
	numPaths = ports
)

// peer is a node at the other end: an SGSN, or what has the user plane for it.
type peer struct {
	addr    netip.Addr
	restart uint8
	known   bool // restart was heard
	// forgotten is the ticket of the last request that waited when the node restarted: see [heldCreate].
	forgotten uint64
	doubt     doubt // of restart
	paths     [numPaths]path
	sessions  handle // whose control plane it has
	users     handle // contexts whose user plane it has
	contexts  int    // of users
	held      int    // contexts that count as its
	asking    int    // of its Create Requests, those that wait to be authorized
	names     int    // nodes that it was the first to name
	requests  ratelimit.Bucket
	errors    ratelimit.Bucket
	news      ratelimit.Bucket // of restarts
	answers   answers
	seen      time.Duration // when it was last looked for
	namer     handle        // the node that named it, if it is no peer or was not heard since
}

// path is what a node is asked by one of its ports.
type path struct {
	used     int // sessions and contexts that need it
	waiting  int // requests that wait for an answer
	sequence uint16
	echo     handle        // the Echo Request that waits for its answer
	echoAt   time.Duration // when the next one is sent
	down     bool
	changed  time.Duration // when down did
	holdFrom time.Duration // since when what it has is kept though it is down
	released bool          // what it had is released
}

// addressKey is a node's address as a key.
type addressKey [16]byte

// peerOf returns the node with an address, and makes it. ok is false if there is no room.
func (e *Engine) peerOf(a netip.Addr) (h handle, p *peer, ok bool) {
	a = a.Unmap()
	key := addressKey(a.As16())
	if h, ok = e.byAddress[key]; ok {
		p = e.peers.at(h)
		p.seen = e.at
		return h, p, true
	}
	if e.peers.used() >= e.settings.Limits.Peers && !e.forgetPeer(false) {
		return 0, nil, false
	}
	h, p = e.peers.take()
	p.addr, p.seen = a, e.at
	for i := range p.paths {
		p.paths[i] = path{sequence: uint16(e.random.Uint32()), echoAt: never}
	}
	e.byAddress[key] = h
	return h, p, true
}

// namedShare is the part of the table of nodes for those that others name, as the user planes
// of contexts: so that no node keeps those out that speak themselves.
const namedShare = 2

// mayName reports whether a node may name one more: it has named fewer than there is room for.
// So one alone gets half of that room, two a third each, and none of them all of it.
func (e *Engine) mayName(by *peer) bool {
	return by.names < (e.settings.Limits.Peers+namedShare-1)/namedShare-e.named
}

// namedPeer is [Engine.peerOf] for a node that a message of another names.
func (e *Engine) namedPeer(by handle, a netip.Addr) (h handle, ok bool) {
	if e.byAddress[addressKey(a.As16())] != 0 {
		h, _, ok = e.peerOf(a)
		return h, ok
	}
	namer := e.peers.at(by)
	if !e.mayName(namer) && !(e.forgetPeer(true) && e.mayName(namer)) {
		return 0, false
	}
	h, p, ok := e.peerOf(a)
	if ok {
		e.name(p, by)
	}
	return h, ok
}

// name notes that a node is there since another has named it.
func (e *Engine) name(p *peer, by handle) {
	p.namer = by
	e.peers.at(by).names++
	e.named++
}

// unname notes that a node is a peer that speaks itself, or is forgotten.
func (e *Engine) unname(p *peer) {
	if p.namer != 0 {
		e.peers.at(p.namer).names--
		e.named--
		p.namer = 0
	}
}

// forgetTries bounds the search for a node that may be forgotten.
const forgetTries = 64

// forgetPeer forgets a node that has nothing, and that no answers are kept for: one that was
// named alone, or any.
func (e *Engine) forgetPeer(named bool) bool {
	for range min(forgetTries, int(e.peers.last)) {
		e.evictAt = e.evictAt%e.peers.last + 1
		p := e.peers.at(e.evictAt)
		if p.addr.IsValid() && (p.namer != 0 || !named) && p.idle() && e.at-p.seen > e.patience() {
			delete(e.byAddress, addressKey(p.addr.As16()))
			e.unname(p)
			e.peerTimes.Stop(e.evictAt)
			e.peers.give(e.evictAt)
			return true
		}
	}
	return false
}

// idle reports whether a node may be forgotten.
func (p *peer) idle() bool { return !p.needed() && p.names == 0 }

// needed reports whether a context or a request needs a node. The user plane of version 0 has no
// path of its own.
func (p *peer) needed() bool {
	if p.sessions != 0 || p.users != 0 || p.held != 0 || p.asking != 0 {
		return true
	}
	for i := range p.paths {
		if p.paths[i].used > 0 || p.paths[i].waiting > 0 {
			return true
		}
	}
	return false
}

// count notes that a session needs the path of its version, or no longer does.
func (p *peer) count(v gtp.Version, n int) { p.paths[controlPath(v)].used += n }

// controlPath is the path that signalling of a version takes.
func controlPath(v gtp.Version) int {
	if v == gtp.V0 {
		return pathV0
	}
	return pathControl
}

// userPath is the one of its user packets.
func userPath(v gtp.Version) int {
	if v == gtp.V0 {
		return pathV0
	}
	return pathUser
}

// isPeer reports whether a node may speak to this one.
func (e *Engine) isPeer(a netip.Addr) bool {
	for _, p := range e.settings.Peers {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// reversed reports whether a node writes TIDs in reverse order.
func (e *Engine) reversed(a netip.Addr) bool {
	for _, p := range e.settings.ReversedTID {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// wireTID is a TID as a node writes it, or back.
func (e *Engine) wireTID(node netip.Addr, t gtp.TID) gtp.TID {
	if len(e.settings.ReversedTID) > 0 && e.reversed(node) {
		return t.Reversed()
	}
	return t
}

// own returns this node's address of the family of another; not valid if it has none.
func (e *Engine) own(other netip.Addr) netip.Addr {
	if other.Is4() {
		return e.settings.Address4
	}
	return e.settings.Address6
}

// reachable reports whether a node of the address can be spoken to.
func (e *Engine) reachable(a netip.Addr) bool {
	own := e.own(a)
	return unicast(a) && own.IsValid() && a != own && a.IsLoopback() == own.IsLoopback() && a.IsLinkLocalUnicast() == own.IsLinkLocalUnicast()
}

// isNoNode reports whether an address that a node names, other than its own, cannot be one.
func (e *Engine) isNoNode(a, own netip.Addr) bool {
	return a != own && slices.Contains(e.settings.NoNodes, a)
}

// isTerminals reports whether an address is one that terminals have. A tunnel to it would lead
// into itself, each packet longer than the one before.
func (e *Engine) isTerminals(a netip.Addr) bool {
	for _, p := range e.apns {
		if p.Apart {
			continue
		}
		for _, l := range p.all() {
			if l.has(a) {
				return true
			}
		}
	}
	return false
}

// Peers calls f for each node at the other end.
func (e *Engine) Peers(f func(PeerInfo)) {
	for h := handle(1); h <= e.peers.last; h++ {
		p := e.peers.at(h)
		if !p.addr.IsValid() {
			continue
		}
		info := PeerInfo{Address: p.addr, Restart: p.restart, Known: p.known, Contexts: p.contexts, Opened: p.held}
		for i := range p.paths {
			if p.paths[i].down {
				info.Down, info.Since = true, e.epoch.Add(p.paths[i].changed)
			}
		}
		f(info)
	}
}

// patience is how long a request is repeated.
func (e *Engine) patience() time.Duration {
	return e.settings.T3Response * time.Duration(e.settings.N3Requests)
}
