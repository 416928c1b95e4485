// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// lowestPort is the least port that is believed to be one of a NAT or a client;
// below it lie services, which no bubble of ours shall knock at.
const lowestPort = 1024

// way is a local socket and where a peer is reached from it; the zero value is
// none.
type way struct {
	socket int
	to     netip.AddrPort
}

// extension is what the extensions of RFC 6081 remember of a peer, in its cold
// state.
type extension struct {
	slot     uint16 // random port, counted from 1; 0 is none
	peerPort uint16 // Peer Random Port; 0 is none
	opened   bool   // a bubble of this effort has gone towards peerPort or by our random port
	// heard is the way by which a bubble came that proves the peer, while its
	// nonce is still missing, without which the peer would not know us there.
	heard       way
	nonceProved uint32 // nonce of ours that has proved the way in use
	// also is where the peer was proved besides: it may settle on that way, and
	// its packets count from there too.
	also netip.AddrPort
}

// portPreserving reports whether ports are predicted by the rule of RFC 6081
// section 5.4: a symmetric NAT that gives a fresh local port the same number
// outside.
func (c *Client) portPreserving() bool { return c.nat.Symmetric() && c.nat.PortPreserved }

// reservePort opens the random port of an untrusted peer, where the NAT asks for
// one (RFC 6081 sections 5.4.4.2 and 5.5.4.1).
func (c *Client) reservePort(e *peer.Entry, f *effort, at peer.Instant, out *Out) {
	if f.slot != 0 || !c.nat.Symmetric() || len(c.ports.slots) == 0 || valid(e, at) {
		return
	}
	if c.oneWay() {
		return // everybody gets in at the reserved port (RFC 6081 section 5.3)
	}
	if p := c.openPort(e, f, at, out); p != nil && c.portPreserving() {
		p.external = p.local
	}
}

// notePeerPort takes the Random Port trailer of an indirect bubble (RFC 6081
// section 5.4.4.4). While there is a connection another port is not believed.
func (c *Client) notePeerPort(e *peer.Entry, f *effort, port uint16, at peer.Instant, out *Out) {
	if port == 0 || port == f.peerPort {
		return
	}
	if port < lowestPort {
		c.drop(BadRandomPort)
		return
	}
	if f.peerPort != 0 {
		if e.Trusted() && (at.Sub(e.Rx) < peerLifetime || at.Sub(e.Tx) < peerLifetime) {
			return
		}
		if c.portPreserving() {
			// What was predicted for the old port of the peer is spent.
			c.closePort(f, out)
		}
	}
	f.peerPort = port
	f.opened = false
}

// sendToPeerPort sends the direct bubble that goes beside the one from service
// port to mapped address (RFC 6081 section 5.4.4.3): to the peer's random port,
// from ours if there is one, else from the service port. A peer that announced
// none but has answered is reached at its mapped address, from our random port.
func (c *Client) sendToPeerPort(e *peer.Entry, f *effort, at peer.Instant, out *Out) {
	to, p := teredo.Mapped(&e.Key), c.portOf(f)
	if f.peerPort != 0 {
		to = netip.AddrPortFrom(to.Addr(), f.peerPort)
	} else if p == nil || f.nonceReceived == 0 {
		return
	}
	b := bubble{}
	if p != nil {
		if !p.guess.done(p.external) {
			return // the prediction sends this bubble, at its time
		}
		b.randomPort = p.external
	}
	if !c.mayAdd(e, at) {
		return
	}
	if f.phase != bubbling {
		b.ttl = c.openingTTL(f) // a peer that we called has opened its own NAT by now
	}
	c.sendDirectBy(way{socketOf(f), to}, e, f, b, out)
}

// openingTTL is the outer time to live of the first bubble of an effort on a new
// way: it only has to open our own NAT. Where the peer's NAT keeps a state for
// packets that it lets no one in for, one that arrives there first would make
// the NAT give the peer's answer another port.
func (c *Client) openingTTL(f *effort) uint8 {
	if f.opened {
		return 0
	}
	f.opened = true
	return c.cfg.OpeningTTL
}

// receiveOnPort takes a packet to our Teredo address that came by a random port.
// No one but its peer is known there (RFC 6081 section 5.4.4.5).
func (c *Client) receiveOnPort(socket int, from netip.AddrPort, p *teredo.Packet, at peer.Instant, out *Out) {
	port, e, f := c.portOn(socket)
	if port == nil || p.Origin.IsValid() || *p.IPv6.SrcBytes() != port.peer {
		c.drop(ForeignPort)
		return
	}
	trailers, err := teredo.ParseTrailers(p.Trailers)
	switch {
	case err != nil:
		c.drop(faultReason(err))
		return
	case !c.welcome(e, at):
		c.drop(Unsolicited)
		return
	}
	if teredo.IsBubble(p.IPv6) {
		c.stats.BubblesReceived++
	}
	e.Modern = e.Modern || answersNonce(f, p.IPv6, &trailers)
	switch {
	case e.Trusted() && e.MappedIs(from), alsoAt(e, f, from, at):
		c.peers.Touch(e, at)
		c.heardPeer(e, f, socket, p.IPv6, &trailers, at, out)
		c.offer(e, f, at)
	case from == teredo.Mapped(&port.peer):
		c.prove(e, f, way{socket, from}, at, out)
	case answersNonce(f, p.IPv6, &trailers):
		c.proveByNonce(e, f, way{socket, from}, at, out)
	default:
		c.drop(ForeignMapping)
		c.suspectMapping(e, p.IPv6, at, out)
		return
	}
	c.accept(e, p.IPv6, out)
}

