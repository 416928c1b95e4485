// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// expired reports whether a chunk is not to be sent again: its message's life is over, or it was sent as often as
// that may be (RFC 3758 section 4).
func (c *sent) expired(now time.Time) bool {
	m := c.message
	return !m.deadline.IsZero() && !m.deadline.After(now) || m.Tries > 0 && int(c.tries) >= m.Tries
}

// dropExpired gives up the messages whose turn it is and whose time is over. One that is begun is, if the peer can be told
// not to wait for the rest (RFC 3758 section 4.1).
func (a *Association) dropExpired(now time.Time, out *Output) {
	for m := a.upcoming(); m != nil && reached(m.deadline, now); m = a.upcoming() {
		switch {
		case m.cut == 0:
			a.leaveQueue()
			a.giveUp(m, out)
			a.queued -= len(m.User)
			a.kept--
		case a.forwards:
			a.abandonMessage(m, out)
			a.abandonChunks()
			a.forward(now, out)
		default:
			return
		}
		a.unblock(out)
	}
}

// hasRoom reports whether the send buffer takes so many octets of a stream. If it is full, messages that wait in it and
// are over make room; and if that is not enough our user is told of more.
func (a *Association) hasRoom(s *outStream, octets int, now time.Time, out *Output) bool {
	takes := func() bool {
		left := a.par.SendBuffer - a.filled() - octets
		return left >= 0 && max(s.octets, leastCost*s.waiting.length) <= greed*left
	}
	if takes() {
		return true
	}
	if a.clearOut(now, out); takes() {
		return true
	}
	a.blocked = true
	a.endpoint.settle(a)
	return false
}

// clearOut takes the messages out of all queues that are not begun and whose time is over.
func (a *Association) clearOut(now time.Time, out *Output) {
	a.roomAt = time.Time{}
	for i := range a.outs {
		waiting := &a.outs[i].waiting
		for range waiting.length {
			m := *waiting.at(0)
			switch waiting.drop(); {
			case m.cut == 0 && reached(m.deadline, now):
				a.giveUp(m, out)
				a.queued -= len(m.User)
				a.kept--
				a.outs[i].octets -= len(m.User)
				continue
			case m.cut == 0:
				a.roomAt = earliest(a.roomAt, m.deadline)
			}
			*waiting.push() = m
		}
	}
	for range a.ready.length {
		stream := *a.ready.at(0)
		if a.ready.drop(); a.outs[stream].waiting.length > 0 {
			*a.ready.push() = stream
		}
	}
	a.unblock(out)
}

// giveUp tells the user of a message that will not arrive.
func (a *Association) giveUp(m *message, out *Output) {
	a.endpoint.Counters.Abandoned++
	a.event(out, Event{Kind: SendFailed, Reason: ReasonExpired, Data: Data{m.Stream, m.Unordered, m.Protocol, true, true, m.User}})
}

// abandon gives up the messages of marked chunks that have expired, with all of their chunks (RFC 3758 section
// 3.5, A2 and A3).
func (a *Association) abandon(now time.Time, out *Output) {
	if !a.forwards || a.marked == 0 {
		return
	}
	given := false
	for i := range a.sent.length {
		if c := a.sent.at(i); c.marked && c.expired(now) {
			a.abandonMessage(c.message, out)
			given = true
		}
	}
	if given {
		a.abandonChunks()
	}
}

// abandonChunks gives up the chunks of messages that are given up.
func (a *Association) abandonChunks() {
	for i := range a.sent.length {
		if c := a.sent.at(i); c.message.abandoned && !c.abandoned {
			a.abandonChunk(c)
			a.untime(a.acked + 1 + uint32(i))
		}
	}
}

// abandonMessage tells the user. What has no TSN yet never gets one, but one more TSN is given up in its place: the peer
// may have all that was sent of the message, and would take a FORWARD TSN up to there for out of date, and wait for the
// rest.
func (a *Association) abandonMessage(m *message, out *Output) {
	if m.abandoned {
		return
	}
	m.abandoned = true
	a.giveUp(m, out)
	if m.cut < len(m.User) {
		a.queued -= len(m.User) - m.cut
		a.leaveStream(m)
		m.User = m.User[:m.cut]
		*a.sent.push() = sent{message: m, path: a.destination(), offset: m.cut, fragment: m.fragments, acked: true, abandoned: true}
		m.open++
		a.nextTSN++
	}
}

// abandonChunk treats a chunk as acknowledged; no window grows by that (RFC 3758 section 3.5, A2).
func (a *Association) abandonChunk(c *sent) {
	switch {
	case c.marked:
		c.marked = false
		a.marked--
	case !c.acked:
		a.land(c)
	}
	c.acked, c.abandoned = true, true
}

