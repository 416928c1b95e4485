// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo/peer"
)

// freshFor is how long a proved peer needs no new proof by Reach: half of its
// life, so that a caller who asks in time never finds it expired.
const freshFor = peerLifetime / 2

// Reach opens the way to an address before the host sends to it from here: a
// client that stands by does that for the peers of the one in use, so that a move
// does not wait for tests. It does nothing for peers that are proved already.
func (c *Client) Reach(dst netip.Addr, now time.Time, out *Out) {
	if c.state != Qualified || !isGlobal(dst) || dst == c.last.address {
		return
	}
	at, key := c.clock.At(now), dst.As16()
	_, isClient := c.teredoPrefix(dst)
	if isClient && !c.sendable(&key) {
		return
	}
	e := c.peers.Lookup(&key)
	if e != nil && e.Trusted() && at.Sub(e.Rx) < freshFor {
		return
	}
	if e == nil {
		e, _ = c.peers.Insert(&key, never(at))
	}
	// The host is about to send to it: the inbound policy lets it in.
	e.Tx = at
	f := c.warm(e)
	if f.phase != resting {
		return
	}
	if isClient {
		c.startBubbles(e, f, at, now, out)
	} else {
		c.startTest(e, f, at, now, out)
	}
}

// reached ends the effort for a peer that was proved before, began with Reach,
// and has been heard since: a direct response (RFC 4380 section 5.2.6). By a relay
// it would be none, and a direct way is still sought.
func (c *Client) reached(e *peer.Entry, f *effort, at peer.Instant) bool {
	if f.carried || f.sent == 0 || !e.Trusted() || at.Sub(e.Rx) > retryInterval {
		return false
	}
	f.made, f.answered = 0, 0
	c.rest(e, f, at)
	return true
}
