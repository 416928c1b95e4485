// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

const (
	solicitInterval  = 2 * time.Second // RFC 6081 section 5.7.2
	maxSolicitations = 3               // RFC 6081 section 5.7.2

	// resumeWithin is how long a silence may last for the way to be worth a
	// question: what a NAT should keep a mapping for (RFC 4787 REQ-5). Behind
	// that the four seconds of questions would be lost in most cases.
	resumeWithin = 300 * time.Second
)

// mayResume reports whether a peer that was silent for too long is asked directly,
// without its server, whether the way is still open (RFC 6081 section 5.7). A
// client of RFC 4380 alone would not answer.
func (c *Client) mayResume(e *peer.Entry, at peer.Instant) bool {
	if f := c.peers.Cold(e); f != nil && f.carried {
		return false // asking by relays takes no longer and finds a direct way too
	}
	return !c.cfg.NoLoadReduction && e.Trusted() && e.Modern && at.Sub(e.Rx) < resumeWithin
}

// startSolicitation begins to ask a peer (RFC 6081 section 5.7.4.1).
func (c *Client) startSolicitation(e *peer.Entry, f *effort, at peer.Instant, now time.Time, out *Out) {
	c.withdraw(&e.Key)
	f.phase, f.sent = soliciting, 0
	c.solicitPeer(e, f, at, now, out)
}

// solicitPeer sends a direct bubble that asks for an answer; with the third one
// the way is looked for as if there had never been one (RFC 6081 section 5.7.2).
func (c *Client) solicitPeer(e *peer.Entry, f *effort, at peer.Instant, now time.Time, out *Out) {
	f.sent++
	c.stats.PeerSolicitations++
	c.sendDirectBy(way{socketOf(f), e.Mapped()}, e, f, bubble{discovery: teredo.DiscoverySolicitation}, out)
	if f.sent < maxSolicitations {
		c.peers.SetDeadline(e, at.Add(solicitInterval))
		return
	}
	c.distrust(e)
	c.startBubbles(e, f, at, now, out)
}

// heardPeer does what a packet from the mapping of a trusted peer may mean beside
// its data. The socket is the one that it came by; f is the peer's cold state, or
// nil.
func (c *Client) heardPeer(e *peer.Entry, f *effort, socket int, p packet.IPv6, t *teredo.Trailers, at peer.Instant, out *Out) {
	if f != nil && f.phase == soliciting {
		c.establish(e, e.Mapped(), at, out)
	}
	if !teredo.IsBubble(p) {
		return
	}
	if f != nil && f.slot != 0 && socket == 0 {
		// The service port works too, and goes first (RFC 6081 section 5.4.4.5).
		c.closePort(f, out)
	}
	c.answerSolicitation(e, f, t, at, out)
}

// answerSolicitation answers a direct bubble that asks for it (RFC 6081 section
// 5.7.4.2). The peer is trusted.
func (c *Client) answerSolicitation(e *peer.Entry, f *effort, t *teredo.Trailers, at peer.Instant, out *Out) {
	if t.HasNonce || t.Discovery != teredo.NoDiscovery {
		e.Modern = true
	}
	if t.Discovery != teredo.DiscoverySolicitation {
		return
	}
	if now := c.clock.Time(at); !c.perPeer.Allow(e.IP(), now) || !c.answers.Allow(answersLimit, now) {
		c.drop(RateLimited)
		return
	}
	c.sendDirectBy(way{socketOf(f), e.Mapped()}, e, f, bubble{discovery: teredo.DiscoveryAdvertisement}, out)
}
