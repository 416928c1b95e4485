// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// A client that has a fall-back keeps itself bound to that relay, so that others
// can reach it there, and binds itself to the relays of peers while it sends to
// them. The steps are in package teredo; the reasons for them in
// docs/decisions/0006-fallback-relay.md.

// Implementation constants.
const (
	// maxBindings bounds the relays that the client is bound to: its own and those
	// that peers name.
	maxBindings = 8
	// maxWaiting bounds the peers that wait for one binding. One more repeats its
	// bubbles by itself.
	maxWaiting = 4
	// bindingRefresh is the longest time between refreshments, under the shortest
	// life of a NAT's mapping that RFC 4380 section 5.2 reckons with. A relay keeps
	// a binding for two of them and more; the client believes in it for as long.
	bindingRefresh = 30 * time.Second
	bindingLife    = 60 * time.Second
	// A relay that does not answer is asked again after a pause that doubles.
	firstBindingPause = 30 * time.Second
	lastBindingPause  = 5 * time.Minute
)

// binding is the state of the client at one relay. The zero value is none.
type binding struct {
	relay   netip.AddrPort
	asking  bool
	nonce   uint32 // of the exchange under way
	sent    int    // requests of this exchange
	due     time.Time
	pause   time.Duration // after the last failure
	until   time.Time     // bound until then
	mapping netip.AddrPort
	waiting [maxWaiting][16]byte // peers that want to be asked by this relay
	waits   int
}

func (b *binding) bound(now time.Time) bool { return now.Before(b.until) }

// bindOwn begins the binding with the client's own relay.
func (c *Client) bindOwn(now time.Time, out *Out) {
	if c.cfg.Fallback.IsValid() {
		c.bindings[0] = binding{relay: c.cfg.Fallback}
		c.ask(&c.bindings[0], now, out)
	}
}

// unbind forgets all relays: bindings are of an address.
func (c *Client) unbind() { c.bindings = [maxBindings]binding{} }

// ask begins an exchange with a relay.
func (c *Client) ask(b *binding, now time.Time, out *Out) {
	b.asking, b.sent, b.nonce = true, 0, c.nonce()
	c.request(b, now, out)
}

// request sends the first step (again).
func (c *Client) request(b *binding, now time.Time, out *Out) {
	b.sent++
	b.due = now.Add(retryInterval)
	c.stats.BindingRequests++
	c.sendStep(b, teredo.AllRouters, out)
}

// sendStep sends a bubble to a relay, with the nonce of the exchange.
func (c *Client) sendStep(b *binding, dst netip.Addr, out *Out) {
	t := teredo.Trailers{HasNonce: true, Nonce: b.nonce}
	p := teredo.AppendBubble(out.Alloc(teredo.BubbleLen+teredo.MaxTrailersLen), c.last.address, dst)
	out.SendUDP(0, b.relay, t.AppendTo(p))
}

// tickBindings repeats requests, refreshes bindings, and forgets those of peers'
// relays that no one uses any more.
func (c *Client) tickBindings(now time.Time, out *Out) {
	for i := range c.bindings {
		b := &c.bindings[i]
		switch {
		case !b.relay.IsValid() || now.Before(b.due):
		case b.asking && b.sent < maxAttempts:
			c.request(b, now, out)
		case i > 0 && (b.asking || !c.uses(b.relay, c.clock.At(now))):
			*b = binding{}
		case b.asking:
			b.asking = false
			b.pause = min(max(2*b.pause, firstBindingPause), lastBindingPause)
			b.due = now.Add(c.share(b.pause))
		default:
			c.ask(b, now, out)
		}
	}
}

// ageBindings counts a time that the clock has missed: relays have forgotten us by then.
func (c *Client) ageBindings(by time.Duration) {
	for i := range c.bindings {
		b := &c.bindings[i]
		b.due = b.due.Add(-by)
		if !b.until.IsZero() {
			b.until = b.until.Add(-by)
		}
	}
}

// nextBinding is when tickBindings has something to do; zero is never.
func (c *Client) nextBinding() (next time.Time) {
	for i := range c.bindings {
		if c.bindings[i].relay.IsValid() {
			next = earlier(next, c.bindings[i].due)
		}
	}
	return next
}

// uses reports whether a peer that was sent to lately is reached by a relay.
func (c *Client) uses(relay netip.AddrPort, at peer.Instant) (found bool) {
	c.peers.Walk(func(e *peer.Entry) bool {
		found = e.Trusted() && e.MappedIs(relay) && at.Sub(max(e.Tx, e.Rx)) < bindingLife
		return !found
	})
	return found
}

// bindingWith returns the binding with a relay, or nil.
func (c *Client) bindingWith(relay netip.AddrPort) *binding {
	for i := range c.bindings {
		if c.bindings[i].relay == relay {
			return &c.bindings[i]
		}
	}
	return nil
}

// bindTo returns the binding with a relay and begins one if there is none; nil
// when there is no room.
func (c *Client) bindTo(relay netip.AddrPort, now time.Time, out *Out) *binding {
	if b := c.bindingWith(relay); b != nil {
		return b
	}
	b := c.bindingWith(netip.AddrPort{})
	if b != nil {
		*b = binding{relay: relay}
		c.ask(b, now, out)
	}
	return b
}

// receiveBinding takes what a relay sends directly: a challenge, which is
// returned, or, with an origin, the confirmation. It returns false when the packet
// is something else.
func (c *Client) receiveBinding(from netip.AddrPort, p *teredo.Packet, trailers *teredo.Trailers, now time.Time, out *Out) bool {
	if step, _ := teredo.BindingStepOf(p.IPv6.SrcBytes()); step != teredo.BindingChallenge {
		return false
	}
	b := c.bindingWith(from)
	switch {
	case b == nil || !b.asking || !teredo.IsBubble(p.IPv6) || trailers.Nonce != b.nonce:
		c.drop(UnaskedBinding)
	case !p.Origin.IsValid():
		c.stats.BubblesReceived++
		c.sendStep(b, p.IPv6.Src(), out)
	default:
		c.stats.BubblesReceived++
		c.confirmed(b, p.Origin, now, out)
	}
	return true
}

// confirmed ends an exchange: the client is bound.
func (c *Client) confirmed(b *binding, mapping netip.AddrPort, now time.Time, out *Out) {
	b.asking, b.pause, b.mapping = false, 0, mapping
	b.until = now.Add(bindingLife)
	b.due = now.Add(c.share(bindingRefresh))
	waiting := b.waiting[:b.waits]
	b.waits = 0
	for i := range waiting {
		if e := c.peers.Lookup(&waiting[i]); e != nil && c.peers.Cold(e) != nil {
			c.sendByRelay(e, c.peers.Cold(e), now, out)
		}
	}
}

// proveBinding answers the step that comes by way of the server: it shows the
// relay that this Teredo address is ours. It returns false for other packets.
func (c *Client) proveBinding(origin netip.AddrPort, p packet.IPv6, out *Out) bool {
	if step, _ := teredo.BindingStepOf(p.SrcBytes()); step != teredo.BindingProof {
		return false
	}
	b := c.bindingWith(origin)
	if b == nil || !b.asking || !teredo.IsBubble(p) {
		c.drop(UnaskedBinding)
		return true
	}
	c.sendStep(b, p.Src(), out)
	return true
}
