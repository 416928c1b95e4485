// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// PathState says what a path is good for.
type PathState uint8

// States of a path.
const (
	Active   PathState = iota // carries data
	Failing                   // potentially failed: avoided where another is active (RFC 7829)
	Inactive                  // has missed too many answers
)

var stateWords = [...]string{"active", "potentially failed", "inactive"}

// String returns the state in words.
func (s PathState) String() string {
	if int(s) >= len(stateWords) {
		return "unknown"
	}
	return stateWords[s]
}

// Path is a pair of addresses, and what is known of the network between them. RFC 9260 keeps this for each
// address of the peer, and begins anew when the local one changes (section 7.2.5.2); for each pair it is both.
type Path struct {
	Pair
	Parameters PathParameters

	port      uint16 // the peer's of UDP; 0 in IP
	mtu       int    // octets of the largest packet of IP
	state     PathState
	told      PathState // as the user was told of it last
	confirmed bool      // the peer is known to be at the address (RFC 9260 section 5.4)
	heard     bool      // something has come by this pair
	use       pathUse
	down      bool // the link of our address is
	errors    int  // in a row

	roundTrip
	congestion
	search     search
	suspicion  suspicion
	unanswered int // packets of data since some of the path's was acknowledged

	t3          time.Time // the retransmission timer; zero while it is off
	sentAt      time.Time // data, or anything else that is answered
	heartbeatAt time.Time // when the next one is due
	askedAt     time.Time // when the last one was sent
	waitsFor    time.Time // when the answer to the last one is missed; zero while none is waited for
	nonce       uint64    // of this path's heartbeats
	probedAt    time.Time // when it was last probed to be confirmed

	ack acked // of the SACK that is handled
}

// pathUse says whether our address of a path is one that the peer has (RFC 5061 section 5.3).
type pathUse uint8

const (
	normal   pathUse = iota
	adding           // not yet: an ASCONF alone may come from there
	deleting         // soon no more: nothing is sent from there
	gone             // no more: a chunk may still remember that it went there
)

// Sizes of headers.
const (
	headerIPv4, headerIPv6 = 20, 40
	headerUDP              = 8
)

// room is how many octets a packet of SCTP may have on the path.
func (p *Path) room() int { return p.roomOf(p.mtu) }

// roomOf is how many octets of SCTP fit into a packet of IP.
func (p *Path) roomOf(size int) int {
	size -= headerIPv6
	if p.Remote.Is4() {
		size += headerIPv6 - headerIPv4
	}
	if p.port != 0 {
		size -= headerUDP
	}
	return size &^ 3
}

// addPaths makes the paths to an address of the peer from those of ours that the peer has. There may be some already.
func (a *Association) addPaths(remote netip.Addr, udp uint16, confirmed bool) {
	for _, local := range a.locals {
		if reach(local, remote) && a.endpoint.unicast(remote) {
			a.addPath(Pair{local, remote}, udp, confirmed)
		}
	}
}

// addPath makes a path, or finds it; nil if there are too many.
func (a *Association) addPath(pair Pair, udp uint16, confirmed bool) *Path {
	if p := a.path(pair); p != nil {
		p.confirmed = p.confirmed || confirmed
		return p
	}
	if len(a.paths) >= maxPaths {
		return nil
	}
	p := &Path{Pair: pair, Parameters: a.par.PathParameters, port: udp, confirmed: confirmed, down: a.isDown(pair.Local), nonce: a.endpoint.random64()}
	p.mtu = p.base()
	p.rto = p.Parameters.RTOInitial
	if a.paths == nil {
		a.paths = a.firstPaths[:0]
	}
	a.paths = append(a.paths, p)
	p.congestion.begin(a.fragmentRoom(p), p.Remote.Is4())
	return p
}

// path is that between two addresses; nil if there is none.
func (a *Association) path(pair Pair) *Path {
	for _, p := range a.paths {
		if p.Pair == pair {
			return p
		}
	}
	return nil
}

// pathOf is the path by which a packet has come: between an address of ours that the association has and one of the
// peer's, else there is none. An address that was deleted must not come back with a late packet (RFC 5061 section
// 5.3, F13).
func (a *Association) pathOf(in *arrival) *Path {
	var ours bool
	var peers *Path
	for _, p := range a.paths {
		if p.Pair == in.Pair {
			return p
		}
		ours = ours || p.Local == in.Local
		if p.Remote == in.Remote {
			peers = p
		}
	}
	if !ours || peers == nil {
		return nil
	}
	return a.addPath(in.Pair, in.Port, peers.confirmed)
}

// hear books that something has come by a path, and the peer's port of UDP: packets to the address go there, also from
// other addresses of ours by which nothing has come yet (RFC 6951 section 5.4).
func (a *Association) hear(p *Path, port uint16) {
	p.heard, a.denied = true, time.Time{}
	for _, other := range a.paths {
		if other == p || other.Remote == p.Remote && !other.heard {
			other.port = port
		}
	}
}

// strike books an answer that a path has missed (RFC 9260 section 8.2, RFC 7829 section 3.2), and that the
// association has, if its data goes there (section 8.1).
func (a *Association) strike(p *Path, association bool, now time.Time, out *Output) {
	p.backOff()
	if p.errors <= p.Parameters.PathMaxRetrans || association {
		p.errors++ // the more there are, the later it is tried again if all have failed (RFC 7829 section 4.1)
	}
	switch {
	case p.errors > p.Parameters.PathMaxRetrans:
		p.state, p.search = Inactive, search{}
	case p.errors > p.Parameters.PotentiallyFailedMaxRetrans && p.confirmed:
		p.state = Failing
	}
	a.tell(p, out)
	if association {
		if a.errors++; a.errors > a.par.AssociationMaxRetrans {
			a.fail(ReasonNoAnswer, chunk.Cause{}, out)
		}
	}
}

// answer books an answer by a path: it works (RFC 9260 sections 8.2 and 8.3).
func (a *Association) answer(p *Path, out *Output) {
	p.errors, p.state = 0, Active
	a.tell(p, out)
}

// tell tells the user of a path's state, if it is not the one that was told last: by then HideFailing may have been another.
func (a *Association) tell(p *Path, out *Output) {
	if s := a.shown(p.state); s != p.told {
		p.told = s
		a.event(out, Event{Kind: PathActive + EventKind(s-Active), Pair: p.Pair})
	}
}

// shown is a state as the user sees it (RFC 7829 section 3.2, 12).
func (a *Association) shown(s PathState) PathState {
	if s == Failing && a.par.HideFailing {
		return Active
	}
	return s
}