// forward tells the peer not to wait for what was given up at the head of what is outstanding, when there is more of
// it than it was told of before (RFC 3758 section 3.5, C1 to C5).
func (a *Association) forward(now time.Time, out *Output) {
	if a.sent.length == 0 || !a.sent.at(0).abandoned {
		a.forwardAt = time.Time{}
		return
	}
	p := a.choose(out)
	n, skips := a.skippable(p)
	if tsn := a.acked + uint32(n); a.forwardAt.IsZero() || a.forwarded != tsn {
		a.sendForward(p, tsn, skips, now, out)
	}
}

// skippable is how many chunks were given up at the head, as far as a packet can tell, with the last message of each
// stream.
func (a *Association) skippable(p *Path) (n int, skips []chunk.Skip) {
	most := (a.fragmentRoom(p) - 8) / 8
	for ; n < a.sent.length && a.sent.at(n).abandoned && len(skips) < most; n++ {
		m := a.sent.at(n).message
		if m.Unordered && !a.interleaved {
			continue
		}
		at := slices.IndexFunc(skips, func(s chunk.Skip) bool { return s.Stream == m.Stream && s.Unordered == m.Unordered })
		if at < 0 {
			at = len(skips)
			skips = append(skips, chunk.Skip{Stream: m.Stream, Unordered: m.Unordered})
		}
		skips[at].Message = m.number
	}
	return n, skips
}

// sendForward sends a FORWARD TSN, and has it repeated if it is not acknowledged (rule C5).
func (a *Association) sendForward(p *Path, tsn uint32, skips []chunk.Skip, now time.Time, out *Output) {
	if a.forwardAt = now.Add(p.rto); !p.carries() {
		return
	}
	a.forwarded = tsn
	a.sendAlone(p, chunk.AppendForwardTSN(nil, tsn, skips, a.interleaved), out)
}

// forwardExpired tells it again. It is a timeout of the path, unless that has one of its own for data.
func (a *Association) forwardExpired(now time.Time, out *Output) {
	a.forwardAt = time.Time{}
	if !a.alive() {
		return
	}
	if p := a.destination(); p.t3.IsZero() {
		a.strike(p, true, now, out)
	}
	if a.state != closed {
		a.forward(now, out)
	}
}

// handleForwardTSN waits no longer for what the peer has given up (RFC 3758 section 3.6, RFC 8260 section 2.3.1).
func (a *Association) handleForwardTSN(p *Path, c chunk.Chunk, out *Output) (goOn bool) {
	if !a.forwards {
		return a.handleUnknown(c)
	}
	f, err := chunk.ParseForwardTSN(c)
	switch {
	case err != nil:
		a.endpoint.Counters.BadChunk++
		return true
	case (c.Type == chunk.TypeIForwardTSN) != a.interleaved: // RFC 8260 section 2.3.1
		a.abort(p, ReasonViolation, chunk.Cause{Code: chunk.CauseProtocolViolation, Value: []byte("the wrong kind of FORWARD TSN")}, out)
		return false
	case a.state < established:
		a.endpoint.Counters.Unexpected++
		return true
	}
	a.arrivals.data = true
	if !before(a.got.cumulative, f.TSN) { // out of date
		a.arrivals.urgent = true
		return true
	}
	a.arrivals.fresh = true
	a.got.skip(f.TSN)
	for s := range f.Skips() {
		if int(s.Stream) < len(a.in) || s.Stream < a.inLimit {
			a.skip(s, out)
		}
	}
	if !a.interleaved {
		a.dropLoose(f.TSN, out)
	}
	return true
}

// skip takes the messages of a stream up to one for done: whole ones are delivered, of others nothing more is.
func (a *Association) skip(s chunk.Skip, out *Output) {
	for int(s.Stream) >= len(a.in) {
		a.in = append(a.in, inStream{})
	}
	stream := &a.in[s.Stream]
	if s.Unordered {
		a.skipLoose(s, stream, out)
		return
	}
	done := 0
	for ; done < len(stream.ordered) && !messageBefore(s.Message, stream.ordered[done].message, a.interleaved); done++ {
		m := stream.ordered[done]
		if whole := a.deliverPieces(s.Stream, false, m, out); !whole && m.begun {
			a.event(out, Event{Kind: Truncated, Data: Data{Stream: s.Stream, Protocol: m.protocol}})
		}
		a.forget(m)
	}
	stream.ordered = slices.Delete(stream.ordered, 0, done)
	if !messageBefore(s.Message, stream.next, a.interleaved) {
		stream.next = nextMessage(s.Message, a.interleaved)
		a.deliverOrdered(s.Stream, stream, out)
	}
}
