// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// acks is what an association owes its peer.
type acks struct {
	sackDue    bool
	sackPath   *Path // where it goes: nil is the path in use
	lastPath   *Path // where the last one went
	unacked    int   // packets with data since the last one
	first      bool  // some data has come
	duplicates [maxDuplicates]uint32
	repeated   int
}

// maxDuplicates is how many TSNs that have come twice one SACK tells.
const maxDuplicates = 8

// sackEvery is how many packets may come for one SACK (RFC 9260 section 6.2).
const sackEvery = 2

func (a *Association) noteDuplicate(tsn uint32) {
	if a.repeated < maxDuplicates {
		a.duplicates[a.repeated] = tsn
		a.repeated++
	}
}

// acknowledge decides whether what a packet has brought is acknowledged at once (RFC 9260 sections 5.1, 6.2, 6.7
// and 9.2). The SACK goes where the data came from. If the last one went there, too, and the data comes again,
// that way may be broken in one direction: the SACK takes another (section 6.2).
func (a *Association) acknowledge(p *Path, now time.Time) {
	came := &a.arrivals
	if !came.data {
		return
	}
	a.sackPath = p
	if came.duplicate && !came.fresh && p == a.lastPath {
		a.sackPath = a.alternate(p)
	}
	a.unacked++
	switch {
	case a.state == shutdownSent:
		a.sendShutdown(now)
		if !a.got.gapless() || a.repeated > 0 {
			a.sackNow()
		}
	case !a.first, a.unacked >= sackEvery, came.duplicate, came.urgent, !a.got.gapless():
		a.first = true
		a.sackNow()
	case a.sackAt.IsZero():
		a.sackAt = now.Add(min(a.par.SACKDelay, maxSACKDelay))
	}
}

// maxSACKDelay is what no parameter may go over (RFC 9260 section 6.2).
const maxSACKDelay = 500 * time.Millisecond

// sackNow has the next transmission carry a SACK.
func (a *Association) sackNow() { a.sackDue, a.sackAt = true, time.Time{} }

// appendSACK writes a SACK of at most so many octets, and owes nothing any more.
func (a *Association) appendSACK(b []byte, room int) []byte {
	const fixed = 16
	e := a.endpoint
	a.repeated = min(a.repeated, max(0, (room-fixed)/4))
	e.gaps = a.got.gaps(e.gaps[:0], (room-fixed)/4-a.repeated)
	a.told = a.window()
	b = chunk.AppendSACK(b, a.got.cumulative, uint32(a.told), e.gaps, a.duplicates[:a.repeated])
	a.sackDue, a.sackAt, a.unacked, a.repeated = false, time.Time{}, 0, 0
	return b
}
