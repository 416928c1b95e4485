// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// search finds the largest packet of IP that a path carries (RFC 8899 section 5.2). The size in use is the path's
// mtu; it grows when a probe of a size is answered.
type search struct {
	state     searchState
	size      int       // of the probe that is out; 0 if none is
	jumped    bool      // the largest size was probed
	confirmed int       // the largest that was answered since the last black hole
	limit     int       // that a router has named; 0 if none has
	lost      int       // probes in a row that were not answered: PROBE_COUNT
	timeouts  int       // of data since a large chunk was acknowledged
	at        time.Time // PROBE_TIMER, or PMTU_RAISE_TIMER when the search is complete
}

// searchState is one of RFC 8899 section 5.2. ERROR is complete with the least size.
type searchState uint8

const (
	searchDisabled searchState = iota
	searchBase
	searching
	searchComplete
)

// Constants of RFC 8899 section 5.1. SCTP has its answers within an RTO, so the timer of probes is that, but no less
// than the RFC's least.
const (
	maxProbes     = 3
	minProbeTimer = time.Second
	raiseTimer    = 600 * time.Second
)

// maxTimeouts of data in a row, with no large chunk acknowledged between them, show a black hole (RFC 8899 section
// 4.3).
const maxTimeouts = 3

// Sizes of packets of IP.
const (
	baseIPv4, baseIPv6   = 1200, 1280 // BASE_PLPMTU (RFC 8899 section 5.1.2); the least of IPv6
	leastIPv4, leastIPv6 = 576, 1280  // MIN_PLPMTU; what every host takes (RFC 1122 section 3.3.3)
)

// commonMTUs are the sizes that are probed on the way up (RFC 8899 section 5.3.2).
var commonMTUs = [...]int{1280, 1400, 1420, 1440, 1460, 1480, 1492, 1500, 4352, 9000, 16384, 32768}

// base returns the size that is expected to work.
func (p *Path) base() int {
	if p.Remote.Is4() {
		return baseIPv4
	}
	return baseIPv6
}

// least returns the size below which a path is not used.
func (p *Path) least() int {
	if p.Remote.Is4() {
		return leastIPv4
	}
	return leastIPv6
}

// largest returns the size that the search does not go over: MAX_PLPMTU.
func (p *Path) largest() int {
	if limit := p.search.limit; limit > 0 {
		return min(limit, p.Parameters.MaxMTU)
	}
	return p.Parameters.MaxMTU
}

// startSearch begins to look for a larger size once something has come by the path: the peer is there (RFC 8899
// section 6.2.1.1).
func (a *Association) startSearch(p *Path, now time.Time) {
	if p.search.state != searchDisabled || !p.heard || !p.confirmed || !a.alive() || p.largest() <= p.mtu {
		return
	}
	p.search.state, p.search.at = searching, now
}

// searchDue sends the probe that is due, or sends it again when it was not answered (RFC 8899 section 5.3.1).
func (a *Association) searchDue(p *Path, now time.Time, out *Output) {
	s := &p.search
	if !reached(s.at, now) {
		return
	}
	s.at = time.Time{}
	switch {
	case !a.alive() || p.use != normal || p.down:
		return
	case s.state == searchComplete: // PMTU_RAISE_TIMER
		*s = search{state: searching, confirmed: s.confirmed, timeouts: s.timeouts}
	case s.size > 0:
		if s.lost++; s.lost >= maxProbes {
			a.endSearch(p, now)
			return
		}
	}
	if s.size = p.nextSize(); s.size == 0 {
		a.endSearch(p, now)
		return
	}
	a.sendProbe(p, s.size, now, out)
	s.at = now.Add(max(p.rto, minProbeTimer))
}

// nextSize returns the size to probe: the largest at first, which is right on most paths; then, if not even the
// size in use is known to work, that; then one by one what is common. It is 0 if there is no more.
func (p *Path) nextSize() int {
	s := &p.search
	switch {
	case s.state == searching && !s.jumped && p.largest() > p.mtu:
		s.jumped = true
		return p.largest()
	case s.confirmed < p.mtu:
		return p.mtu
	}
	for _, size := range commonMTUs {
		if size > p.mtu && size < p.largest() {
			return size
		}
	}
	if p.largest() > p.mtu {
		return p.largest()
	}
	return 0
}

// sendProbe sends a packet of a size: a HEARTBEAT that names it, and a PAD that fills it (RFC 8899 section 6.2.1.2,
// RFC 4820).
func (a *Association) sendProbe(p *Path, size int, now time.Time, out *Output) {
	a.endpoint.Counters.MTUProbes++
	w := a.composeSized(p, p.roomOf(size), out)
	w.protect(chunk.TypeHeartbeat)
	w.protect(chunk.TypePad)
	w.b = chunk.AppendHeartbeat(w.b, a.heartbeatInfo(p, size, now))
	w.b = chunk.AppendPad(w.b, w.room-len(w.b))
	w.finish()
}

// probed books the answer to a probe.
func (a *Association) probed(p *Path, size int, now time.Time) {
	s := &p.search
	if s.state == searchDisabled || size > p.Parameters.MaxMTU {
		return
	}
	s.confirmed = max(s.confirmed, size)
	p.mtu = max(p.mtu, size)
	s.lost, s.timeouts, s.size = 0, 0, 0
	if s.state != searchComplete {
		s.state, s.at = searching, now
	}
}

// endSearch completes the search, for some minutes (RFC 8899 section 5.2). If not even the size in use was answered,
// the least one is used: state ERROR.
func (a *Association) endSearch(p *Path, now time.Time) {
	if p.search.confirmed < p.mtu {
		p.mtu = p.least()
	}
	p.search.state, p.search.size, p.search.lost, p.search.at = searchComplete, 0, 0, now.Add(raiseTimer)
}

// blackHole goes back to the base size, and has that confirmed (RFC 8899 section 5.2, BASE). What was cut for the
// larger size is fragmented by IP from now on (RFC 9260 section 6.9).
func (a *Association) blackHole(p *Path, now time.Time) {
	a.endpoint.Counters.BlackHoles++
	p.mtu = min(p.mtu, p.base())
	p.search = search{state: searchBase, limit: p.search.limit, at: now}
}

// countTimeout looks for a black hole when data has timed out (RFC 8899 section 4.3).
func (a *Association) countTimeout(p *Path, now time.Time) {
	if p.search.timeouts++; p.search.timeouts >= maxTimeouts && p.mtu > p.base() {
		a.blackHole(p, now)
	}
}

// tooBig takes the word of a router that packets of a path are too large (RFC 8899 section 4.6.2).
func (a *Association) tooBig(p *Path, size int, now time.Time) {
	s := &p.search
	switch {
	case size < p.least() || size >= max(s.size, p.mtu): // a lie, or of a packet that was not sent
		a.endpoint.Counters.BadICMP++
	case size < p.mtu:
		s.limit = size
		a.blackHole(p, now)
		p.mtu = min(p.mtu, size)
	default:
		s.limit = size
		if s.state = searching; size == p.mtu && s.confirmed >= size {
			a.endSearch(p, now)
			return
		}
		s.size, s.jumped, s.at = 0, false, now
	}
}
