// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// acked is what a SACK says of one path.
type acked struct {
	octets   int  // of chunks that it acknowledges for the first time
	before   int  // in flight before it
	earliest bool // the first of those in flight is among them
	answered bool // some of them show that the path works
	waiting  bool // one before the chunk that is looked at is still in flight
	late     bool // some of them were taken for lost by a timeout, and not sent again; the last of these is lateTSN
	lateTSN  uint32
}

// missReports are those after which a chunk is taken for lost (RFC 9260 section 7.2.4).
const missReports = 3

// handleSACK takes a SACK (RFC 9260 section 6.2.1).
func (a *Association) handleSACK(from *Path, c chunk.Chunk, now time.Time, out *Output) {
	s, err := chunk.ParseSACK(c.Body)
	switch {
	case a.state < established:
		a.endpoint.Counters.Unexpected++
	case err != nil:
		a.endpoint.Counters.BadChunk++
	default:
		a.takeSACK(from, &s, true, now, out)
	}
}

// handleCumulative takes a TSN of a SHUTDOWN, which says nothing of gaps or of the window (RFC 9260 section 3.3.8).
func (a *Association) handleCumulative(from *Path, tsn uint32, now time.Time, out *Output) {
	a.takeSACK(from, &chunk.SACK{TSN: tsn, Window: uint32(a.peerWindow + a.outside)}, false, now, out)
}

// takeSACK takes what a SACK or a SHUTDOWN acknowledges. gaps is false if that says nothing of them.
func (a *Association) takeSACK(from *Path, s *chunk.SACK, gaps bool, now time.Time, out *Output) {
	switch {
	case before(s.TSN, a.acked): // D i
		a.endpoint.Counters.OldSACK++
		return
	case !before(s.TSN, a.nextTSN):
		a.endpoint.Counters.BadSACK++
		a.abort(from, ReasonViolation, chunk.Cause{Code: chunk.CauseProtocolViolation, Value: []byte("a TSN is acknowledged that was not sent")}, out)
		return
	}
	if gaps {
		a.announced = int(s.Window)
	}
	for _, p := range a.paths {
		p.ack = acked{before: p.flight}
	}
	advanced := s.TSN != a.acked
	if advanced && (a.state == shutdownPending || a.state == shutdownReceived) {
		a.startGuard(now)
	}
	newest, any := a.takeCumulative(s.TSN, now, out)
	highest := a.takeGaps(s, &newest, &any, now, out)
	a.sackHeard = true
	if any {
		a.errors, a.arrivals.answer = 0, true
	}
	for _, p := range a.paths {
		a.adjust(p, s.TSN, now, out)
	}
	lost := a.countMisses(highest, newest, any, advanced, now)
	if gaps {
		a.takeBack(highest, now)
	}
	if a.abandon(now, out); lost != nil {
		a.sendAgain(lost, now, out)
	}
	a.forward(now, out)
	a.missChange(now, out)
	if a.peerWindow = max(0, int(s.Window)-a.outside); a.peerWindow > 0 {
		a.windowAt, a.windowTime = time.Time{}, 0
	}
	a.shutdownIfDone(now)
}

// takeCumulative drops all chunks up to a TSN. newest is the highest that was not acknowledged before, if any was.
func (a *Association) takeCumulative(tsn uint32, now time.Time, out *Output) (newest uint32, any bool) {
	for a.acked != tsn {
		a.acked++
		c := a.sent.at(0)
		if !c.acked {
			a.takeChunk(c, a.acked, now, out)
			newest, any = a.acked, true
		}
		a.settleMessage(c, out)
		a.sent.drop()
	}
	return newest, any
}

// takeGaps marks the chunks that the blocks of a SACK name, and finds the highest place of one. Blocks that are
// not in order, or name what was not sent, are the peer's mistake (or its lie), and passed over.
func (a *Association) takeGaps(s *chunk.SACK, newest *uint32, any *bool, now time.Time, out *Output) (highest int) {
	highest = -1
	for block := range s.Blocks() {
		first, last := int(block.First)-1, int(block.Last)-1
		if first <= highest || last < first || last >= a.sent.length {
			a.endpoint.Counters.BadSACK++
			continue
		}
		for i := highest + 1; i <= last; i++ {
			c := a.sent.at(i)
			if c.reported = i >= first; !c.reported {
				c.path.ack.waiting = c.path.ack.waiting || c.inFlight()
				continue
			}
			if !c.acked {
				*newest, *any = a.acked+1+uint32(i), true
				a.takeChunk(c, *newest, now, out)
				c.acked = true
			}
		}
		highest = last
	}
	return highest
}

