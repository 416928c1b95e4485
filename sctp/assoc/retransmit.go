// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// timeout is the end of a path's T3-rtx (RFC 9260 section 6.3.3).
func (a *Association) timeout(p *Path, now time.Time, out *Output) {
	p.t3 = time.Time{}
	if p.flight == 0 {
		return
	}
	a.endpoint.Counters.Timeouts++
	p.congestion.timeout(a.fragmentRoom(p))
	a.countTimeout(p, now)
	if a.closedTo(p) && a.sackHeard { // section 6.1, A: the peer is there, and has no room
		p.backOff()
	} else {
		a.strike(p, true, now, out)
	}
	a.sackHeard = false
	if a.state == closed {
		return
	}
	for i := range a.sent.length {
		if c := a.sent.at(i); c.path == p && c.inFlight() {
			a.mark(c, true)
		}
	}
	if p.state == Failing && p.waitsFor.IsZero() && p.Parameters.HeartbeatInterval >= 0 {
		p.heartbeatAt = now // RFC 7829 section 3.2, 6
	}
	a.abandon(now, out)
	a.forward(now, out)
	a.sendAgain(nil, now, out)
}

// takeBackTimeout takes back what a timeout has marked behind a chunk that is acknowledged now, and was not sent again
// since: that was late, and not lost, so what was sent behind it may be late as well (RFC 4138 section 5). It is in flight
// as before, the window is that after a loss; what is missing before the chunk is sent again. Where there is another path,
// data goes there all the same. It is no part of RFC 9260: Parameters.SpuriousTimeouts switches it.
func (a *Association) takeBackTimeout(p *Path, now time.Time) {
	if !a.par.SpuriousTimeouts || a.alternate(p) != p {
		return
	}
	for i := max(0, int(int32(p.ack.lateTSN-a.acked))); i < a.sent.length; i++ {
		if c := a.sent.at(i); c.marked && c.timedOut && !c.early && c.path == p {
			c.marked, c.timedOut = false, false
			a.marked--
			p.flight += a.length(c.size)
			a.outside += c.size
		}
	}
	p.cwnd = max(p.cwnd, p.ssthresh)
	p.t3 = now.Add(p.rto)
	a.endpoint.Counters.Spurious++
}

// closedTo reports whether the peer has no room for what is in flight by a path: it was sent to probe a closed window, or
// the window has closed since.
func (a *Association) closedTo(p *Path) bool {
	at := a.nextInFlight(p, 0)
	return a.probing || at >= 0 && a.announced < a.sent.at(at).size
}

// firstMarked finds the first chunk that is to be sent again, and where it goes.
func (a *Association) firstMarked() (at int, p *Path) {
	for i := range a.sent.length {
		if c := a.sent.at(i); c.marked {
			return i, a.wayFor(c)
		}
	}
	return 0, nil
}

// sendAgain sends one packet of marked chunks, whatever the window is (RFC 9260 sections 6.3.3, E3, and 7.2.4,
// 3). only is the path of a fast retransmission; after a timeout nil.
func (a *Association) sendAgain(only *Path, now time.Time, out *Output) {
	at, p := a.firstMarked()
	if p == nil || !p.carries() || only != nil && p != only {
		return
	}
	w := a.composeFor(a.sent.at(at), p, out)
	a.repeat(&w, at, now)
	w.finish()
}

// composeFor begins a packet that has room for a chunk, which may have been cut when the path took larger ones.
func (a *Association) composeFor(c *sent, p *Path, out *Output) composer {
	needed := chunk.HeaderSize + a.length(c.size)
	if a.protects(a.dataType()) {
		needed += a.authSize()
	}
	w := a.composeSized(p, max(p.room(), needed), out)
	w.fragment = needed > p.room()
	return w
}

// repeat fills a packet with marked chunks that go its way.
func (a *Association) repeat(w *composer, from int, now time.Time) {
	a.watch(w.path, now)
	for i := from; i < a.sent.length && a.marked > 0; i++ {
		c := a.sent.at(i)
		if !c.marked || a.wayFor(c) != w.path {
			continue
		}
		if !w.fits(a.dataType(), a.length(c.size)) {
			return
		}
		tsn := a.acked + 1 + uint32(i)
		a.untime(tsn)
		a.pass(w.path, c, tsn, a.countRepeat(c), w.out)
		c.marked, c.timedOut, c.early, c.misses = false, false, false, 0
		a.marked--
		a.launch(c, w.path)
		w.put(c, tsn)
		a.startT3(w.path, i, now)
	}
}

// countRepeat counts a chunk that is sent again, by its reason.
func (a *Association) countRepeat(c *sent) PassageKind {
	switch counters := &a.endpoint.Counters; {
	case c.early:
		counters.EarlyMoves++
		return SentMoved
	case c.timedOut:
		counters.Retransmitted++
		return SentLate
	default:
		counters.FastRetrans++
		return SentFast
	}
}

// untime gives up measurements that a retransmission spoils (RFC 9260 section 6.3.1, C5).
func (a *Association) untime(tsn uint32) {
	for _, p := range a.paths {
		if p.timing && !before(p.timedTSN, tsn) {
			p.timing = false
		}
	}
}

// startT3 starts a path's timer when a chunk goes by it, or starts it anew if that is the first on its way (RFC
// 9260 section 6.1).
func (a *Association) startT3(p *Path, place int, now time.Time) {
	if !p.t3.IsZero() {
		for i := range place {
			if c := a.sent.at(i); c.path == p && c.inFlight() {
				return
			}
		}
	}
	p.t3 = now.Add(p.rto)
}
