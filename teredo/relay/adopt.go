// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"time"

	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Review forgets the trusted peers of an earlier process that this one would not have: those
// silent for too long, and those that the addresses of this host or the settings rule out
// (RFC 4380 section 5.4.1). It returns how many are left. It is called before the first
// packet.
func (r *Relay) Review(now time.Time) (left int) {
	at := r.clock.At(now)
	r.forgetIf(func(client *[16]byte, ref peer.Ref) bool {
		return ref.Age(at) >= r.cfg.memory() || !r.allows(client, ref)
	})
	left, _ = r.hot.Len()
	return left
}

// Forget forgets all trusted peers.
func (r *Relay) Forget() { r.forgetIf(func(*[16]byte, peer.Ref) bool { return true }) }

// Resumed reports that the host has slept, for as long as its steady clock stood still: all
// that was heard before is older by that time than it looks. It forgets the trusted peers
// and the bindings that are no longer valid then (RFC 4380 section 5.2.4).
func (r *Relay) Resumed(slept time.Duration, now time.Time) {
	at := r.clock.At(now)
	r.forgetIf(func(_ *[16]byte, ref peer.Ref) bool { return ref.Age(at)+slept >= r.cfg.PeerTimeout })
	r.carriage.bindings.expire(at.Add(slept))
}

func (r *Relay) forgetIf(which func(*[16]byte, peer.Ref) bool) {
	r.forgetIn(0, r.hot.Buckets(), which)
}

// forgetIn forgets some of the trusted peers in n buckets, and returns the bucket to go on with,
// or -1 behind the last.
func (r *Relay) forgetIn(from, n int, which func(*[16]byte, peer.Ref) bool) (next int) {
	return r.hot.Walk(from, n, func(key [16]byte, ref peer.Ref) bool {
		if which(&key, ref) {
			r.hot.Delete(&key)
		}
		return true
	})
}

// allows reports whether the addresses of this host and the settings allow a trusted peer.
func (r *Relay) allows(client *[16]byte, ref peer.Ref) bool {
	_, ok := r.checkClient(client)
	if ok && ref.Foreign() {
		_, ok = r.checkMapping(r.hot.Mapped(client, ref))
	}
	return ok
}
