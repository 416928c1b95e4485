// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"slices"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// inStream puts the messages of a stream together.
type inStream struct {
	next    uint32      // the ordered message that is to be delivered next
	oldest  uint32      // unordered message of I-DATA before which all are done
	ordered []*assembly // those that wait, in their order
	loose   []*assembly // unordered ones: of I-DATA by number, of DATA all fragments in one
}

// assembly is a message that is not yet whole, or that waits for those before it.
type assembly struct {
	message  uint32
	protocol uint32
	begun    bool   // its first pieces are delivered
	next     uint32 // the fragment behind these
	pieces   []piece
}

// piece is a fragment that waits. Those of DATA count by TSN.
type piece struct {
	number      uint32
	protocol    uint32
	first, last bool
	user        []byte
}

// store delivers data, or keeps it until it can be (RFC 9260 sections 6.6 and 6.9).
func (a *Association) store(d *chunk.Data, out *Output) {
	for int(d.Stream) >= len(a.in) {
		a.in = append(a.in, inStream{})
	}
	s := &a.in[d.Stream]
	if d.Unordered && a.interleaved && s.isDone(d.Message) {
		a.endpoint.Counters.Duplicate++
		return
	}
	switch whole := d.First && d.Last; {
	case whole && d.Unordered && s.partial() == nil:
		a.deliver(out, d.Stream, true, d.Protocol, true, true, d.User)
	case whole && !d.Unordered && d.Message == s.next && len(s.ordered) == 0:
		a.deliver(out, d.Stream, false, d.Protocol, true, true, d.User)
		s.next = nextMessage(s.next, a.interleaved)
	case d.Unordered:
		a.storeLoose(s, d, out)
	default:
		a.storeOrdered(s, d, out)
	}
}

// deliver hands a piece to the user.
func (a *Association) deliver(out *Output, stream uint16, unordered bool, protocol uint32, first, last bool, user []byte) {
	a.unread += cost(user)
	a.event(out, Event{Kind: Received, Data: Data{stream, unordered, protocol, first, last, user}})
}

// keep puts a fragment into its message, in its order. One whose number is there already is the peer's mistake,
// and dropped.
func (a *Association) keep(m *assembly, d *chunk.Data) {
	number := d.TSN
	if a.interleaved {
		number = d.Fragment
	}
	at := len(m.pieces)
	for at > 0 && before(number, m.pieces[at-1].number) {
		at--
	}
	several := d.Unordered && !a.interleaved // messages in one list
	if at > 0 && m.pieces[at-1].number == number || m.begun && !several && before(number, m.next) {
		a.endpoint.Counters.Duplicate++
		return
	}
	m.pieces = slices.Insert(m.pieces, at, piece{number, d.Protocol, d.First, d.Last, a.endpoint.pieces.copy(d.User)})
	a.held += cost(d.User)
}

// storeOrdered keeps a fragment of an ordered message, and delivers what is next.
func (a *Association) storeOrdered(s *inStream, d *chunk.Data, out *Output) {
	if messageBefore(d.Message, s.next, a.interleaved) { // a number that was delivered, or skipped
		a.endpoint.Counters.Duplicate++
		return
	}
	a.keep(a.assembly(&s.ordered, d.Message), d)
	a.deliverOrdered(d.Stream, s, out)
}

// assembly finds a message in a list by its number, or makes it.
func (a *Association) assembly(list *[]*assembly, message uint32) *assembly {
	at := len(*list)
	for at > 0 && messageBefore(message, (*list)[at-1].message, a.interleaved) {
		at--
	}
	if at > 0 && (*list)[at-1].message == message {
		return (*list)[at-1]
	}
	m := a.endpoint.emptyAssembly()
	m.message = message
	*list = slices.Insert(*list, at, m)
	return m
}

