// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// receiveFromServer takes what the server passed on to us: a bubble, or a packet
// with an origin indication (RFC 4380 section 5.2.3).
func (c *Client) receiveFromServer(e *peer.Entry, from netip.AddrPort, p *teredo.Packet, trailers *teredo.Trailers, now time.Time, out *Out) {
	if _, ok := c.teredoPrefix(p.IPv6.Src()); ok {
		if !teredo.IsBubble(p.IPv6) {
			c.drop(DataThroughServer)
			return
		}
		c.receiveIndirect(e, p, trailers, now, out)
		return
	}
	c.receiveFromRelay(e, from, p, now, out)
}

// receiveIndirect answers the indirect bubble of another client (RFC 4380
// section 5.2.6, RFC 6081 section 5.2.4.3): with a direct bubble that returns its
// nonce, and, while there is no proof that the peer can hear us, with an indirect
// one of our own (RFC 6081 section 3.1). An answer is exempt from the pause
// between attempts, since the exchange of RFC 6081 section 6.1 would not work
// otherwise; its own limits apply instead, see mayAnswer for the indirect ones.
func (c *Client) receiveIndirect(e *peer.Entry, p *teredo.Packet, trailers *teredo.Trailers, now time.Time, out *Out) {
	at := c.clock.At(now)
	src := p.IPv6.SrcBytes()
	mapped := teredo.Mapped(src)
	switch {
	case !c.welcome(e, at):
		c.drop(Unsolicited)
		return
	case !c.sendable(src):
		c.drop(NotGlobal)
		return
	case !c.mayAnswer(e, src, at):
		c.drop(RateLimited)
		return
	}
	e, f := c.meetCaller(e, src, at)
	if f == nil {
		c.answerOnce(p.IPv6, trailers, out)
		return
	}
	f.nonceReceived = trailers.Nonce
	e.Modern = e.Modern || trailers.HasNonce
	c.sought(e, at, now)
	c.learnFallback(e, f, trailers.Fallback, now, out)
	c.notePeerPort(e, f, trailers.RandomPort, at, out)
	if !c.recall(e, f, at, out) {
		proved := valid(e, at) && e.MappedIs(mapped)
		c.answerIndirect(e, f, trailers, !proved && f.mayAnswer(at) && c.mayCall(e, at), at, out)
	}
	switch {
	case f.caller.IsValid() && f.phase == resting:
		c.peers.SetDeadline(e, at.Add(callerLife))
	case f.phase == resting:
		c.peers.SetDeadline(e, at.Add(bubbleWindow))
	}
}

// answerIndirect sends what answers an indirect bubble: direct bubbles by all ways
// that may lead to the peer, or by the one that is proved, and if call is set an
// indirect one.
func (c *Client) answerIndirect(e *peer.Entry, f *effort, trailers *teredo.Trailers, call bool, at peer.Instant, out *Out) {
	b := bubble{}
	if trailers.Discovery == teredo.DiscoverySolicitation {
		b.discovery = teredo.DiscoveryAdvertisement
	}
	if c.isDirect(e, f, at) {
		c.sendDirectBy(c.target(e, f), e, f, b, out)
	} else {
		if call {
			c.reservePort(e, f, at, out)
		}
		c.sendDirectBy(way{0, teredo.Mapped(&e.Key)}, e, f, b, out)
		c.bubbleAlternates(e, f, trailers.AlternateList(), at, out)
		c.sendToPeerPort(e, f, at, out)
	}
	if call {
		c.callIndirect(e, f, at, out)
	}
}

// receiveFromRelay takes what a relay sent by way of the server. Its source is
// an IPv6 host, or for a bubble any address of the relay: the answer goes to
// exactly that one, since relays prove a symmetric NAT's mapping by the
// link-local address that comes back. It opens our NAT for the relay. Without an
// origin the server speaks for itself, being a relay too (RFC 4380 section
// 5.4.3).
func (c *Client) receiveFromRelay(e *peer.Entry, from netip.AddrPort, p *teredo.Packet, now time.Time, out *Out) {
	at := c.clock.At(now)
	origin := p.Origin
	if !origin.IsValid() {
		origin = from
	}
	if c.proveBinding(origin, p.IPv6, out) {
		return
	}
	proof := c.proves(e, p.IPv6)
	switch {
	case origin.Port() == 0 || !c.global.OK(origin.Addr()) || c.isOwn(origin):
		c.drop(NotGlobal)
		return
	case !proof && !teredo.IsBubble(p.IPv6) && !c.welcome(e, at) && !c.aboutOurs(p.IPv6, at):
		c.drop(Unsolicited)
		return
	case !c.mayAnswerRelay(origin, proof, at):
		c.drop(RateLimited)
		return
	}
	if proof {
		c.relays.prove(origin)
	}
	source := p.IPv6.Src()
	if teredo.IsBubble(p.IPv6) {
		c.relays.note(origin, source, at)
	}
	if asked, ok := c.relays.answered(origin, at); proof && ok {
		// No one but the host, by its relay, can return the nonce, and the server
		// tells where the relay is: that saves the relay's own packet. The relay's
		// bubble is answered once more, since the data is lost without it.
		c.sendPlain(origin, asked, out)
		c.trust(e, origin, at, out)
		return
	}
	c.sendPlain(origin, source, out)
	c.accept(e, p.IPv6, out)
}

// mayAnswerRelay limits the answers to what relays send by way of the server. What brings
// back the nonce of a test counts as an answer to a peer, and a proved relay has some for
// itself; else those that forge a relay's address could cut this client off it.
func (c *Client) mayAnswerRelay(origin netip.AddrPort, proof bool, at peer.Instant) bool {
	if proof && c.answers.Allow(answersLimit, c.clock.Time(at)) {
		return true
	}
	return c.relays.mayAnswer(origin, at) || c.mayAnswerStranger(origin.Addr(), at)
}

// isOwn reports whether a is the mapped or local address and port of this client.
func (c *Client) isOwn(a netip.AddrPort) bool { return a == c.last.mapping || a == c.local }

// sendable reports whether bubbles may go to the client and to the server that a
// Teredo address names (RFC 4380 section 5.2.4).
func (c *Client) sendable(address *[16]byte) bool {
	mapped := teredo.Mapped(address)
	return mapped.Port() != 0 && c.global.OK(mapped.Addr()) && !c.isOwn(mapped) && c.global.OK(teredo.Server(address))
}
