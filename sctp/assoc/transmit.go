// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// composer makes a packet.
type composer struct {
	a      *Association
	path   *Path
	out    *Output
	b      []byte
	room   int // octets that the packet may have
	authAt int // where an AUTH is; 0 if there is none

	fragment bool // the packet is larger than the path carries
	urgent   bool // its data is to be acknowledged at once
}

// compose begins a packet.
func (a *Association) compose(p *Path, out *Output) composer { return a.composeSized(p, p.room(), out) }

// composeSized begins a packet that may have so many octets.
func (a *Association) composeSized(p *Path, room int, out *Output) composer {
	h := chunk.Header{Source: a.endpoint.config.Port, Destination: a.peerPort, Tag: a.peerTag}
	return composer{a: a, path: p, out: out, b: chunk.Begin(out.alloc(room), h), room: room}
}

// fits reports whether there is room for a chunk of a type and of so many octets.
func (w *composer) fits(t chunk.Type, octets int) bool {
	if w.authAt == 0 && w.a.protects(t) {
		octets += w.a.authSize()
	}
	return len(w.b)+octets <= w.room
}

// protect puts an AUTH in front of a chunk that the peer wants authenticated (RFC 4895 section 6.2).
func (w *composer) protect(t chunk.Type) {
	if w.authAt == 0 && w.a.protects(t) {
		w.authAt = len(w.b)
		w.b, _ = chunk.AppendAuth(w.b, 0, w.a.hmac, w.a.authSize()-8)
	}
}

// add writes chunks.
func (w *composer) add(chunks []byte) {
	for len(chunks) > 0 {
		c, rest, err := chunk.Next(chunks)
		if err != nil {
			return
		}
		w.protect(c.Type)
		w.b = append(w.b, chunks[:len(chunks)-len(rest)]...)
		chunks = rest
	}
}

// empty reports whether no chunk is in the packet.
func (w *composer) empty() bool { return len(w.b) == chunk.HeaderSize }

// finish hands the packet out, unless it is empty.
func (w *composer) finish() {
	if w.empty() {
		w.out.give(w.b, 0)
		return
	}
	if w.authAt > 0 {
		w.a.sign(w.b[w.authAt:])
	}
	chunk.Seal(w.b)
	w.out.give(w.b, len(w.b))
	w.out.Packets = append(w.out.Packets, Packet{w.path.Pair, w.path.port, w.fragment, w.b})
}

// sendAlone sends chunks in a packet of their own. IP fragments one that the path does not carry: nothing else would.
func (a *Association) sendAlone(p *Path, chunks []byte, out *Output) {
	w := a.compose(p, out)
	w.add(chunks)
	w.fragment = len(w.b) > w.room
	w.finish()
}

