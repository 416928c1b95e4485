// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Relay is the state of one relay. Make one with [New].
type Relay struct {
	cfg      Config
	prefixes [][4]byte     // the first 32 bits of Config.Prefixes
	refresh  time.Duration // see refreshNum
	clock    peer.Clock
	key      key
	peers    *peer.Table[attempt]
	budget   peer.Budget

	bubbleLimit, errorLimit   ratelimit.Limit
	bubbleBucket, errorBucket ratelimit.Bucket
	keyBucket                 ratelimit.Bucket // shares bubbleLimit
	perSource, perServer      *ratelimit.PerSource
	perStranger               *ratelimit.PerSource
	carriage                  carriage
	stats                     Stats
}

// Peer is what the relay knows of one client.
type Peer struct {
	Address        netip.Addr     // Teredo address
	Mapped         netip.AddrPort // where its packets go
	Trusted        bool           // the mapping is proved
	Received, Sent time.Time      // last packet each way; zero: none
	Queued         int            // packets that wait for it
}

// Peers returns at most limit peers, the most recently trusted first.
func (r *Relay) Peers(limit int) []Peer {
	all, _ := r.peers.Len()
	list := make([]Peer, 0, max(min(limit, all), 0))
	if limit <= 0 {
		return list
	}
	r.peers.Walk(func(e *peer.Entry) bool {
		p := Peer{
			Address: e.IP(), Mapped: e.Mapped(), Trusted: e.Trusted(),
			Received: r.timeOf(e.Rx), Sent: r.timeOf(e.Tx),
		}
		if a := r.peers.Cold(e); a != nil {
			p.Queued = a.queue.Len()
		}
		list = append(list, p)
		return len(list) < limit
	})
	return list
}

// timeOf returns the time of i, zero for never.
func (r *Relay) timeOf(i peer.Instant) time.Time {
	if i == never {
		return time.Time{}
	}
	return r.clock.Time(i)
}

// Sizes is how full the tables are.
type Sizes struct {
	Peers, Trusted int
	QueuedBytes    int
	Evictions      uint64 // peers that lost their place to others
	Bound          int    // clients bound to be carried for
}

// Sizes returns how full the tables are.
func (r *Relay) Sizes() Sizes {
	all, trusted := r.peers.Len()
	return Sizes{Peers: all, Trusted: trusted, QueuedBytes: r.budget.Used(), Evictions: r.peers.Evictions(), Bound: len(r.carriage.bindings.table)}
}

// Next is when Tick has something to do next; zero is never.
func (r *Relay) Next() time.Time {
	at, ok := r.peers.NextDeadline()
	if e := r.peers.OldestTrusted(); e != nil {
		if forget := e.Rx.Add(memory); !ok || forget < at {
			at, ok = forget, true
		}
	}
	if b := r.carriage.bindings.oldest; b != nil && (!ok || b.until < at) {
		at, ok = b.until, true
	}
	if !ok {
		return time.Time{}
	}
	return r.clock.Time(at)
}

// Tick repeats bubbles, gives up on peers that answered none, and forgets peers
// not heard for long. What one call does is bounded: Next may be due at once.
func (r *Relay) Tick(now time.Time, out *packet.Batch) {
	at := r.clock.At(now)
	r.carriage.bindings.expire(at)
	for range tickBurst {
		e := r.peers.Due(at)
		if e == nil {
			break
		}
		r.due(e, at, now, out)
	}
	for range tickBurst {
		e := r.peers.OldestTrusted()
		if e == nil || e.Rx.Add(memory) > at {
			break
		}
		r.forget(e, PeerEvicted)
	}
}

// evicted is called for a peer that loses its place.
func (r *Relay) evicted(_ *peer.Entry, a *attempt) {
	if a != nil {
		r.discard(a, PeerEvicted)
	}
}

// forget deletes a peer and what waits for it.
func (r *Relay) forget(e *peer.Entry, why Reason) {
	if a := r.peers.Cold(e); a != nil {
		r.discard(a, why)
	}
	r.peers.Delete(e)
}

// discard drops what waits.
func (r *Relay) discard(a *attempt, why Reason) {
	r.stats.Dropped[why] += uint64(a.queue.Clear(&r.budget))
}