// emptyAssembly returns one that was used before, if there is one.
func (e *Endpoint) emptyAssembly() *assembly {
	last := len(e.assemblies) - 1
	if last < 0 {
		return &assembly{}
	}
	m := e.assemblies[last]
	e.assemblies = e.assemblies[:last]
	return m
}

// deliverOrdered delivers the messages of a stream that are next and whole, and the beginning of one that is
// too large to wait for.
func (a *Association) deliverOrdered(stream uint16, s *inStream, out *Output) {
	done := 0
	for done < len(s.ordered) && s.ordered[done].message == s.next && a.deliverPieces(stream, false, s.ordered[done], out) {
		a.forget(s.ordered[done])
		done++
		s.next = nextMessage(s.next, a.interleaved)
	}
	s.ordered = slices.Delete(s.ordered, 0, done)
}

// deliverPieces delivers a message if it is whole, and returns whether it is. When more than half of the buffer is
// taken, by this message or by several that come beside each other, what there is of its beginning is delivered before.
func (a *Association) deliverPieces(stream uint16, unordered bool, m *assembly, out *Output) (whole bool) {
	n, last := m.run()
	if !last && (n == 0 || !m.begun && a.held <= a.par.ReceiveBuffer/2) {
		return false
	}
	for _, p := range m.pieces[:n] {
		if p.first {
			m.protocol = p.protocol
		}
		a.deliver(out, stream, unordered, m.protocol, p.first, p.last, p.user)
		m.next = p.number + 1
		a.drop(p)
	}
	m.pieces, m.begun = slices.Delete(m.pieces, 0, n), true
	return last
}

// drop takes a piece of a message out of the books. Its octets hold until the next call.
func (a *Association) drop(p piece) {
	a.held -= cost(p.user)
	a.endpoint.pieces.release(p.user)
}

// forget drops what is left of a message, which must not be used any more: its memory is kept for another, unless
// it is of very many pieces.
func (a *Association) forget(m *assembly) {
	for _, p := range m.pieces {
		a.drop(p)
	}
	clear(m.pieces)
	*m = assembly{pieces: m.pieces[:0]}
	if e := a.endpoint; len(e.assemblies) < maxFree && cap(m.pieces) <= maxFree {
		e.assemblies = append(e.assemblies, m)
	}
}

// run is how many pieces of a message can be delivered: from its first one, or from where delivery stands, as
// far as none is missing.
func (m *assembly) run() (n int, last bool) {
	for _, p := range m.pieces {
		switch {
		case n == 0 && !m.begun && !p.first, n == 0 && m.begun && p.number != m.next,
			n > 0 && (p.first || p.number != m.pieces[n-1].number+1):
			return n, false
		}
		if n++; p.last {
			return n, true
		}
	}
	return n, false
}

// buffers keeps the memory of pieces for the next ones.
type buffers struct {
	free     [][]byte
	released [][]byte // since the last call: events may still alias them
}

// What buffers are kept, and how many. A piece that is much smaller has one of its own size: many of them are not to take
// more than their cost.
const (
	bufferSize = 2048
	smallPiece = 1024
	maxFree    = 256
)

// copy returns a copy of octets.
func (b *buffers) copy(octets []byte) []byte {
	last := len(b.free) - 1
	switch {
	case len(octets) <= smallPiece || len(octets) > bufferSize:
		return slices.Clone(octets)
	case last < 0:
		return append(make([]byte, 0, bufferSize), octets...)
	}
	buffer := b.free[last]
	b.free = b.free[:last]
	return append(buffer[:0], octets...)
}

// release takes a buffer back once nobody can read it.
func (b *buffers) release(buffer []byte) { b.released = append(b.released, buffer) }

// reclaim makes what the last call has released free.
func (b *buffers) reclaim() {
	for _, buffer := range b.released {
		if len(b.free) < maxFree && cap(buffer) == bufferSize {
			b.free = append(b.free, buffer)
		}
	}
	clear(b.released)
	b.released = b.released[:0]
}
