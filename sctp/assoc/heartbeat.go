// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"encoding/binary"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// infoSize is that of our information in a heartbeat (RFC 9260 sections 5.4 and 8.3, RFC 8899 section 6.2.1.2):
//
//	| the path's nonce (8) | when it was sent, ns (8) | size of the probe that it is, or 0 (4) |
const infoSize = 8 + 8 + 4

func (a *Association) heartbeatInfo(p *Path, size int, now time.Time) []byte {
	info := binary.BigEndian.AppendUint64(a.endpoint.info[:0], p.nonce)
	info = binary.BigEndian.AppendUint64(info, uint64(now.Sub(a.epoch)))
	return binary.BigEndian.AppendUint32(info, uint32(size))
}

// startHeartbeats has the paths probed by which nothing has come yet, so many each RTO: unconfirmed ones must be
// (RFC 9260 section 5.4), and of the others nobody knows whether they can stand in for the first. That is probed
// when it has been idle (section 8.3).
func (a *Association) startHeartbeats(now time.Time) {
	probed := 0
	for _, p := range a.paths {
		if p.confirmed && (p == a.primary || p.Parameters.HeartbeatInterval < 0) {
			p.heartbeatAt, p.askedAt = a.heartbeatTime(p, now), now // the set-up has asked
			continue
		}
		p.heartbeatAt = now.Add(time.Duration(probed/max(a.par.HeartbeatMaxBurst, 1)) * p.rto)
		probed++
	}
}

// beatsInRTO is into how many beats an RTO is divided.
const beatsInRTO = 16

// heartbeatTime is when a path's next heartbeat is due if it is idle from now on; zero if it has none. The RTO
// is jittered by half of it either way (RFC 9260 section 8.3), in beats of the endpoint: of thousands of associations at
// rest many are due together, and leave, and are answered, in few system calls.
func (a *Association) heartbeatTime(p *Path, now time.Time) time.Time {
	if p.Parameters.HeartbeatInterval < 0 {
		return time.Time{}
	}
	e, beat := a.endpoint, max(p.rto/beatsInRTO, 1)
	if e.origin.IsZero() {
		e.origin = now
	}
	least := now.Add(p.leastPause())
	at := least.Add(time.Duration(e.random64() % uint64(p.rto+1)))
	if at = at.Add(-(at.Sub(e.origin) % beat)); at.Before(least) {
		at = at.Add(beat)
	}
	return at
}

// leastPause is the least time between two heartbeats of an idle path that works.
func (p *Path) leastPause() time.Duration { return p.Parameters.HeartbeatInterval + p.rto/2 }

// alive reports whether the association has heartbeats, and data that is sent (RFC 9260 sections 6 and 8.3).
func (a *Association) alive() bool {
	return a.state == established || a.state == shutdownPending || a.state == shutdownReceived
}

// beats reports whether a path has heartbeats.
func (a *Association) beats(p *Path) bool { return a.alive() && p.use == normal && !p.down }

// heartbeat does what is due of a path's heartbeats.
func (a *Association) heartbeat(p *Path, now time.Time, out *Output) {
	if !a.beats(p) {
		p.heartbeatAt, p.waitsFor = time.Time{}, time.Time{}
		return
	}
	if !reached(p.heartbeatAt, now) {
		return
	}
	idle := p.sentAt.Add(p.leastPause())
	if p.usable() && idle.After(now) {
		p.heartbeatAt = idle
		return
	}
	if !p.confirmed && !a.mayVerify(p, now) {
		p.heartbeatAt = a.verification.until
		return
	}
	a.trim()
	a.sendHeartbeat(p, now, out)
}

// verification counts the heartbeats to unconfirmed addresses of one RTO.
type verification struct {
	until time.Time
	sent  int
}

// mayVerify reports whether an unconfirmed path may be probed now: there are no more than HB.Max.Burst probes in an RTO
// (RFC 9260 section 5.4), and the path that has waited longest is first.
func (a *Association) mayVerify(p *Path, now time.Time) bool {
	v := &a.verification
	if !v.until.After(now) {
		*v = verification{until: now.Add(a.destination().rto)}
	}
	if v.sent >= max(a.par.HeartbeatMaxBurst, 1) {
		return false
	}
	for _, other := range a.paths {
		if !other.confirmed && reached(other.heartbeatAt, now) && other.probedAt.Before(p.probedAt) {
			return false
		}
	}
	v.sent++
	p.probedAt = now
	return true
}

// trim gives up memory that an association at rest does not need.
func (a *Association) trim() {
	a.sent.trim()
	a.ready.trim()
	for i := range a.outs {
		a.outs[i].waiting.trim()
	}
}

// sendHeartbeat sends one (RFC 9260 section 8.3).
func (a *Association) sendHeartbeat(p *Path, now time.Time, out *Output) {
	e := a.endpoint
	e.heartbeat = chunk.AppendHeartbeat(e.heartbeat[:0], a.heartbeatInfo(p, 0, now))
	a.sendAlone(p, e.heartbeat, out)
	p.asked(now)
}

// asked books that a heartbeat leaves by the path. If one is out, its answer is missed no later for that: where one
// direction is cut, what the peer sends by the other has us ask again and again.
func (p *Path) asked(now time.Time) {
	p.heartbeatAt, p.askedAt = time.Time{}, now
	if p.waitsFor.IsZero() {
		p.waitsFor = now.Add(p.rto)
	}
}

