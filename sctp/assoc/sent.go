// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import "github.com/isthmus-net/isthmus/sctp/chunk"

// sent is a chunk of data that has a TSN, and is not yet acknowledged cumulatively.
type sent struct {
	message      *message
	offset, size int    // of its octets in the message
	fragment     uint32 // its number there
	path         *Path  // by which it went last
	tries        uint8  // how often it was sent
	misses       uint8  // reports that it is missing
	acked        bool   // in a gap
	marked       bool   // to be sent again
	timedOut     bool   // marked by T3: another path is to be tried (RFC 9260 section 6.4)
	fast         bool   // was marked by reports once
	abandoned    bool   // given up, which makes it acknowledged (RFC 3758)
	moved        bool   // by more than one path
	early        bool   // marked since its path is in doubt
	reported     bool   // in the SACK that is handled
}

// inFlight reports whether the chunk may still arrive.
func (c *sent) inFlight() bool { return !c.acked && !c.marked }

// length is what the chunk takes of a packet, and of a congestion window (RFC 9260 section 7.2).
func (a *Association) length(octets int) int {
	if a.interleaved {
		return (chunk.IDataHeader + octets + 3) &^ 3
	}
	return (chunk.DataHeader + octets + 3) &^ 3
}

// fragmentRoom is the largest chunk that fits into a packet of a path: its PMDCS (RFC 9260 section 2.3).
func (a *Association) fragmentRoom(p *Path) int {
	room := p.room() - chunk.HeaderSize
	if a.protects(a.dataType()) {
		room -= a.authSize()
	}
	return room
}

// largestFragment is how many octets of a message a chunk may have: such that it fits wherever data may go (RFC 9260
// section 7.3, AMDCS).
func (a *Association) largestFragment() int {
	least := 1 << 16
	for _, p := range a.paths {
		if p == a.current || p.confirmed && p.state != Inactive && p.use == normal && !p.down {
			least = min(least, a.fragmentRoom(p))
		}
	}
	return least - a.length(0)
}

// dataType is what messages travel in.
func (a *Association) dataType() chunk.Type {
	if a.interleaved {
		return chunk.TypeIData
	}
	return chunk.TypeData
}

// put writes a chunk of data.
func (w *composer) put(c *sent, tsn uint32) {
	a, m := w.a, c.message
	d := chunk.Data{
		TSN: tsn, Stream: m.Stream, Message: m.number, Protocol: m.Protocol, Fragment: c.fragment,
		Unordered: m.Unordered, First: c.offset == 0, Last: c.offset+c.size == len(m.User),
		User: m.User[c.offset : c.offset+c.size],
	}
	// RFC 9260 section 6.1: at the end of all there is nothing that a late SACK could be bundled with.
	d.Immediate = w.urgent || d.Last && (m.Immediate || a.state == shutdownPending)
	w.protect(a.dataType())
	w.b = d.Append(w.b, a.interleaved)
}

// launch books a chunk as on its way by a path.
func (a *Association) launch(c *sent, p *Path) {
	c.moved = c.moved || c.path != nil && c.path != p
	c.path = p
	c.tries += min(1, 255-c.tries)
	p.flight += a.length(c.size)
	a.outside += c.size
	a.peerWindow = max(0, a.peerWindow-c.size)
}

// land books a chunk as no longer on its way: it is acknowledged, or taken for lost.
func (a *Association) land(c *sent) {
	c.path.flight -= a.length(c.size)
	a.outside -= c.size
	if c.path.flight == 0 {
		c.path.expectNothing()
	}
}

// mark has a chunk sent again.
func (a *Association) mark(c *sent, timedOut bool) {
	a.land(c)
	a.peerWindow += c.size // RFC 9260 section 6.2.1, C
	c.marked, c.timedOut = true, timedOut
	a.marked++
}