// takeChunk books a chunk that is acknowledged for the first time.
func (a *Association) takeChunk(c *sent, tsn uint32, now time.Time, out *Output) {
	p, late := c.path, c.timedOut
	a.passChange(c, tsn)
	if c.marked {
		if c.timedOut && !c.early {
			p.ack.late, p.ack.lateTSN = true, tsn
		}
		c.marked = false
		a.marked--
	} else {
		a.land(c)
	}
	p.ack.octets += a.length(c.size)
	p.ack.earliest = p.ack.earliest || !p.ack.waiting
	if p.timing && p.timedTSN == tsn {
		p.timing = false
		p.measure(now.Sub(p.timedAt))
	}
	if a.length(c.size) > p.roomOf(p.base()) {
		p.search.timeouts = 0
	}
	// With more than one copy nobody knows which it was (RFC 9260 section 8.2, RFC 7829 section 3.2, 9). What timed out
	// shows that the path worked before it did; whether it still does, its heartbeat says.
	if !c.moved && (!late || p.Parameters.HeartbeatInterval < 0) {
		p.heard, p.ack.answered = true, true
		a.answer(p, out)
	}
	a.probing = false
}

// adjust brings a path's window and timer up to date (RFC 9260 sections 6.3.2 and 7.2), and does what is due when it has
// answered.
func (a *Association) adjust(p *Path, cumulative uint32, now time.Time, out *Output) {
	if p.recovering && !before(cumulative, p.recoverTSN) {
		p.recovering = false
	}
	if p.ack.octets > 0 {
		p.grow(p.ack.octets, p.ack.before, a.fragmentRoom(p), a.sent.length == 0)
		a.hearAnswer(p, now)
	}
	if p.ack.late {
		a.takeBackTimeout(p, now)
	}
	switch {
	case p.flight == 0:
		p.t3 = time.Time{} // R2
	case p.ack.earliest:
		p.t3 = now.Add(p.rto) // R3
	}
	if p.ack.answered {
		a.redirect(p, now, out)
	}
}

// countMisses counts the reports that chunks are missing: of those before the newest that is acknowledged, or,
// while a path recovers and the cumulative TSN moves, of all before the highest (RFC 9260 section 7.2.4). It
// returns the first path that is to send at once.
func (a *Association) countMisses(highest int, newest uint32, any, advanced bool, now time.Time) (lost *Path) {
	for i := 0; i <= highest; i++ {
		c := a.sent.at(i)
		switch reported := c.reported; {
		case reported:
			c.reported = false
			continue
		case c.abandoned:
			continue
		case c.acked:
			a.reneged(c, now)
		case c.marked:
			continue
		case any && before(a.acked+1+uint32(i), newest), c.path.recovering && advanced:
			c.misses++
		}
		if c.misses < missReports || c.fast || c.marked {
			continue
		}
		p := c.path
		if !p.recovering && lost == nil {
			lost = p
		}
		p.lose(a.nextTSN-1, a.fragmentRoom(p))
		c.fast = true
		a.mark(c, false)
	}
	return lost
}

// takeBack finds the chunks behind the last block of a SACK that were acknowledged in a gap before, and are no more.
func (a *Association) takeBack(highest int, now time.Time) {
	for i := highest + 1; i < a.sent.length && !before(a.highestGap, a.acked+1+uint32(i)); i++ {
		if c := a.sent.at(i); c.acked && !c.abandoned {
			a.reneged(c, now)
		}
	}
	a.highestGap = a.acked + 1 + uint32(highest)
}

// reneged books a chunk that the peer has dropped although it had acknowledged it in a gap: it is in flight again, and
// one report says that it is missing (RFC 9260 sections 6.2.1, D iii, and 6.3.2, R4).
func (a *Association) reneged(c *sent, now time.Time) {
	c.acked = false
	c.misses++
	c.path.flight += a.length(c.size)
	a.outside += c.size
	switch p := c.path; {
	case !p.carries(): // nothing is awaited from there any more
		a.mark(c, true)
	case p.t3.IsZero():
		p.t3 = now.Add(p.rto)
	}
}
