// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"slices"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// partial is the unordered message of which the beginning is delivered already; nil if there is none. The others of the
// stream wait for its end: pieces of two messages cannot be told apart.
func (s *inStream) partial() *assembly {
	for _, m := range s.loose {
		if m.begun {
			return m
		}
	}
	return nil
}

// isDone reports whether an unordered message of I-DATA was skipped: fragments of it may still come, for their TSNs need
// not be side by side.
func (s *inStream) isDone(message uint32) bool {
	const span = 1 << 30 // of numbers that are told apart; they go round
	if ahead := message - s.oldest; !before(message, s.oldest) && ahead > span {
		s.oldest = message - span
	}
	return before(message, s.oldest)
}

// storeLoose keeps a fragment of an unordered message, and delivers what can be.
func (a *Association) storeLoose(s *inStream, d *chunk.Data, out *Output) {
	message := d.Message
	if !a.interleaved {
		message = 0
	}
	m := a.assembly(&s.loose, message)
	a.keep(m, d)
	if a.interleaved {
		a.deliverLoose(d.Stream, s, m, out)
		return
	}
	a.deliverByTSN(d.Stream, m, d.TSN, out)
	a.forgetEmpty(s)
}

// deliverLoose delivers an unordered message of I-DATA, and when one that others have waited for is done, those.
func (a *Association) deliverLoose(stream uint16, s *inStream, m *assembly, out *Output) {
	waited := s.partial()
	if waited != nil && waited != m || !a.deliverPieces(stream, true, m, out) {
		return
	}
	a.removeLoose(s, m)
	if waited != nil {
		a.deliverWaiting(stream, s, out)
	}
}

// deliverWaiting delivers the unordered messages of I-DATA that are whole.
func (a *Association) deliverWaiting(stream uint16, s *inStream, out *Output) {
	s.loose = slices.DeleteFunc(s.loose, func(m *assembly) bool {
		_, whole := m.run()
		if whole {
			a.deliverPieces(stream, true, m, out)
			a.forget(m)
		}
		return whole
	})
}

func (a *Association) removeLoose(s *inStream, m *assembly) {
	s.loose = slices.DeleteFunc(s.loose, func(one *assembly) bool { return one == m })
	a.forget(m)
}

// deliverByTSN delivers the unordered message of DATA that a fragment is part of. Fragments of DATA have no number of a
// message: those of one stand side by side by TSN (RFC 9260 section 6.9). When more than half of the buffer is taken, what
// there is of the first message is delivered before it is whole.
func (a *Association) deliverByTSN(stream uint16, m *assembly, tsn uint32, out *Output) {
	if m.begun {
		a.deliverRest(stream, m, out)
		return
	}
	if from, to, whole := m.around(tsn); whole {
		a.deliverSpan(stream, m, from, to, out)
		return
	}
	at := slices.IndexFunc(m.pieces, func(p piece) bool { return p.first })
	if at < 0 || a.held <= a.par.ReceiveBuffer/2 {
		return
	}
	m.begun, m.next, m.protocol = true, m.pieces[at].number+1, m.pieces[at].protocol
	a.deliverSpan(stream, m, at, at+1, out)
	a.deliverRest(stream, m, out)
}

// deliverRest goes on with a message that is begun, as far as no fragment is missing; when it is done those that have waited
// are delivered.
func (a *Association) deliverRest(stream uint16, m *assembly, out *Output) {
	from := slices.IndexFunc(m.pieces, func(p piece) bool { return p.number == m.next })
	if from < 0 {
		return
	}
	to := from
	for m.begun && to < len(m.pieces) && m.pieces[to].number == m.next && !m.pieces[to].first {
		m.next++
		m.begun = !m.pieces[to].last
		to++
	}
	a.deliverSpan(stream, m, from, to, out)
	if !m.begun {
		a.deliverSpans(stream, m, out)
	}
}

// deliverSpans delivers all unordered messages of DATA that are whole.
func (a *Association) deliverSpans(stream uint16, m *assembly, out *Output) {
	kept := m.pieces[:0]
	for at := 0; at < len(m.pieces); {
		end, whole := m.span(at)
		if whole {
			a.deliverAll(stream, m.pieces[at:end], out)
		} else {
			kept = append(kept, m.pieces[at:end]...)
		}
		at = end
	}
	clear(m.pieces[len(kept):])
	m.pieces = kept
}