// transmit sends all that is to be sent now: answers to where the packet that is handled came from, a SACK, and
// data as far as the windows allow, bundled where they go the same way (RFC 9260 sections 6.1 and 6.10).
func (a *Association) transmit(from *Path, now time.Time, out *Output) {
	if a.state == closed || a.state == cookieWait || a.state == cookieEchoed && from == nil {
		return
	}
	if a.alive() {
		a.dropExpired(now, out)
		a.shutdownIfDone(now)
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
	if from != nil && !from.confirmed && from.use == normal {
		a.answerUnconfirmed(from, out)
	}
	to := a.answersBy(from)
	if !to.carries() {
		return
	}
	if control := a.endpoint.control; len(control) > 0 {
		w := a.compose(to, out)
		w.add(control)
		w.fragment = len(w.b) > w.room
		a.endpoint.control = control[:0]
		a.fill(&w, now)
		w.finish()
	}
	if !a.sackDue {
		return
	}
	w := a.compose(a.answersBy(a.sackPath), out)
	a.fill(&w, now)
	w.finish()
}

// answerUnconfirmed sends what may go to an address that the peer is not known to be at: answers to HEARTBEATs (RFC
// 9260 section 5.4) and to an ASCONF (RFC 5061 section 5.2, E6). The others are left for another path.
func (a *Association) answerUnconfirmed(p *Path, out *Output) {
	w := a.compose(p, out)
	others := a.endpoint.control[:0]
	for rest := a.endpoint.control; len(rest) > 0; {
		c, after, err := chunk.Next(rest)
		if err != nil {
			break
		}
		if one := rest[:len(rest)-len(after)]; c.Type == chunk.TypeHeartbeatAck || c.Type == chunk.TypeASCONFAck {
			w.add(one)
		} else {
			others = append(others, one...)
		}
		rest = after
	}
	w.finish()
	a.endpoint.control = others
}

// answerStranger answers an ASCONF that came from an address which it has not added: the answer goes there (RFC 5061
// section 5.2, E6).
func (a *Association) answerStranger(in *arrival, out *Output) {
	p := &Path{Pair: in.Pair, port: in.Port}
	p.mtu = p.base()
	a.answerUnconfirmed(p, out)
}

// fill adds a SACK that is owed to a packet, and data.
func (a *Association) fill(w *composer, now time.Time) {
	if a.sackDue && a.answersBy(a.sackPath) == w.path {
		a.addSACK(w)
	}
	if w.path.carries() && a.alive() && a.marked == 0 && w.path == a.current && a.current == a.choose(w.out) && w.path.open() > 0 {
		a.addNew(w, now)
	}
}

// minSACK is the room that a SACK wants at least.
const minSACK = 32

// bundleSACK adds a SACK that would be sent later to a packet with data (RFC 9260 section 6.1), if it goes where
// the SACK would.
func (a *Association) bundleSACK(w *composer) {
	if (a.sackDue || a.unacked > 0) && a.sackPath == w.path && a.got.gapless() {
		a.addSACK(w)
	}
}

func (a *Association) addSACK(w *composer) {
	if w.fits(chunk.TypeSACK, minSACK) {
		w.protect(chunk.TypeSACK)
		w.b = a.appendSACK(w.b, w.room-len(w.b))
		a.lastPath = w.path
	}
}

// transmitMarked sends a packet of chunks again. It returns false if the window does not allow it.
func (a *Association) transmitMarked(now time.Time, out *Output) bool {
	at, p := a.firstMarked()
	if p.open() <= 0 || !p.carries() {
		return false
	}
	w := a.composeFor(a.sent.at(at), p, out)
	a.bundleSACK(&w)
	a.repeat(&w, at, now)
	w.finish()
	return true
}

// transmitNew sends a packet of data for the first time. It returns false if nothing may be sent.
func (a *Association) transmitNew(now time.Time, out *Output) bool {
	p := a.choose(out)
	p.rest(a.fragmentRoom(p), now)
	if !p.carries() || p.open() <= 0 || !a.windowOpen(a.upcoming()) {
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
	if a.upcoming() == nil {
		return
	}
	largest, first := a.largestFragment(), a.nextTSN
	defer func() {
		if a.nextTSN != first {
			a.watch(w.path, now)
		}
	}()
	for m := a.upcoming(); m != nil; m = a.upcoming() {
		octets := min(len(m.User)-m.cut, largest)
		if !w.fits(a.dataType(), a.length(octets)) || a.sent.length >= maxOutstanding || !a.windowOpen(m) || w.path.open() <= 0 {
			return
		}
		a.probing, a.ask = octets > a.peerWindow, false
		tsn := a.nextTSN
		c := a.cutOff(m, octets)
		a.launch(c, w.path)
		w.urgent = w.urgent || a.acked+1 == first && a.stuck(w.path)
		w.put(c, tsn)
		a.pass(w.path, c, tsn, SentNew, w.out)
		if w.path.t3.IsZero() {
			w.path.t3 = now.Add(w.path.rto)
		}
		if p := w.path; !p.timing {
			p.timing, p.timedTSN, p.timedAt = true, tsn, now
		}
		w.path.sentAt, w.path.idle = now, false
	}
}

// stuck reports whether nothing more may be sent by a path before something is acknowledged, or taken from our user. Where
// but one packet is out its SACK would come late: it is asked for (RFC 9260 section 6.1, RFC 7053 section 4).
func (a *Association) stuck(p *Path) bool {
	m := a.upcoming()
	if m == nil {
		return a.halfFull()
	}
	return !a.windowOpen(m) || p.open() <= 0
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
