// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import "time"

// suspicion is that of a path which has not answered for longer than it should. It is no part of the RFCs, and
// Parameters.EarlyProbe switches it: T3 waits for RTO.Min, which is a second, whatever the round trip is. A path in
// doubt is asked, and so is another one, by copies of the oldest chunks. If that one answers first, all moves there
// until the path in doubt answers. Neither errors nor states of RFC 9260 and RFC 7829 change by it.
type suspicion struct {
	at      time.Time     // when silence becomes suspicious; zero while nothing is waited for
	wait    time.Duration // that the last copies are given to be answered
	instead *Path         // by which copies went; nil if the path is not in doubt
	tsn     uint32        // of the oldest of them
	moved   bool          // data goes another way
}

// minSuspicion is the least time that a path is given to answer.
const minSuspicion = 20 * time.Millisecond

// patience is how long a path may be silent: two round trips and their variance. With less than two packets out, the
// peer may delay its acknowledgement (RFC 9260 section 6.2).
func (a *Association) patience(p *Path) time.Duration {
	wait := max(2*p.srtt+4*p.rttvar, minSuspicion)
	if p.unanswered < sackEvery && p.flight <= p.room() {
		wait += min(a.par.SACKDelay, maxSACKDelay)
	}
	return wait
}

// watch waits for the answer to a packet of data that goes by a path, or for what was sent before it, whichever is
// due first.
func (a *Association) watch(p *Path, now time.Time) {
	p.unanswered++
	if p.suspicion.instead == nil {
		p.suspicion.at = earliest(p.suspicion.at, a.suspectFrom(p, now))
	}
}

// expectNothing ends the wait for an answer: all that was out is acknowledged, or goes another way. The next packet must not be
// due when that was.
func (p *Path) expectNothing() {
	p.unanswered = 0
	if p.suspicion.instead == nil {
		p.suspicion.at = time.Time{}
	}
}

// suspectFrom is when silence from now on is suspicious; zero if there is nothing to be done about it. Without
// heartbeats a path could not show that it works again.
func (a *Association) suspectFrom(p *Path, now time.Time) time.Time {
	if !a.par.EarlyProbe || !p.measured || p.Parameters.HeartbeatInterval < 0 || len(a.paths) == 1 {
		return time.Time{}
	}
	return now.Add(a.patience(p))
}

// hearAnswer takes it that chunks of a path are acknowledged: the wait begins anew, for what is still out.
func (a *Association) hearAnswer(p *Path, now time.Time) {
	p.unanswered = 0
	if p.suspicion.instead != nil {
		return
	}
	if p.suspicion.at = (time.Time{}); p.flight > 0 {
		p.suspicion.at = a.suspectFrom(p, now)
	}
}

// suspicionDue suspects a path that has been silent for too long.
func (a *Association) suspicionDue(p *Path, now time.Time, out *Output) {
	if !reached(p.suspicion.at, now) {
		return
	}
	if p.suspicion.at = (time.Time{}); a.alive() {
		a.suspect(p, now, out)
	}
}

// suspect asks a path whether it works, and sends copies of the oldest chunks in flight there by another. If neither
// answers, that is done again after twice the time.
func (a *Association) suspect(p *Path, now time.Time, out *Output) {
	s := &p.suspicion
	other, at := a.alternate(p), a.nextInFlight(p, 0)
	if a.suspectFrom(p, now).IsZero() || s.moved || p.state != Active || other == p || !other.usable() || other.open() <= 0 || at < 0 {
		return
	}
	if s.instead == nil {
		a.doubted++
		s.wait = a.patience(p)
		a.check(p, now, out)
	}
	a.copyTo(other, p, at, now, out)
	s.instead, s.tsn = other, a.acked+1+uint32(at)
	s.wait *= 2
	s.at = now.Add(s.wait)
}

// noticeReturn asks a path that seemed to be broken when something has come by it, and not only when its next
// heartbeat is due.
func (a *Association) noticeReturn(p *Path, now time.Time, out *Output) {
	if !a.par.EarlyProbe || !a.alive() || p == nil || p.works() || p.down || !p.carries() || p.Parameters.HeartbeatInterval < 0 {
		return
	}
	if now.Sub(p.askedAt) >= max(p.srtt, minSuspicion) {
		a.sendHeartbeat(p, now, out)
	}
}

// check sends a heartbeat unless one is on its way.
func (a *Association) check(p *Path, now time.Time, out *Output) {
	if p.waitsFor.IsZero() {
		a.sendHeartbeat(p, now, out)
	}
}

// nextInFlight is the place of the first chunk in flight by a path, from a place on; -1 if there is none.
func (a *Association) nextInFlight(p *Path, from int) int {
	for i := from; i < a.sent.length; i++ {
		if c := a.sent.at(i); c.path == p && c.inFlight() {
			return i
		}
	}
	return -1
}

// copyPackets is how many packets of copies are sent: what is oldest may have come, and its acknowledgement be lost.
const copyPackets = 2

// copyTo sends copies by a path of the chunks that are in flight by another, the oldest first. Nobody will know which
// was acknowledged (RFC 9260 section 6.3.1, C5).
func (a *Association) copyTo(p, from *Path, at int, now time.Time, out *Output) {
	a.untime(a.acked + 1 + uint32(at))
	for range copyPackets {
		if at = a.nextInFlight(from, at); at < 0 {
			return
		}
		w := a.composeFor(a.sent.at(at), p, out)
		w.urgent = true // it may be all that is out, and the answer decides
		for ; at >= 0 && w.fits(a.dataType(), a.length(a.sent.at(at).size)); at = a.nextInFlight(from, at+1) {
			c := a.sent.at(at)
			a.endpoint.Counters.EarlyCopies++
			c.moved = true
			c.tries += min(1, 255-c.tries)
			w.put(c, a.acked+1+uint32(at))
			a.pass(p, c, a.acked+1+uint32(at), SentCopy, out)
		}
		w.finish()
		p.sentAt = now
		if at < 0 {
			return
		}
	}
}

// compareAnswers decides, when a packet with an answer has come by a path: if that was in doubt it works; if it was
// asked instead of another, and has the copy acknowledged, all moves to it.
func (a *Association) compareAnswers(by *Path, now time.Time) {
	if a.doubted == 0 || by == nil {
		return
	}
	a.trust(by, now)
	for _, p := range a.paths {
		if s := &p.suspicion; s.instead == by && !s.moved && a.isAcked(s.tsn) {
			a.moveFrom(p, now)
		}
	}
}

// isAcked reports whether a TSN that was sent is acknowledged.
func (a *Association) isAcked(tsn uint32) bool {
	return !before(a.acked, tsn) || a.sent.at(int(tsn-a.acked-1)).acked
}

// trust ends the doubts about a path.
func (a *Association) trust(p *Path, now time.Time) {
	if p.suspicion.instead == nil {
		return
	}
	p.suspicion = suspicion{}
	a.doubted--
	a.hearAnswer(p, now)
}

// moveFrom has all that is in flight by a path sent again by another, as new data is, until the path is trusted
// again. When that comes, its window begins as after a timeout.
func (a *Association) moveFrom(p *Path, now time.Time) {
	if p.suspicion.instead == nil {
		a.doubted++
	}
	p.suspicion = suspicion{instead: p, moved: true}
	p.congestion.timeout(a.fragmentRoom(p))
	p.t3 = time.Time{}
	for i := range a.sent.length {
		if c := a.sent.at(i); c.path == p && c.inFlight() {
			a.mark(c, true)
			c.early = true
		}
	}
	if p.waitsFor.IsZero() {
		p.heartbeatAt = now
	}
}
