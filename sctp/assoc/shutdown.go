// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// Shutdown ends the association when all that was sent is acknowledged. Nothing more is taken to be sent.
func (a *Association) Shutdown(now time.Time, out *Output) {
	a.endpoint.begin()
	switch a.state {
	case cookieWait, cookieEchoed: // nothing to wait for
		a.abort(a.destination(), ReasonAborting, chunk.Cause{Code: chunk.CauseUserAbort}, out)
	case established:
		a.state = shutdownPending
		a.startGuard(now)
		a.transmit(nil, now, out)
	}
	a.endpoint.settle(a)
}

// shutdownIfDone goes on with the end once nothing is outstanding.
func (a *Association) shutdownIfDone(now time.Time) {
	if a.sent.length > 0 || a.upcoming() != nil {
		return
	}
	switch a.state {
	case shutdownPending:
		a.state = shutdownSent
		a.startGuard(now)
		a.sendShutdown(now)
	case shutdownReceived:
		a.state, a.guardAt = shutdownAckSent, time.Time{} // T2 is enough
		a.sendShutdown(now)
	}
}

// startGuard starts T5-shutdown-guard, five times RTO.Max, which bounds the end from our SHUTDOWN on (RFC 9260 section 9.2). Until
// that, or a SHUTDOWN ACK in answer to the peer's, may be sent, it bounds for how long the peer acknowledges nothing more of what
// is to be delivered before: one that always closes its window would keep us for ever.
func (a *Association) startGuard(now time.Time) { a.guardAt = now.Add(5 * a.par.RTOMax) }

// heardWhileEnding takes any packet of the peer's for a sign that it is there, and still has data to send (RFC 9260
// section 9.2).
func (a *Association) heardWhileEnding(now time.Time) {
	if a.state == shutdownSent {
		a.errors, a.shutdownAt = 0, now.Add(a.destination().rto)
	}
}

// sendShutdown sends the SHUTDOWN or SHUTDOWN ACK of the state, and starts T2.
func (a *Association) sendShutdown(now time.Time) {
	e := a.endpoint
	if a.state == shutdownSent {
		e.control = chunk.AppendShutdown(e.control, a.got.cumulative)
	} else {
		e.control = chunk.Append(e.control, chunk.TypeShutdownAck, 0, nil)
	}
	a.shutdownAt = now.Add(a.destination().rto)
}

// shutdownExpired sends it again, by another path if there is one.
func (a *Association) shutdownExpired(now time.Time, out *Output) {
	p := a.destination()
	a.strike(p, true, now, out)
	if a.state == closed {
		return
	}
	a.current = a.alternate(p)
	a.sendShutdown(now)
}

// handleEnd takes a chunk of the end.
func (a *Association) handleEnd(p *Path, c chunk.Chunk, in *arrival, out *Output) {
	switch {
	case c.Type == chunk.TypeShutdown:
		a.handleShutdown(p, c, in.now, out)
	case c.Type == chunk.TypeShutdownAck:
		a.handleShutdownAck(p, in.now, out)
	case a.state == shutdownAckSent && a.authentic(c, in):
		a.end(out)
	default:
		a.endpoint.Counters.Unexpected++
	}
}

// handleShutdown takes a SHUTDOWN, which acknowledges as a SACK does.
func (a *Association) handleShutdown(p *Path, c chunk.Chunk, now time.Time, out *Output) {
	tsn, err := chunk.ParseShutdown(c.Body)
	if err != nil {
		a.endpoint.Counters.BadChunk++
		return
	}
	switch a.state {
	case established, shutdownPending:
		a.state = shutdownReceived
		a.startGuard(now)
		a.event(out, Event{Kind: PeerShutdown})
	case shutdownSent: // both at once
		a.state = shutdownAckSent
		a.sendShutdown(now)
		return
	case shutdownAckSent: // our answer was lost; T2 goes on, or a peer that repeats itself would keep us for ever
		a.endpoint.control = chunk.Append(a.endpoint.control, chunk.TypeShutdownAck, 0, nil)
		return
	case shutdownReceived:
	default:
		a.endpoint.Counters.Unexpected++
		return
	}
	a.handleCumulative(p, tsn, now, out)
}

// handleShutdownAck ends our side, and tells the peer to.
func (a *Association) handleShutdownAck(p *Path, now time.Time, out *Output) {
	if a.state != shutdownSent && a.state != shutdownAckSent {
		a.endpoint.Counters.Unexpected++
		return
	}
	a.sendAlone(a.answersBy(p), chunk.Append(nil, chunk.TypeShutdownComplete, 0, nil), out)
	a.endpoint.parted.add(a.tag, now)
	a.end(out)
}

// end is the end of an association as it should be.
func (a *Association) end(out *Output) {
	a.state = closed
	a.event(out, Event{Kind: Closed})
}
