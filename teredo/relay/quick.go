// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// What most packets need, traffic of trusted peers, is done here, without
// changing anything but the time of last reception: by any number of cores at
// once, and in the engine itself.

// shared is the settings that the quick way needs; it never changes.
type shared struct {
	host    bool
	mtu     int
	refresh time.Duration // see refreshNum
	memory  time.Duration // see memory
	serve   []netip.Prefix
	carry   bool // between clients
}

// counts is the part of [Stats] that the quick way counts.
type counts struct{ fromIPv6, toUDP, fromUDP, toIPv6, bubbles uint64 }

// quickIP forwards an IPv6 packet to a trusted peer that was heard lately. When
// it returns false it has changed nothing.
func (r *Relay) quickIP(ip []byte, at peer.Instant, out *packet.Batch, c *counts) bool {
	p, _, ok := packet.ParseIPv6(ip)
	if !ok {
		return false
	}
	dst := p.DstBytes()
	ref, ok := r.hot.Lookup(dst)
	if !ok || ref.Busy() || ref.Foreign() {
		return false
	}
	s := r.shared.Load()
	if ref.Age(at) >= s.freshFor(p) || len(p) > s.mtu || !r.isSource(p.SrcBytes()) || !s.takeHop(p) {
		return false
	}
	c.fromIPv6++
	c.toUDP++
	out.SendUDP(Socket, teredo.Mapped(dst), p)
	return true
}

// quickUDP delivers a trusted peer's packet. When it returns false it has changed
// nothing.
func (r *Relay) quickUDP(from netip.AddrPort, payload []byte, at peer.Instant, out *packet.Batch, c *counts) bool {
	p, _, ok := packet.ParseIPv6(payload)
	if !ok {
		return false
	}
	src := p.SrcBytes()
	ref, ok := r.hot.Lookup(src)
	s := r.shared.Load()
	if !ok || ref.Busy() || ref.Foreign() || ref.Age(at) >= s.memory || teredo.Mapped(src) != from {
		return false
	}
	if p.NextHeader() == packet.ProtoNone {
		if r.isCarried(p, s) {
			return false
		}
		c.bubbles++
	} else {
		if _, ok := r.mayDeliver(p, s); !ok || !s.takeHop(p) {
			return false
		}
		c.toIPv6++
		out.SendIP(p)
	}
	c.fromUDP++
	r.hot.Touch(ref, at)
	return true
}

// takeHop takes the one hop off that this router costs; false when none is left.
// A host-specific relay is no router.
func (s *shared) takeHop(p packet.IPv6) bool {
	if s.host {
		return true
	}
	if p.HopLimit() <= 1 {
		return false
	}
	p.SetHopLimit(p.HopLimit() - 1)
	return true
}

// Lane is the way of one goroutine's packets past the lock of the engine. Those
// that a lane does not take go to the engine, and so does, in its place, what
// comes behind them in one batch.
type Lane struct {
	r       *Relay
	pending counts // not yet in sums
	sums    [5]atomic.Uint64
}

// NewLane makes a lane. Like the other methods of the engine it needs the lock.
func (r *Relay) NewLane() *Lane {
	l := &Lane{r: r}
	r.lanes = append(r.lanes, l)
	return l
}

// HandleIP is [Relay.HandleIP] for what it takes; false leaves the packet as it
// was.
func (l *Lane) HandleIP(ip []byte, now time.Time, out *packet.Batch) bool {
	return l.r.quickIP(ip, l.r.clock.At(now), out, &l.pending)
}

// HandleUDP is [Relay.HandleUDP] for what it takes; false leaves the packet as it
// was.
func (l *Lane) HandleUDP(from netip.AddrPort, payload []byte, now time.Time, out *packet.Batch) bool {
	return l.r.quickUDP(from, payload, l.r.clock.At(now), out, &l.pending)
}

// Done ends a batch: what was counted shows in [Relay.Stats] from now on.
func (l *Lane) Done() {
	for i, n := range l.pending.list() {
		if *n > 0 {
			l.sums[i].Add(*n)
		}
	}
	l.pending = counts{}
}

func (c *counts) list() [5]*uint64 {
	return [5]*uint64{&c.fromIPv6, &c.toUDP, &c.fromUDP, &c.toIPv6, &c.bubbles}
}

// Stats returns the counters.
func (r *Relay) Stats() Stats {
	quick := r.quick
	for _, l := range r.lanes {
		for i, n := range quick.list() {
			*n += l.sums[i].Load()
		}
	}
	s := r.stats
	s.FromIPv6 += quick.fromIPv6
	s.ToUDP += quick.toUDP
	s.FromUDP += quick.fromUDP
	s.ToIPv6 += quick.toIPv6
	s.BubblesReceived += quick.bubbles
	return s
}
