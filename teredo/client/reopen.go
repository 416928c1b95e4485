// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/teredo/peer"
)

// A NAT that restarts forgets its mappings, and one that preserves ports gives the same
// ones again: the address holds, but the NAT lets in none of those that it let in before.
// The server is let in again by the question that found the address unchanged. Relays are
// by a bubble each, or they would send in vain until they ask by the server themselves,
// which takes as long as they trust this client (RFC 4380 section 5.2.4).

// Implementation constants.
const (
	// maxReopened bounds the bubbles, and the tests, that one answer of the server
	// brings.
	maxReopened = 16
	// reopenPause is the shortest time between two that the server answered at once.
	// Traffic in one direction has it asked every few seconds, see silence.
	reopenPause = peerLifetime
)

// opening is the way that a relay has through our NAT.
type opening struct {
	relay netip.AddrPort
	host  netip.Addr // an IPv6 host that was heard by it
	heard peer.Instant
}

// reopening is what it takes to let relays in again.
type reopening struct {
	kept []opening // from before the address was lost
	last time.Time // when an answer has brought bubbles
}

// openings returns the ways of the relays that were heard in the 30 s before at.
func (c *Client) openings(at peer.Instant) (list []opening) {
	c.peers.Walk(func(e *peer.Entry) bool {
		o := opening{relay: e.Mapped(), host: e.IP(), heard: e.Rx}
		if c.isProvedHost(e) && at.Sub(e.Rx) < peerLifetime && !slices.ContainsFunc(list, o.isSame) {
			list = append(list, o)
		}
		return e.Trusted() && len(list) < maxReopened
	})
	return list
}

func (o opening) isSame(other opening) bool { return o.relay == other.relay }

// isProvedHost reports whether e is an IPv6 host whose relay is proved.
func (c *Client) isProvedHost(e *peer.Entry) bool {
	_, isClient := c.teredoPrefix(e.IP())
	return e.Trusted() && !isClient
}

// keepOpenings notes the ways that end with the address, in case it comes back.
func (c *Client) keepOpenings(now time.Time) {
	c.reopening.kept = c.openings(c.doubtAt(now))
}

// doubtAt is since when the address has been in doubt: what was not heard behind that may
// be for that reason.
func (c *Client) doubtAt(now time.Time) peer.Instant {
	if c.primary.active && c.primary.began.Before(now) {
		now = c.primary.began
	}
	return c.clock.At(now.Add(-c.cfg.Probe))
}

// regained lets relays in again when an address that was lost is back; same is false when
// it is another one.
func (c *Client) regained(same bool, now time.Time, out *Out) {
	kept := c.reopening.kept
	c.reopening.kept = nil
	if same {
		c.letIn(kept, c.clock.At(now), out)
	}
}

// letIn sends bubbles to relays, as far as they may remember us.
func (c *Client) letIn(list []opening, at peer.Instant, out *Out) {
	for _, o := range list {
		if at.Sub(o.heard) < bubbleWindow {
			c.sendPlain(o.relay, o.host, out)
		}
	}
}

// stillOurs is called when the server was asked out of turn, or more than once, and the
// address holds: the answer ends the doubt about the server, not the one about the ways of
// others through the NAT. since is when the doubt began. Relays that carry for us are
// asked, too.
func (c *Client) stillOurs(since peer.Instant, now time.Time, out *Out) {
	at := c.clock.At(now)
	c.reopening.last = now
	c.letIn(c.openings(since), at, out)
	for i := range c.bindings {
		if b := &c.bindings[i]; b.relay.IsValid() && !b.asking {
			c.ask(b, now, out)
		}
	}
	c.testUnheard(since, at, now, out)
}

// testUnheard tests hosts that were sent to since then and have not been heard: their relay
// may have gone, or have lost the way to us. The test goes by the server.
func (c *Client) testUnheard(since, at peer.Instant, now time.Time, out *Out) {
	var unheard []*peer.Entry
	c.peers.Walk(func(e *peer.Entry) bool {
		if c.isProvedHost(e) && valid(e, at) && e.Rx < since && e.Tx >= since {
			unheard = append(unheard, e)
		}
		return e.Trusted() && len(unheard) < maxReopened
	})
	for _, e := range unheard {
		if f := c.warm(e); f.phase == resting {
			c.withdraw(&e.Key) // the reply is for the engine
			c.startTest(e, f, at, now, out)
		}
	}
}