// heartbeatMissed counts a heartbeat that was not answered in time. A path that is not confirmed, or has
// potentially failed, is asked again at once (RFC 9260 section 5.4, RFC 7829 section 3.2, 6), and so is one that may be
// back. It comes before a timeout of the same instant, which leaves nothing in flight: one silence is one error.
func (a *Association) heartbeatMissed(p *Path, now time.Time, out *Output) {
	if !reached(p.waitsFor, now) || !a.beats(p) {
		return
	}
	p.waitsFor = time.Time{}
	if p.flight > 0 && p.confirmed { // the data that is out there tells (RFC 7829 section 3.2, 6)
		p.heartbeatAt = now.Add(p.rto)
		return
	}
	a.strike(p, p == a.current, now, out)
	switch returning := a.returning(p); {
	case a.state == closed:
	case p.state == Inactive && returning:
		p.heartbeatAt = now.Add(p.rto)
	case p.confirmed && p.Parameters.HeartbeatInterval < 0 && !returning: // this one the user has asked for
	case p.state == Inactive || p.confirmed && p.state == Active && !returning:
		p.heartbeatAt = a.heartbeatTime(p, now)
	default:
		p.heartbeatAt = now
	}
}

// Probe sends a heartbeat by a path at once (RFC 9260 section 8.3, D).
func (a *Association) Probe(pair Pair, now time.Time, out *Output) {
	if p := a.path(pair); p != nil && a.alive() {
		a.sendHeartbeat(p, now, out)
		a.endpoint.settle(a)
	}
}

// handleHeartbeat answers a heartbeat with all that is in it (RFC 9260 section 8.3).
func (a *Association) handleHeartbeat(p *Path, c chunk.Chunk, now time.Time) {
	if a.state == shutdownSent || a.state == shutdownAckSent {
		a.endpoint.Counters.Unexpected++
		return
	}
	a.endpoint.control = chunk.Append(a.endpoint.control, chunk.TypeHeartbeatAck, 0, c.Body)
	a.joinHeartbeat(p, now)
}

// joinHeartbeat puts our heartbeat of a path into the answer to the peer's, if it is useful now.
func (a *Association) joinHeartbeat(p *Path, now time.Time) {
	const size = 4 + 4 + infoSize // of the chunk, its parameter's header with it
	if p == nil || !a.alive() || !p.carries() || chunk.HeaderSize+a.authSize()+len(a.endpoint.control)+size > p.room() {
		return
	}
	if !a.returns(p, now) && !p.mayJoin(now) {
		return
	}
	a.trim()
	a.endpoint.control = chunk.AppendHeartbeat(a.endpoint.control, a.heartbeatInfo(p, 0, now))
	p.asked(now)
}

// mayJoin reports whether the heartbeat of a path that works might be sent now as well as when it is due (RFC 9260
// section 8.3: the RTO is jittered). Both ends have the same clock from then on: of two that are at rest each path costs
// three packets where it would cost four.
func (p *Path) mayJoin(now time.Time) bool {
	return p.usable() && !p.heartbeatAt.IsZero() && p.waitsFor.IsZero() &&
		!p.askedAt.Add(p.leastPause()).After(now) && !p.sentAt.Add(p.leastPause()).After(now)
}

// returnPause is the least time between two heartbeats of a path that may be back.
const returnPause = 100 * time.Millisecond

// returns reports whether a path that has failed is to be asked, now that the peer asks by it: it may be back, and our own
// next heartbeat is an HB.interval or a timeout away. RFC 9260 section 8.3 has nothing of it.
func (a *Association) returns(p *Path, now time.Time) bool {
	return a.par.EarlyProbe && p.state != Active && !p.down && p.Parameters.HeartbeatInterval >= 0 && !p.askedAt.Add(returnPause).After(now)
}

// handleHeartbeatAck takes the answer to a heartbeat: the path works, and the peer is there (RFC 9260 sections
// 5.4 and 8.3).
func (a *Association) handleHeartbeatAck(c chunk.Chunk, now time.Time, out *Output) {
	if a.state == shutdownAckSent { // T2 counts alone: an old answer that is repeated would keep us for ever
		a.endpoint.Counters.Unexpected++
		return
	}
	info, err := chunk.ParseHeartbeat(c.Body)
	if err != nil || len(info) != infoSize {
		a.endpoint.Counters.BadHeartbeat++
		return
	}
	sent := a.epoch.Add(time.Duration(binary.BigEndian.Uint64(info[8:])))
	for _, p := range a.paths {
		if p.nonce == binary.BigEndian.Uint64(info) && !sent.After(now) && !sent.Before(a.epoch) {
			a.answered(p, now.Sub(sent), now, out)
			if size := binary.BigEndian.Uint32(info[16:]); size > 0 {
				a.probed(p, int(min(size, 1<<16)), now)
			}
			return
		}
	}
	a.endpoint.Counters.BadHeartbeat++
}

// answered books a heartbeat's answer.
func (a *Association) answered(p *Path, after time.Duration, now time.Time, out *Output) {
	p.waitsFor = time.Time{}
	p.heartbeatAt = a.heartbeatTime(p, now)
	p.measure(after)
	p.heard = true
	a.errors = 0
	a.trust(p, now)
	if !p.confirmed {
		for _, same := range a.paths {
			if same.Remote == p.Remote {
				same.confirmed = true
			}
		}
		a.event(out, Event{Kind: PathConfirmed, Pair: p.Pair})
		a.fulfil()
	}
	a.answer(p, out)
	a.startSearch(p, now)
	a.redirect(p, now, out)
}
