// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Packets for a peer that no direct way leads to go to the relay that the peer is
// bound to, and the peer's come by ours. Before data, a bubble with a solicitation
// goes that way, and one with an advertisement comes back (RFC 6081 section 5.7
// has these trailers for "are you there?" between clients).

// carriage is what the cold state of a peer knows of the way by relays.
type carriage struct {
	relay    netip.AddrPort   // the peer's, if it has told; else it is taken to be ours
	hopeless bool             // no direct way is to be expected between our NATs
	carried  bool             // the peer was reached that way last
	asked    teredo.Discovery // question or answer that is due
}

// self is what the client tells others of itself in indirect bubbles.
func (c *Client) self(now time.Time) (f teredo.Fallback) {
	if b := &c.bindings[0]; b.relay.IsValid() && b.bound(now) {
		f = teredo.Fallback{Relay: b.relay, Symmetric: c.nat.Symmetric(), PortPreserving: c.nat.PortPreserved}
	}
	return f
}

// learnFallback takes what a peer tells of itself in an indirect bubble. Where no
// direct way is to be expected, the relay is asked at once.
func (c *Client) learnFallback(e *peer.Entry, f *effort, told teredo.Fallback, now time.Time, out *Out) {
	if !c.cfg.Fallback.IsValid() || !told.Relay.IsValid() || !c.global.OK(told.Relay.Addr()) || c.isOwn(told.Relay) {
		return
	}
	f.relay = told.Relay
	f.hopeless = hopeless(c.nat, told)
	if f.hopeless && f.phase == bubbling && !valid(e, c.clock.At(now)) {
		c.askByRelay(e, f, teredo.DiscoverySolicitation, now, out)
	}
}

// hopeless reports whether RFC 6081 figure 1 has no direct way between two NATs,
// whoever begins: both are symmetric and no port can be foreseen at either end.
func hopeless(ours NAT, theirs teredo.Fallback) bool {
	return ours.Symmetric() && theirs.Symmetric && !ours.PortPreserved && !theirs.PortPreserving
}

// mayBeCarried reports whether a peer can be asked by relays at all.
func (c *Client) mayBeCarried(now time.Time) bool { return c.bindings[0].bound(now) }

// attemptByRelay asks a peer by the relays beside an attempt at a direct way: from
// the second attempt on, and with the first where nothing else is to be expected.
// direct reports whether direct bubbles are among this attempt.
func (c *Client) attemptByRelay(e *peer.Entry, f *effort, direct bool, at peer.Instant, now time.Time, out *Out) {
	early := !f.hopeless && !f.carried && direct && (f.sent == 1 || c.predicts(f))
	if !early && !valid(e, at) {
		c.askByRelay(e, f, teredo.DiscoverySolicitation, now, out)
	}
}

// predicts reports whether a direct way may still be opened by a predicted port.
func (c *Client) predicts(f *effort) bool {
	p := c.portOf(f)
	return p != nil && p.guess.running
}

// askByRelay sends a question or an answer by the relays, now or when a binding
// allows.
func (c *Client) askByRelay(e *peer.Entry, f *effort, d teredo.Discovery, now time.Time, out *Out) {
	if c.mayBeCarried(now) {
		f.asked = d
		c.sendByRelay(e, f, now, out)
	}
}

// sendByRelay sends what is due to a peer by its relay, or lets it wait until the
// client is bound there.
func (c *Client) sendByRelay(e *peer.Entry, f *effort, now time.Time, out *Out) {
	if f.asked == teredo.NoDiscovery {
		return
	}
	b := c.bindTo(f.relayOr(c.cfg.Fallback), now, out)
	switch {
	case b == nil:
	case b.bound(now):
		t := teredo.Trailers{Discovery: f.asked}
		p := teredo.AppendBubble(out.Alloc(teredo.BubbleLen+teredo.MaxTrailersLen), c.last.address, e.IP())
		c.stats.RelayedBubbles++
		out.SendUDP(0, b.relay, t.AppendTo(p))
		if f.asked == teredo.DiscoveryAdvertisement && !c.isDirect(e, f, c.clock.At(now)) {
			c.trustByRelay(e, f, b.relay, c.clock.At(now), out)
		}
		f.asked = teredo.NoDiscovery
	case b.waits < maxWaiting:
		b.waiting[b.waits] = e.Key
		b.waits++
	}
}

func (x *carriage) relayOr(ours netip.AddrPort) netip.AddrPort {
	if x.relay.IsValid() {
		return x.relay
	}
	return ours
}

// isDirect reports whether a peer is proved at a mapping of its own.
func (c *Client) isDirect(e *peer.Entry, f *effort, at peer.Instant) bool {
	return valid(e, at) && !f.carried
}

// fromOurRelay reports whether a datagram with a Teredo source was carried.
func (c *Client) fromOurRelay(from netip.AddrPort, now time.Time) bool {
	return from == c.cfg.Fallback && c.bindings[0].bound(now)
}

// receiveCarried takes a packet of another client that our relay carried. The
// relay answers for its source, which is bound there. A direct way stays the
// better one: it is neither left nor refreshed by what comes here.
func (c *Client) receiveCarried(e *peer.Entry, p packet.IPv6, trailers *teredo.Trailers, now time.Time, out *Out) {
	at := c.clock.At(now)
	solicited := trailers.Discovery == teredo.DiscoverySolicitation && teredo.IsBubble(p)
	switch {
	case !c.welcome(e, at):
		c.drop(Unsolicited)
		return
	case !c.sendable(p.SrcBytes()):
		c.drop(NotGlobal)
		return
	case solicited && (!c.perPeer.Allow(p.Src(), now) || !c.answers.Allow(answersLimit, now)):
		c.drop(RateLimited)
		return
	}
	if e == nil {
		if e = c.admit(p.SrcBytes(), at); e == nil {
			c.drop(RateLimited)
			return
		}
	}
	f := c.warm(e)
	if solicited {
		c.askByRelay(e, f, teredo.DiscoveryAdvertisement, now, out)
	} else if b := c.bindingWith(f.relayOr(c.cfg.Fallback)); b != nil && b.bound(now) && !c.isDirect(e, f, at) {
		c.trustByRelay(e, f, b.relay, at, out)
	}
	if f.phase == resting {
		c.peers.SetDeadline(e, at.Add(bubbleWindow))
	}
	c.accept(e, p, out)
}

// trustByRelay marks a peer as reached by a relay and sends what waits for it. An
// effort under way goes on: its direct bubbles may still be answered.
func (c *Client) trustByRelay(e *peer.Entry, f *effort, relay netip.AddrPort, at peer.Instant, out *Out) {
	c.closePort(f, out) // the relay knows us at the service port
	if f.phase == soliciting {
		c.rest(e, f, at) // what was asked for concerned the direct way
	}
	if !e.MappedIs(relay) {
		c.withdraw(&e.Key)
	}
	c.peers.Trust(e, relay, at)
	f.carried = true
	c.stats.Sent += uint64(f.queue.Len())
	f.queue.Drain(&c.budget, &out.Batch, func(p packet.IPv6) { out.SendUDP(0, relay, p) })
}

// seekDirect tries to find a direct way, once in a bubble window, to a peer that
// is reached by a relay and in use. It returns false when there is nothing to seek.
func (c *Client) seekDirect(e *peer.Entry, f *effort, at peer.Instant, now time.Time, out *Out) bool {
	if !f.carried || at.Sub(e.Tx) >= bubbleWindow || !c.mayBeCarried(now) {
		return false
	}
	c.startBubbles(e, f, at, now, out)
	return true
}