// answersNonce reports whether p is a bubble that returns the nonce of our last
// indirect one.
func answersNonce(f *effort, p packet.IPv6, t *teredo.Trailers) bool {
	return f != nil && teredo.IsBubble(p) && t.HasNonce && f.nonceSent != 0 && t.Nonce == f.nonceSent
}

// proveByNonce takes a bubble that returns our nonce. Of several ways that a peer
// tries with one nonce the first is used, so that the ways of the two ends do not
// chase each other; the others are only listened to.
func (c *Client) proveByNonce(e *peer.Entry, f *effort, w way, at peer.Instant, out *Out) {
	if !c.mayLearn(e, w.to) {
		c.drop(NotGlobal)
		return
	}
	e.Modern = true
	if valid(e, at) && f.nonceProved == f.nonceSent && !e.MappedIs(w.to) {
		f.also = w.to
		return
	}
	c.prove(e, f, w, at, out)
}

// mayLearn reports whether packets may go to a mapping that a bubble from there proves. Its
// sender is free to choose it, so it may be only what any bubble of ours goes to.
func (c *Client) mayLearn(e *peer.Entry, mapping netip.AddrPort) bool {
	if c.global.OK(mapping.Addr()) {
		return mapping.Port() >= lowestPort || mapping == teredo.Mapped(&e.Key)
	}
	return c.mayShareNAT(e, mapping.Addr()) && c.isNeighbour(mapping)
}

// alsoAt reports whether a peer was proved at from besides its mapping.
func alsoAt(e *peer.Entry, f *effort, from netip.AddrPort, at peer.Instant) bool {
	return f != nil && f.also == from && valid(e, at)
}

// prove takes the proof that a peer is reached by a way. The peer gets a direct
// bubble there at once: its NAT may let nothing else in, and without it the peer
// would wait for its own timer (RFC 6081 section 6.1 step 10). Where the peer sees
// us at another mapping than our address names, it believes us only for its own
// nonce; until that has come by the server the way is kept in mind.
func (c *Client) prove(e *peer.Entry, f *effort, w way, at peer.Instant, out *Out) {
	unknownThere := w.socket != 0 || w.to.Addr() != teredo.Mapped(&e.Key).Addr()
	if unknownThere && f.nonceReceived == 0 {
		if !c.isDirect(e, f, at) && !f.heard.to.IsValid() {
			f.heard = w
		}
		return
	}
	f.nonceProved = f.nonceSent
	if !valid(e, at) || !e.MappedIs(w.to) {
		c.sendDirectBy(c.toward(e, w), e, f, bubble{}, out)
	}
	if w.socket == 0 {
		c.trust(e, w.to, at, out)
		return
	}
	p := c.portOf(f)
	p.proved, p.guess, p.expires = true, prediction{}, at.Add(portRefresh)
	f.heard = way{}
	c.establish(e, w.to, at, out)
}

// recall makes use of a way that was heard of before the peer's nonce came.
func (c *Client) recall(e *peer.Entry, f *effort, at peer.Instant, out *Out) bool {
	w := f.heard
	if !w.to.IsValid() || f.nonceReceived == 0 || c.isDirect(e, f, at) {
		return false
	}
	f.heard = way{}
	c.prove(e, f, w, at, out)
	return true
}

// suspectMapping takes a bubble of a trusted peer from a mapping that nothing proves.
// After a silence it may mean that the peer's NAT has given it another mapping:
// then the way has to be found again (RFC 6081 section 5.4.4.5).
func (c *Client) suspectMapping(e *peer.Entry, p packet.IPv6, at peer.Instant, out *Out) {
	now := c.clock.Time(at)
	if e == nil || !c.nat.Symmetric() || !e.Trusted() || !teredo.IsBubble(p) ||
		at.Sub(e.Rx) < peerLifetime || at.Sub(e.Tx) < peerLifetime ||
		!c.perPeer.Allow(e.IP(), now) || !c.answers.Allow(answersLimit, now) {
		return
	}
	f := c.warm(e)
	c.distrust(e)
	c.closePort(f, out)
	c.callIndirect(e, f, at, out)
	if f.phase == resting {
		c.peers.SetDeadline(e, at.Add(bubbleWindow))
	}
}
