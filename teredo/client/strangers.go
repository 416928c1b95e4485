// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Whoever sends a bubble through our server chooses all that is in it. Server and flags of
// its Teredo address are free (RFC 4380 section 7.3.3), so one host has any number of
// addresses. The mapped address is not: servers check it (section 5.3.1), and who forges it
// can do so in few networks. So what strangers cost is counted by it: the answers that go
// there, and what is remembered of it. The server that an address names is a third party
// and is counted by itself. A stranger above these shares has its bubble answered by a
// direct one, which is not larger than what it sent and leaves no trace, as long as the
// rates for its mapped address and for all allow it: behind most NATs that is enough.

// Implementation constants.
const (
	// strangersInAll bounds the answers to bubbles of strangers, a second. It is high
	// enough that a flood with forged addresses leaves room for newcomers.
	strangersInAll = 4000
	// callsPerServer bounds the indirect bubbles to the server that strangers name.
	callsPerServer, callsPerServerBurst = 10, 20

	// callersShare is the part of the list of peers that strangers have who were sent
	// an indirect bubble, mostCallers their number, and callersPerNetwork that of one
	// IPv4 /24.
	callersShare, mostCallers, callersPerNetwork = 16, 1024, 64
	// callerLife is how long one is remembered behind its last bubble. Its repeats come
	// within four seconds (RFC 4380 section 5.2.6).
	callerLife = peerLifetime

	// newPeersShare is the part of the list of peers that may be taken in a second by
	// strangers whose first packet came directly: all of it takes longer than a peer
	// lives.
	newPeersShare = 64
)

var strangersLimit = ratelimit.PerSecond(strangersInAll, strangersInAll)

// strangers are the limits on peers that neither the host has sent to nor that are proved.
type strangers struct {
	answers            ratelimit.Bucket
	perPeer, perServer *ratelimit.PerSource
	newPeers           ratelimit.Bucket
	newLimit           ratelimit.Limit

	callers *ratelimit.Held // by mapped address
	calling int             // of them in all
	most    int
}

func newStrangers(c *Client) (s strangers, err error) {
	if s.perPeer, err = ratelimit.NewPerSource(ratelimit.PerSecond(answersPerPeer, answersPerPeerBurst), limiterBuckets, c.random); err != nil {
		return s, err
	}
	if s.perServer, err = ratelimit.NewPerSource(ratelimit.PerSecond(callsPerServer, callsPerServerBurst), limiterBuckets, c.random); err != nil {
		return s, err
	}
	s.most = max(min(mostCallers, c.cfg.MaxPeers/callersShare), 1)
	n := max(c.cfg.MaxPeers/newPeersShare, 1)
	s.newLimit = ratelimit.PerSecond(n, n)
	s.callers, err = ratelimit.NewHeld(limiterBuckets, c.random)
	return s, err
}

// isStranger reports whether a peer has yet to be proved, and the host has not sent to it.
func isStranger(e *peer.Entry, at peer.Instant) bool {
	return e == nil || !valid(e, at) && at.Sub(e.Tx) >= establishedFor
}

// mayAnswerStranger limits answers to an IPv4 address whose owner no one knows.
func (c *Client) mayAnswerStranger(to netip.Addr, at peer.Instant) bool {
	now := c.clock.Time(at)
	return c.strangers.answers.Take(strangersLimit, c.perOrigin.Take(to, now), now)
}

// mayAdd reports whether a direct bubble may go to a peer beside the one that answers it: by
// a port that it or we predict. Those to a stranger count as answers too, or by a port of
// its own it would double what goes to its mapped address.
func (c *Client) mayAdd(e *peer.Entry, at peer.Instant) bool {
	return !isStranger(e, at) || c.mayAnswerStranger(teredo.Mapped(&e.Key).Addr(), at)
}

// mayAnswer limits the answers to indirect bubbles of a client. Those of strangers take
// nothing from others.
func (c *Client) mayAnswer(e *peer.Entry, src *[16]byte, at peer.Instant) bool {
	now, address := c.clock.Time(at), netip.AddrFrom16(*src)
	if isStranger(e, at) {
		return c.mayAnswerStranger(teredo.Mapped(src).Addr(), at) && c.strangers.perPeer.Allow(address, now)
	}
	return c.perPeer.Allow(address, now) && c.answers.Allow(answersLimit, now)
}

// mayMeet limits the strangers that become peers by their first packet.
func (c *Client) mayMeet(from netip.Addr, at peer.Instant) bool {
	now := c.clock.Time(at)
	return c.strangers.newPeers.Take(c.strangers.newLimit, c.perOrigin.Take(from, now), now)
}

// mayCall reports whether a stranger may cause an indirect bubble.
func (c *Client) mayCall(e *peer.Entry, at peer.Instant) bool {
	return !isStranger(e, at) || c.strangers.perServer.Allow(teredo.Server(&e.Key), c.clock.Time(at))
}

// meetCaller returns the entry and the state of a client whose bubble came through our
// server, and makes what is missing; e is nil when it is unknown. Both are nil for a
// stranger beyond its share.
func (c *Client) meetCaller(e *peer.Entry, src *[16]byte, at peer.Instant) (*peer.Entry, *effort) {
	if e != nil && (c.peers.Cold(e) != nil || !isStranger(e, at)) {
		return e, c.warm(e)
	}
	s := &c.strangers
	from, most := teredo.Mapped(src).Addr(), s.most
	switch s.callers.Share(from, 1, min(callersPerNetwork, s.most)) {
	case ratelimit.NoShare:
		most = 0
	case ratelimit.Spare:
		most /= 2
	}
	if s.calling >= most {
		return nil, nil
	}
	if e == nil {
		if e = c.admit(src, at); e == nil {
			return nil, nil
		}
	}
	f := c.warm(e)
	f.caller = from
	s.callers.Add(from, 1)
	s.calling++
	return e, f
}

// admit makes the entry of a stranger, or returns nil. All but untrustedShare of the list may
// be proved peers by then, so that no stranger takes the place of one that the host seeks;
// beyond that it takes that of a proved peer that has expired.
func (c *Client) admit(src *[16]byte, at peer.Instant) *peer.Entry {
	if _, trusted := c.peers.Len(); trusted >= c.cfg.MaxPeers-c.cfg.MaxPeers/untrustedShare {
		oldest := c.peers.OldestTrusted()
		if f := c.peers.Cold(oldest); valid(oldest, at) || f != nil && f.phase != resting {
			return nil
		}
		c.peers.Evict(oldest)
	}
	e, _ := c.peers.Insert(src, never(at))
	return e
}

// leave takes a peer out of the callers: it is proved, or forgotten.
func (c *Client) leave(f *effort) {
	if f.caller.IsValid() {
		c.strangers.callers.Add(f.caller, -1)
		c.strangers.calling--
		f.caller = netip.Addr{}
	}
}

// answerOnce answers an indirect bubble of a client that there is no place for, by a direct
// one that returns its nonce.
func (c *Client) answerOnce(p packet.IPv6, trailers *teredo.Trailers, out *Out) {
	e := peer.Entry{Key: *p.SrcBytes()}
	f := effort{nonceReceived: trailers.Nonce}
	c.sendDirectBy(way{0, teredo.Mapped(&e.Key)}, &e, &f, bubble{}, out)
}
