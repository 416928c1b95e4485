// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Memory is for how long a peer that has fallen silent is remembered.
const Memory = memory

// Review forgets the trusted peers of an earlier process that this one would not have: those
// silent for too long, and those that the addresses of this host or the settings rule out
// (RFC 4380 section 5.4.1). It returns how many are left. It is called before the first
// packet.
func (r *Relay) Review(now time.Time) (left int) {
	at := r.clock.At(now)
	r.forgetIf(func(client *[16]byte, ref peer.Ref) bool {
		_, ok := r.checkClient(client)
		return !ok || ref.Age(at) >= memory || ref.Foreign() && !r.mayBeMapped(r.hot.Mapped(client, ref))
	})
	left, _ = r.hot.Len()
	return left
}

// Forget forgets all trusted peers.
func (r *Relay) Forget() { r.forgetIf(func(*[16]byte, peer.Ref) bool { return true }) }

func (r *Relay) forgetIf(which func(*[16]byte, peer.Ref) bool) {
	r.hot.Walk(0, r.hot.Buckets(), func(key [16]byte, ref peer.Ref) bool {
		if which(&key, ref) {
			r.hot.Delete(&key)
		}
		return true
	})
}

// mayBeMapped reports whether a client's packets may go to an address that is not the one in
// its own.
func (r *Relay) mayBeMapped(to netip.AddrPort) bool {
	return r.cfg.Global.OK(to.Addr()) && to.Port() != 0 && !r.isOwn(to.Addr())
}
