// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package places divides a number of places among clients: of questions that wait, or of
// connections.
package places

import (
	"container/list"
	"net/netip"
	"time"
)

// Reason is why a place is not had, or given up.
type Reason uint8

// The reasons.
const (
	None  Reason = iota
	Full         // all places are taken
	Share        // the client holds its share
)

// Places divides places among clients. No client holds more than its share. Where all are
// taken, the client that holds most gives one up to a newcomer that holds fewer, so that a
// client within its part always finds a place, however many others there are. Each
// operation takes constant time. It is not safe for concurrent use.
type Places struct {
	limit, share, total, most int
	stay                      time.Duration
	clients                   map[netip.Addr]*holder
	// levels[n] lists the clients that hold n places, the one first that has done so longest.
	levels []*list.List
}

// holder is a client that holds places, the one first that was idle longest.
type holder struct {
	client netip.Addr
	places list.List
	level  *list.Element
}

// Place is one place.
type Place struct {
	holder *holder // nil once it is given up
	in     *list.Element
	used   time.Time
	end    func(Reason)
}

// Forever is a stay that does not end.
const Forever time.Duration = 1<<63 - 1

// New makes so many places, of which one client may hold its share. A place that was in use
// within stay is never taken for another of the same client: what was let in has time to be
// served, and a flood costs no more than its refusal.
func New(limit, share int, stay time.Duration) *Places {
	s := &Places{stay: stay, clients: make(map[netip.Addr]*holder)}
	s.SetLimit(limit, share)
	return s
}

// SetLimit changes the number of places and the share of a client. Who holds more keeps it.
func (s *Places) SetLimit(limit, share int) {
	s.limit, s.share = limit, share
	for len(s.levels) <= share {
		s.levels = append(s.levels, list.New())
	}
}

// Shrink ends what is more than the limits allow.
func (s *Places) Shrink() {
	for s.total > s.limit {
		s.endOldest(s.largest(), Full)
	}
	for s.most > s.share {
		s.endOldest(s.largest(), Share)
	}
}

// Len is how many places are taken.
func (s *Places) Len() int { return s.total }

// Enter takes a place for a client. It calls end of the place that is given up for that,
// with the reason why; end must not call back. Without a place to have, it returns nil
// and the reason.
func (s *Places) Enter(client netip.Addr, now time.Time, end func(Reason)) (*Place, Reason) {
	own := s.clients[client]
	loser, reason := (*holder)(nil), None
	switch {
	case s.total >= s.limit && own != nil && own.places.Len() == s.most:
		loser, reason = own, Full
	case own != nil && own.places.Len() >= s.share:
		loser, reason = own, Share
	case s.total >= s.limit:
		loser, reason = s.largest(), Full
	}
	if loser != nil {
		if loser == own && now.Sub(oldest(own).used) < s.stay {
			return nil, reason
		}
		s.endOldest(loser, reason)
	}
	return s.take(client, now, end), None
}

// Use notes that a place is in use, so that idler ones are given up before it.
func (s *Places) Use(p *Place, now time.Time) {
	if p.holder != nil {
		p.used = now
		p.holder.places.MoveToBack(p.in)
	}
}

// Leave gives a place back. A second time does nothing.
func (s *Places) Leave(p *Place) {
	h := p.holder
	if h == nil {
		return
	}
	p.holder = nil
	h.places.Remove(p.in)
	s.total--
	s.setLevel(h, h.places.Len()+1)
}

// largest is the client that has held most places longest; there is one.
func (s *Places) largest() *holder { return s.levels[s.most].Front().Value.(*holder) }

func oldest(h *holder) *Place { return h.places.Front().Value.(*Place) }

func (s *Places) endOldest(h *holder, r Reason) {
	p := oldest(h)
	s.Leave(p)
	p.end(r)
}

func (s *Places) take(client netip.Addr, now time.Time, end func(Reason)) *Place {
	h := s.clients[client]
	if h == nil {
		h = &holder{client: client}
		s.clients[client] = h
	}
	p := &Place{holder: h, used: now, end: end}
	p.in = h.places.PushBack(p)
	s.total++
	s.setLevel(h, h.places.Len()-1)
	return p
}

// setLevel lists a client by how many places it holds now; before, it held one more or less.
func (s *Places) setLevel(h *holder, before int) {
	held := h.places.Len()
	if before > 0 {
		s.levels[before].Remove(h.level)
	}
	if held > 0 {
		h.level = s.levels[held].PushBack(h)
	} else {
		delete(s.clients, h.client)
	}
	if held > s.most || s.levels[s.most].Len() == 0 {
		s.most = held
	}
}