// deliverSpan delivers some pieces.
func (a *Association) deliverSpan(stream uint16, m *assembly, from, to int, out *Output) {
	a.deliverAll(stream, m.pieces[from:to], out)
	m.pieces = slices.Delete(m.pieces, from, to)
}

// deliverAll delivers pieces of an unordered message of DATA.
func (a *Association) deliverAll(stream uint16, pieces []piece, out *Output) {
	for _, p := range pieces {
		a.deliver(out, stream, true, pieces[0].protocol, p.first, p.last, p.user)
		a.drop(p)
	}
}

// span is how far the fragments go that stand side by side from one on, and whether they are a message of DATA.
func (m *assembly) span(from int) (end int, whole bool) {
	for end = from; m.pieces[from].first; {
		if end++; m.pieces[end-1].last {
			return end, true
		}
		if end == len(m.pieces) || m.pieces[end].number != m.pieces[end-1].number+1 || m.pieces[end].first {
			return end, false
		}
	}
	return from + 1, false
}

// around finds the message that a fragment of DATA is part of.
func (m *assembly) around(tsn uint32) (from, to int, whole bool) {
	at := slices.IndexFunc(m.pieces, func(p piece) bool { return p.number == tsn })
	for from = at; !m.pieces[from].first; from-- {
		if from == 0 || m.pieces[from-1].number != m.pieces[from].number-1 || m.pieces[from-1].last {
			return 0, 0, false
		}
	}
	to, whole = m.span(from)
	return from, to, whole
}

// dropLoose drops the fragments of unordered DATA up to a TSN: a message that they are part of is not whole, and will not
// be. One that is whole has been acknowledged, and waits for the end of another: it is kept.
func (a *Association) dropLoose(tsn uint32, out *Output) {
	for i := range a.in {
		s := &a.in[i]
		if len(s.loose) == 0 {
			continue
		}
		m := s.loose[0]
		a.dropTorn(m, tsn)
		if m.begun && !before(tsn, m.next) {
			m.begun = false
			a.event(out, Event{Kind: Truncated, Data: Data{Stream: uint16(i), Unordered: true, Protocol: m.protocol}})
			a.deliverSpans(uint16(i), m, out)
		}
		a.forgetEmpty(s)
	}
}

// dropTorn drops the fragments up to a TSN whose messages are not whole.
func (a *Association) dropTorn(m *assembly, tsn uint32) {
	kept := m.pieces[:0]
	for at := 0; at < len(m.pieces); {
		end, whole := m.span(at)
		for _, p := range m.pieces[at:end] {
			if whole || before(tsn, p.number) {
				kept = append(kept, p)
			} else {
				a.drop(p)
			}
		}
		at = end
	}
	clear(m.pieces[len(kept):])
	m.pieces = kept
}

// forgetEmpty gives up what keeps the fragments of unordered DATA, if there are none.
func (a *Association) forgetEmpty(s *inStream) {
	if m := s.loose[0]; len(m.pieces) == 0 && !m.begun {
		s.loose = s.loose[:0]
		a.forget(m)
	}
}

// skipLoose drops the unordered messages of I-DATA up to one that are not whole: no more of them will come.
func (a *Association) skipLoose(skip chunk.Skip, s *inStream, out *Output) {
	after := skip.Message + 1
	if !before(s.oldest, after) {
		return
	}
	s.oldest = after
	waited := s.partial()
	s.loose = slices.DeleteFunc(s.loose, func(m *assembly) bool {
		if _, whole := m.run(); whole || messageBefore(skip.Message, m.message, true) {
			return false
		}
		if m.begun {
			a.event(out, Event{Kind: Truncated, Data: Data{Stream: skip.Stream, Unordered: true, Protocol: m.protocol}})
		}
		a.forget(m)
		return true
	})
	if waited != nil && s.partial() == nil {
		a.deliverWaiting(skip.Stream, s, out)
	}
}
