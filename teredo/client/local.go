// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Specification constants of local client discovery (RFC 4380 section 5.2.8).
const (
	leastDiscovery = 200 * time.Second // between local discovery bubbles, at random
	mostDiscovery  = 300 * time.Second
	localLifetime  = 600 * time.Second // of a local peer (RFC 4380 section 5.2.4 case 3)
)

// Implementation constants of local client discovery.
const (
	// greetingDelay bounds the random delay after which a client that has just
	// been heard for the first time hears us too: the clients of a link must not
	// all speak at once.
	greetingDelay = 250 * time.Millisecond
	// greetingPause is the least time before a bubble that greets. Neighbours that
	// start together may miss each other's first; they meet within a second all the
	// same.
	greetingPause = 400 * time.Millisecond
)

// Bubbles that seek a peer for a packet of the host, in all; each peer has few.
var seekingLimit = ratelimit.PerSecond(10, 10)

// Discovery is the address and port of local discovery (RFC 4380 section 2.17):
// the Teredo IPv4 Discovery Address and the Teredo port.
var Discovery = netip.AddrPortFrom(netip.MustParseAddr("224.0.0.253"), teredo.Port)

// localPeer is what the cold state of a peer knows of it as a neighbour.
type localPeer struct {
	local      netip.AddrPort // IPv4 address and port on our link
	localUntil peer.Instant   // the end of its life
}

func (l *localPeer) isLocal(at peer.Instant) bool { return l.local.IsValid() && at < l.localUntil }

// SubnetChanged tells the IPv4 network of the address that [Client.LocalChanged]
// told. Not valid: it is not known, and no local peers are looked for.
func (c *Client) SubnetChanged(subnet netip.Prefix, now time.Time, out *Out) {
	subnet = subnet.Masked()
	if subnet == c.subnet {
		return
	}
	c.subnet = subnet
	if c.state == Qualified {
		c.discover(now, out)
	}
}

// discover sends a local discovery bubble and sets the time of the next.
func (c *Client) discover(now time.Time, out *Out) {
	if !c.cfg.LocalDiscovery || !c.subnet.IsValid() || c.state != Qualified {
		return
	}
	c.discovered = now
	c.discoverAt = now.Add(leastDiscovery + c.upTo(mostDiscovery-leastDiscovery))
	c.stats.DiscoveryBubbles++
	out.SendUDP(0, Discovery, teredo.AppendLocalDiscovery(out.Alloc(teredo.BubbleLen), c.last.address))
}

// upTo returns a random time between 0 and d.
func (c *Client) upTo(d time.Duration) time.Duration {
	return time.Duration(c.random.Uint64() % uint64(d+1))
}

func (c *Client) tickDiscovery(now time.Time, out *Out) {
	if !c.nextDiscovery().IsZero() && !now.Before(c.discoverAt) {
		c.discover(now, out)
	}
}

// nextDiscovery is when tickDiscovery has something to do; zero is never.
func (c *Client) nextDiscovery() time.Time {
	if c.state != Qualified || !c.cfg.LocalDiscovery || !c.subnet.IsValid() {
		return time.Time{}
	}
	return c.discoverAt
}

// HandleDiscovery takes a UDP payload received on the discovery address and port,
// by multicast (RFC 4380 sections 5.2.3 case 4 and 5.2.8). out may alias it.
func (c *Client) HandleDiscovery(from netip.AddrPort, payload []byte, now time.Time, out *Out) {
	c.stats.Received++
	p, err := teredo.Parse(payload)
	switch {
	case err != nil:
		c.drop(faultReason(err))
	case c.state != Qualified || !c.cfg.LocalDiscovery:
		c.drop(NotQualified)
	case !teredo.IsBubble(p.IPv6) || p.IPv6.Dst() != teredo.AllNodes:
		c.drop(NotDiscovery)
	case from == c.local || *p.IPv6.SrcBytes() == c.own:
		c.drop(OwnSource)
	case !c.mayBeLocal(from, p.IPv6):
		c.drop(NotLocal)
	case !c.perOrigin.Allow(from.Addr(), now) || !c.answers.Allow(answersLimit, now):
		c.drop(RateLimited)
	default:
		c.stats.BubblesReceived++
		c.meetLocally(from, p.IPv6, now, out)
	}
}

