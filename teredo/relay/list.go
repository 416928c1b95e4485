// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Peer is what the relay knows of one client.
type Peer struct {
	Address  netip.Addr     // Teredo address
	Mapped   netip.AddrPort // where its packets go
	Trusted  bool           // the mapping is proved
	Received time.Time      // last packet from it; zero: none
	Sent     time.Time      // last bubble to it while it is under test; else zero
	Queued   int            // packets that wait for it
}

// Listing is a list of peers that grows by [Relay.List].
type Listing struct {
	Peers []Peer
	Limit int // most peers

	next int // bucket of the hot table to go on with; -1: behind the last
}

// listBuckets is how much of the table one call of List looks at: a fraction of a
// millisecond's work, since packets wait meanwhile.
const listBuckets = 512

// List appends some of the peers to the listing, trusted ones first, and returns
// whether it is complete. Peers that change between two calls may be missing.
func (r *Relay) List(l *Listing, now time.Time) (done bool) {
	at := r.clock.At(now)
	if l.next >= 0 && len(l.Peers) < l.Limit {
		l.next = r.hot.Walk(l.next, listBuckets, func(key [16]byte, ref peer.Ref) bool {
			l.Peers = append(l.Peers, Peer{
				Address: netip.AddrFrom16(key), Mapped: r.hot.Mapped(&key, ref), Trusted: true,
				Received: r.clock.Time(ref.Heard(at)),
			})
			return len(l.Peers) < l.Limit
		})
	}
	if len(l.Peers) >= l.Limit {
		return true
	}
	if l.next >= 0 {
		return false
	}
	r.tests.Walk(func(e *peer.Entry) bool {
		if !e.Trusted() {
			p := Peer{Address: e.IP(), Mapped: e.Mapped(), Queued: r.tests.Cold(e).queue.Len()}
			if e.Tx != never {
				p.Sent = r.clock.Time(e.Tx)
			}
			l.Peers = append(l.Peers, p)
		}
		return len(l.Peers) < l.Limit
	})
	return true
}
