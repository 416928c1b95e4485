// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Relay is the state of one relay. Make one with [New].
type Relay struct {
	cfg      Config
	shared   atomic.Pointer[shared] // the part of cfg that lanes see
	prefixes [][4]byte              // the first 32 bits of Config.Prefixes
	clock    peer.Clock
	key      key

	// A client is in hot when it is trusted, in tests while bubbles go to it or
	// went in vain, in both while a trusted one is tested again; it is then
	// busy in hot and trusted in tests.
	hot     *peer.Hot
	tests   *peer.Table[attempt]
	budget  peer.Budget
	sweepAt peer.Instant // when hot is swept next, while it holds anything
	review  int          // bucket from which sweeps look for peers that are no longer allowed; -1: none
	// unpublished are the peers in hot that Publish will open to lanes.
	unpublished [][16]byte
	late        *lateFilter // of tests, if a fast path has one
	lanes       []*Lane
	quick       counts // of the engine's own quick way

	bubbleLimit, errorLimit   ratelimit.Limit
	bubbleBucket, errorBucket ratelimit.Bucket
	keyBucket, meetBucket     ratelimit.Bucket // share bubbleLimit
	perSource, errorSources   *ratelimit.Fair
	perServer, perStranger    *ratelimit.PerSource
	carriage                  carriage
	stats                     Stats
}

// known is what the tables hold of one client.
type known struct {
	hot  bool        // it is trusted, and ref is where
	ref  peer.Ref    // if hot
	test *peer.Entry // nil when it is not under test
}

// find looks a client up.
func (r *Relay) find(client *[16]byte, at peer.Instant) known {
	k := known{test: r.tests.Lookup(client)}
	k.ref, k.hot = r.hot.Lookup(client)
	k.hot = k.hot && k.ref.Age(at) < r.cfg.memory()
	return k
}

// mapped returns where packets to a client go.
func (r *Relay) mapped(client *[16]byte, k known) netip.AddrPort {
	if !k.hot && k.test != nil {
		return k.test.Mapped()
	}
	return r.hot.Mapped(client, k.ref)
}

// Sizes is how full the tables are.
type Sizes struct {
	Peers, Trusted int
	Foreign        int // of the trusted, those with a mapping that is not in their address
	QueuedBytes    int
	Evictions      uint64 // peers that lost their place to others
	Bound          int    // clients bound to be carried for
}

// Sizes returns how full the tables are.
func (r *Relay) Sizes() Sizes {
	trusted, foreign := r.hot.Len()
	tests, again := r.tests.Len()
	return Sizes{
		Peers: trusted + tests - again, Trusted: trusted, Foreign: foreign,
		QueuedBytes: r.budget.Used(), Evictions: r.hot.Evictions() + r.tests.Evictions(),
		Bound: len(r.carriage.bindings.table),
	}
}

// Next is when Tick has something to do next; zero is never.
func (r *Relay) Next() time.Time {
	at, ok := r.tests.NextDeadline()
	if all, _ := r.hot.Len(); all > 0 && (!ok || r.sweepAt < at) {
		at, ok = r.sweepAt, true
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
	r.late.flush()
	r.carriage.bindings.expire(at)
	for range tickBurst {
		e := r.tests.Due(at)
		if e == nil {
			break
		}
		r.due(e, at, now, out)
	}
	if all, _ := r.hot.Len(); all > 0 && r.sweepAt <= at {
		r.hot.Sweep(at, r.cfg.memory(), sweepBuckets)
		if r.review >= 0 {
			r.review = r.forgetIn(r.review, sweepBuckets, func(client *[16]byte, ref peer.Ref) bool { return !r.allows(client, ref) })
		}
		r.sweepAt = at.Add(r.sweepInterval())
	}
}

// keepSweeping starts the sweeps with the first peer.
func (r *Relay) keepSweeping(at peer.Instant) {
	if all, _ := r.hot.Len(); all == 1 {
		r.sweepAt = at.Add(r.sweepInterval())
	}
}

// sweepInterval is the time between two slices of a sweep.
func (r *Relay) sweepInterval() time.Duration {
	slices := (r.hot.Buckets() + sweepBuckets - 1) / sweepBuckets
	return sweepPeriod / time.Duration(slices)
}

// evicted is called for a client under test that loses its place.
func (r *Relay) evicted(e *peer.Entry, a *attempt) {
	if a != nil {
		r.discard(a, PeerEvicted)
	}
	if e.Trusted() {
		r.hot.SetBusy(&e.Key, false)
	}
}

// forget ends the test of a client; one that is trusted stays so.
func (r *Relay) forget(e *peer.Entry, why Reason) {
	r.discard(r.tests.Cold(e), why)
	if e.Trusted() {
		r.hot.SetBusy(&e.Key, false)
	}
	r.tests.Delete(e)
}

// discard drops what waits.
func (r *Relay) discard(a *attempt, why Reason) {
	r.stats.Dropped[why] += uint64(a.queue.Clear(&r.budget))
}