// mayBeLocal applies the rules on local peers: a well-formed Teredo address, an
// IPv4 source on our network, and, since anybody on the link could claim any
// address, the same mapped IPv4 address as ours (RFC 4380 section 5.2.8 allows to
// ask for that): then the two are behind the same NAT.
func (c *Client) mayBeLocal(from netip.AddrPort, p packet.IPv6) bool {
	src := p.SrcBytes()
	_, ok := c.teredoPrefix(p.Src())
	return ok && c.sendable(src) && teredo.Mapped(src).Addr() == c.last.mapping.Addr() &&
		c.subnet.IsValid() && c.subnet.Contains(from.Addr()) && from.Port() != 0
}

// meetLocally notes where a neighbour is and greets it: directly, where the policy
// lets it in, and, if it is new, by a discovery bubble of our own, since it
// accepts our direct one only when it knows us too.
func (c *Client) meetLocally(from netip.AddrPort, p packet.IPv6, now time.Time, out *Out) {
	at := c.clock.At(now)
	e, _ := c.peers.Insert(p.SrcBytes(), never(at))
	f := c.warm(e)
	known := f.isLocal(at) && f.local == from
	f.local, f.localUntil = from, at.Add(localLifetime)
	if f.phase == resting {
		c.peers.SetDeadline(e, f.localUntil)
	}
	if c.welcome(e, at) {
		c.sendDirectBy(way{0, from}, e, f, bubble{}, out)
	}
	if !known {
		c.greet(now)
	}
}

// greet brings the next discovery bubble forward.
func (c *Client) greet(now time.Time) {
	at := now.Add(c.upTo(greetingDelay))
	if soonest := c.discovered.Add(greetingPause); at.Before(soonest) {
		at = soonest
	}
	if at.Before(c.discoverAt) {
		c.discoverAt = at
	}
}

// sought greets a client behind our NAT that tries to reach us by the server: it
// may be a neighbour that has not heard us.
func (c *Client) sought(e *peer.Entry, at peer.Instant, now time.Time) {
	if !valid(e, at) && teredo.Mapped(&e.Key).Addr() == c.last.mapping.Addr() {
		c.greet(now)
	}
}

// attemptLocally tries to reach a peer on our link (RFC 4380 section 5.2.4 case
// 3): a bubble to where it was heard, and a discovery bubble, so that it knows us.
// One behind our NAT that was not heard may be on our link all the same. It tells
// whether that is all for this attempt; from the second on the way by the NAT is
// tried too.
func (c *Client) attemptLocally(e *peer.Entry, f *effort, at peer.Instant, now time.Time, out *Out) bool {
	local := f.isLocal(at)
	if !local && teredo.Mapped(&e.Key).Addr() != c.last.mapping.Addr() {
		return false
	}
	if local {
		c.sendDirectBy(way{0, f.local}, e, f, bubble{}, out)
	}
	if c.seeking.Allow(seekingLimit, now) {
		c.discover(now, out)
	}
	return local && f.sent == 1
}

// receiveLocally takes a packet of a Teredo client from where it was heard on our
// link (RFC 4380 section 5.2.3 case 5). It returns false when it is not from there.
func (c *Client) receiveLocally(e *peer.Entry, from netip.AddrPort, p packet.IPv6, at peer.Instant, out *Out) bool {
	if e == nil {
		return false
	}
	f := c.peers.Cold(e)
	if f == nil || !f.isLocal(at) || f.local != from {
		return false
	}
	c.trust(e, from, at, out)
	c.accept(e, p, out)
	return true
}

// stayLocal reports whether a peer that spoke by the NAT is proved on our link and
// so stays there.
func (c *Client) stayLocal(e *peer.Entry, at peer.Instant) bool {
	if e == nil || !valid(e, at) {
		return false
	}
	f := c.peers.Cold(e)
	return f != nil && f.isLocal(at) && e.MappedIs(f.local)
}

// keepLocal keeps the cold state of a neighbour as long as it counts as one.
func (c *Client) keepLocal(e *peer.Entry, f *effort, at peer.Instant) bool {
	if !f.isLocal(at) {
		return false
	}
	c.peers.SetDeadline(e, f.localUntil)
	return true
}
