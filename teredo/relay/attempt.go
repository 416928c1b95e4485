// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"math"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// never is the time of what has not happened yet, far enough from the ends of
// the scale for differences.
const never = peer.Instant(math.MinInt64 / 2)

// attempt is the cold state of a peer: a test whether it can be reached, and
// after a vain one the memory of that.
type attempt struct {
	queue   peer.Queue
	bubbles int          // that were due since first, none answered
	sent    int          // of these; the others were above the common budget
	copies  int          // of answers to connectivity tests
	first   peer.Instant // when the first bubble was sent
	silent  bool         // bubbleTries were in vain
	again   peer.Instant // if silent: from here on traffic brings a bubble
	pause   time.Duration
}

// transmit sends p, which passed all rules, or lets it wait.
func (r *Relay) transmit(p packet.IPv6, k known, at peer.Instant, now time.Time, out *packet.Batch) {
	dst := p.DstBytes()
	valid := k.hot && k.ref.Age(at) < r.cfg.PeerTimeout
	if k.test == nil && !(valid && k.ref.Age(at) < r.shared.Load().freshFor(p)) {
		// Unknown, or not heard lately: test it, beside the traffic while it is valid.
		switch why, ok := r.mayTest(p.Src(), dst, now); {
		case ok:
			k.test = r.begin(dst, k, at, out)
		case !valid:
			r.drop(why)
			return
		}
	}
	if valid {
		if k.test != nil {
			r.copyEcho(p, r.tests.Cold(k.test), out)
		}
		r.send(r.mapped(dst, k), p, out)
		return
	}
	if k.test.Trusted() {
		r.distrust(k.test)
	}
	a := r.tests.Cold(k.test)
	if a.silent && !r.revive(k.test, a, p, at, now, out) {
		r.refuse(p, PeerSilent, now, out)
		return
	}
	if !a.queue.Push(&r.budget, p) {
		r.drop(QueueFull)
		return
	}
	r.stats.Queued++
	r.copyEcho(p, a, out)
}

// distrust takes the client under test out of the trusted peers.
func (r *Relay) distrust(e *peer.Entry) {
	r.hot.Delete(&e.Key)
	r.tests.Distrust(e)
}

// mayTest applies the limits on tests of clients, which src asks for, each of which costs an entry and
// bubbles (RFC 4380 section 7.3.5). The common budget comes last, so that it is
// not spent on what another limit refuses. A host above its own share leaves half
// of all of them to others.
func (r *Relay) mayTest(src netip.Addr, client *[16]byte, now time.Time) (why Reason, ok bool) {
	share := r.perSource.Take(src, now)
	switch {
	case share == ratelimit.NoShare:
		return SourceRate, false
	case !r.perServer.Take(teredo.Server(client), share, now):
		return ServerRate, false
	case !r.bubbleBucket.Take(r.bubbleLimit, share, now):
		return BubbleRate, false
	}
	return 0, true
}

// begin starts the test of a client, whose first bubble mayTest has paid. One that is
// trusted stays so meanwhile, where it is.
func (r *Relay) begin(client *[16]byte, k known, at peer.Instant, out *packet.Batch) *peer.Entry {
	e, _ := r.tests.Insert(client, never)
	if k.hot {
		r.tests.Trust(e, r.mapped(client, k), at)
		r.hot.SetBusy(client, true)
	} else {
		e.SetMapped(teredo.Mapped(client))
	}
	a := r.tests.Warm(e)
	a.first = at
	r.bubble(e, a, at, out)
	return e
}

// bubble sends a bubble through the client's server, and sets the time of the
// next. Behind a NAT of our own, one goes to the mapped address too.
func (r *Relay) bubble(e *peer.Entry, a *attempt, at peer.Instant, out *packet.Batch) {
	a.bubbles++
	a.sent++
	r.tests.SetDeadline(e, at.Add(bubbleInterval))
	src := r.key.source(&e.Key, at)
	b := teredo.AppendBubble(out.Alloc(teredo.BubbleLen), src, e.IP())
	out.SendUDP(Socket, netip.AddrPortFrom(teredo.Server(&e.Key), teredo.Port), b)
	if r.cfg.BehindNAT {
		out.SendUDP(Socket, e.Mapped(), b)
	}
	e.Tx = at
	r.stats.BubblesSent++
}

// isValid reports whether a client under test is sent to meanwhile (RFC 4380 section 5.2.4).
func (r *Relay) isValid(e *peer.Entry, at peer.Instant) bool {
	ref, ok := r.hot.Lookup(&e.Key)
	return ok && ref.Age(at) < r.cfg.PeerTimeout
}

// due handles the deadline of an attempt.
func (r *Relay) due(e *peer.Entry, at peer.Instant, now time.Time, out *packet.Batch) {
	a := r.tests.Cold(e)
	why, ok := r.checkClient(&e.Key)
	switch {
	case !ok: // by settings or addresses that have changed meanwhile
		r.forget(e, why)
	case a.silent:
		r.forget(e, NoAnswer)
	case a.bubbles >= bubbleTries:
		r.giveUp(e, a, at, now, out)
	case r.perServer.Take(teredo.Server(&e.Key), ratelimit.Spare, now) && r.bubbleBucket.AllowSpare(r.bubbleLimit, now):
		// Repeats to peers that may not be there at all leave half of the budget,
		// and of what their server may be sent, to new peers, or three of them
		// would outweigh one.
		r.bubble(e, a, at, out)
	default:
		// It was due all the same, so that a flood cannot make attempts last.
		a.bubbles++
		r.tests.SetDeadline(e, at.Add(bubbleInterval))
	}
}

// giveUp ends an attempt that no one answered: the senders of what waited are
// told, and no bubbles are sent for a pause, if as many were sent as may be. The
// text has the entry removed (RFC 4380 section 5.4.1, step 3), so that the next
// packet begins again. A pause that doubles bounds what traffic to clients that are gone
// costs their servers, and lets those that had lost their network be reached again soon.
func (r *Relay) giveUp(e *peer.Entry, a *attempt, at peer.Instant, now time.Time, out *packet.Batch) {
	r.stats.PeersUnanswered++
	r.stats.Dropped[NoAnswer] += uint64(a.queue.Len())
	a.queue.Drain(&r.budget, out, func(p packet.IPv6) {
		r.sendError(packet.ICMPv6Unreachable, packet.UnreachableAddress, 0, p, now, out)
	})
	if a.sent < bubbleTries || r.isValid(e, at) {
		r.forget(e, NoAnswer)
		return
	}
	a.silent = true
	a.pause = min(max(2*a.pause, firstPause), lastPause)
	a.again = at.Add(a.pause)
	if e.Trusted() {
		r.distrust(e)
	}
	r.tests.SetDeadline(e, a.first.Add(silence))
}
