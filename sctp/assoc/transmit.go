// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// composer makes a packet.
type composer struct {
	a    *Association
	path *Path
	out  *Output
	b    []byte
	room int // octets that the packet may have
}

// compose begins a packet.
func (a *Association) compose(p *Path, out *Output) composer {
	room := p.room()
	h := chunk.Header{Source: a.endpoint.config.Port, Destination: a.peerPort, Tag: a.peerTag}
	return composer{a, p, out, chunk.Begin(out.alloc(room), h), room}
}

// fits reports whether there is room for a chunk of so many octets.
func (w *composer) fits(octets int) bool { return len(w.b)+octets <= w.room }

// empty reports whether no chunk is in the packet.
func (w *composer) empty() bool { return len(w.b) == chunk.HeaderSize }

// finish hands the packet out, unless it is empty.
func (w *composer) finish() {
	if w.empty() {
		w.out.give(w.b, 0)
		return
	}
	chunk.Seal(w.b)
	w.out.give(w.b, len(w.b))
	w.out.Packets = append(w.out.Packets, Packet{w.path.Pair, w.path.port, w.b})
}

// sendAlone sends chunks in a packet of their own.
func (a *Association) sendAlone(p *Path, chunks []byte, out *Output) {
	a.sendTagged(p, a.peerTag, chunks, out)
}

// sendTagged does so with another tag than the peer's.
func (a *Association) sendTagged(p *Path, tag uint32, chunks []byte, out *Output) {
	h := chunk.Header{Source: a.endpoint.config.Port, Destination: a.peerPort, Tag: tag}
	b := append(chunk.Begin(out.alloc(chunk.HeaderSize+len(chunks)), h), chunks...)
	chunk.Seal(b)
	out.Packets = append(out.Packets, Packet{p.Pair, p.port, b})
}

// transmit sends all that is to be sent now: answers to where the packet that is handled came from, a SACK, and
// data as far as the windows allow, bundled where they go the same way (RFC 9260 sections 6.1 and 6.10).
func (a *Association) transmit(from *Path, now time.Time, out *Output) {
	if a.state == closed || a.state == cookieWait || a.state == cookieEchoed && from == nil {
		return
	}
	if len(a.endpoint.control) > 0 || a.sackDue {
		a.answerNow(from, now, out)
	}
	if !a.alive() {
		return
	}
	for a.marked > 0 && a.transmitMarked(now, out) {
	}
	for range max(a.par.MaxBurst, 1) {
		if a.upcoming() == nil || !a.transmitNew(now, out) {
			break
		}
	}
	a.guard(now)
}

// answerNow sends control chunks and a SACK, with data if they go where that goes.
func (a *Association) answerNow(from *Path, now time.Time, out *Output) {
	to := from
	if to == nil {
		to = a.destination()
	}
	if control := a.endpoint.control; len(control) > 0 {
		w := a.compose(to, out)
		w.b = append(w.b, control...)
		a.endpoint.control = control[:0]
		a.fill(&w, now)
		w.finish()
	}
	if !a.sackDue {
		return
	}
	if to = a.sackPath; to == nil {
		to = a.destination()
	}
	w := a.compose(to, out)
	a.fill(&w, now)
	w.finish()
}

// fill adds a SACK that is owed to a packet, and data.
func (a *Association) fill(w *composer, now time.Time) {
	owed := a.sackDue && (a.sackPath == nil || a.sackPath == w.path)
	if owed && w.fits(minSACK) {
		w.b = a.appendSACK(w.b, w.room-len(w.b))
	}
	if a.alive() && a.marked == 0 && w.path == a.current && a.current == a.choose(w.out) && w.path.open() > 0 {
		a.addNew(w, now)
	}
}

// minSACK is the room that a SACK wants at least.
const minSACK = 32

// bundleSACK adds a SACK that would be sent later to a packet with data (RFC 9260 section 6.1), if it goes where
// the SACK would.
func (a *Association) bundleSACK(w *composer) {
	if (a.sackDue || a.unacked > 0) && a.sackPath == w.path && w.fits(minSACK) && a.got.gapless() {
		w.b = a.appendSACK(w.b, w.room-len(w.b))
	}
}

// transmitMarked sends a packet of chunks again. It returns false if the window does not allow it.
func (a *Association) transmitMarked(now time.Time, out *Output) bool {
	at, p := a.firstMarked()
	if p.open() <= 0 {
		return false
	}
	w := a.compose(p, out)
	a.bundleSACK(&w)
	a.repeat(&w, at, now)
	w.finish()
	return true
}

// transmitNew sends a packet of data for the first time. It returns false if nothing may be sent.
func (a *Association) transmitNew(now time.Time, out *Output) bool {
	p := a.choose(out)
	p.rest(a.fragmentRoom(p), now)
	if p.open() <= 0 || !a.windowOpen(a.upcoming()) {
		return false
	}
	w := a.compose(p, out)
	a.bundleSACK(&w)
	a.addNew(&w, now)
	w.finish()
	return true
}

// maxOutstanding is how many chunks may be unacknowledged: fewer than a gap can tell (RFC 9260 section 3.3.4).
const maxOutstanding = 1 << 15

// addNew fills a packet with data. The window of the path was open before: the packet may go over it (RFC 9260
// section 6.1, B).
func (a *Association) addNew(w *composer, now time.Time) {
	largest := a.largestFragment()
	for m := a.upcoming(); m != nil; m = a.upcoming() {
		octets := min(len(m.User)-m.cut, largest)
		if !w.fits(a.length(octets)) || a.sent.length >= maxOutstanding || !a.windowOpen(m) || w.path.open() <= 0 {
			return
		}
		a.probing, a.ask = octets > a.peerWindow, false
		tsn := a.nextTSN
		c := a.cutOff(m, octets)
		a.launch(c, w.path)
		w.b = a.put(w.b, c, tsn)
		if w.path.t3.IsZero() {
			w.path.t3 = now.Add(w.path.rto)
		}
		if p := w.path; !p.timing {
			p.timing, p.timedTSN, p.timedAt = true, tsn, now
		}
		w.path.sentAt, w.path.idle = now, false
	}
}

// windowOpen reports whether the peer has room for the next chunk of a message, or is to be asked by one (RFC
// 9260 section 6.1, A).
func (a *Association) windowOpen(m *message) bool {
	return a.ask || min(len(m.User)-m.cut, a.largestFragment()) <= a.peerWindow
}

// guard sees to it that something happens while the peer's window is closed: it is probed, the first time after
// an RTO, then less and less often (RFC 9260 section 6.1, A).
func (a *Association) guard(now time.Time) {
	m := a.upcoming()
	if m == nil || a.sent.length > 0 || a.windowOpen(m) || !a.windowAt.IsZero() {
		return
	}
	a.windowTime = min(max(2*a.windowTime, a.destination().rto), a.par.RTOMax)
	a.windowAt = now.Add(a.windowTime)
}
