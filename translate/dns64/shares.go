// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import (
	"container/list"
	"net/netip"
	"time"
)

const (
	// shareOfClient is which part of all places one client may hold.
	shareOfClient = 8
	// leastStay is how long a place is never taken for another of the same client: what
	// was let in has time to be answered, and a flood costs no more than its refusal.
	leastStay = time.Second
)

// Shares divides places among clients: of queries that wait for upstreams, or of
// connections. No client holds more than an eighth of them. Where all are taken, the
// client that holds most gives one up to a newcomer that holds fewer, so that a client
// within its share always finds a place, however many others there are. Each operation
// takes constant time. It is not safe for concurrent use.
type Shares struct {
	limit, total, most int
	clients            map[netip.Addr]*holder
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

// NewShares makes shares of so many places.
func NewShares(limit int) *Shares {
	s := &Shares{clients: make(map[netip.Addr]*holder)}
	s.SetLimit(limit)
	return s
}

// SetLimit changes the number of places; what is too much ends at once.
func (s *Shares) SetLimit(limit int) {
	s.limit = limit
	for s.total > limit {
		s.endOldest(s.largest(), ReasonBusy)
	}
	for s.most > s.share() {
		s.endOldest(s.largest(), ReasonShare)
	}
	for len(s.levels) <= s.share() {
		s.levels = append(s.levels, list.New())
	}
}

// Len is how many places are taken.
func (s *Shares) Len() int { return s.total }

// Enter takes a place for a client. It calls end of the place that is given up for that,
// with the reason why; end must not call back. Without a place to have, it returns nil
// and the reason.
func (s *Shares) Enter(client netip.Addr, now time.Time, end func(Reason)) (*Place, Reason) {
	own := s.clients[client]
	loser, reason := (*holder)(nil), ReasonNone
	switch {
	case s.total >= s.limit && own != nil && own.places.Len() == s.most:
		loser, reason = own, ReasonBusy
	case s.total >= s.limit:
		loser, reason = s.largest(), ReasonBusy
	case own != nil && own.places.Len() >= s.share():
		loser, reason = own, ReasonShare
	}
	if loser != nil {
		if loser == own && now.Sub(oldest(own).used) < leastStay {
			return nil, reason
		}
		s.endOldest(loser, reason)
	}
	return s.take(client, now, end), ReasonNone
}

// Use notes that a place is in use, so that idler ones are given up before it.
func (s *Shares) Use(p *Place, now time.Time) {
	if p.holder != nil {
		p.used = now
		p.holder.places.MoveToBack(p.in)
	}
}

// Leave gives a place back. A second time does nothing.
func (s *Shares) Leave(p *Place) {
	h := p.holder
	if h == nil {
		return
	}
	p.holder = nil
	h.places.Remove(p.in)
	s.total--
	s.setLevel(h, h.places.Len()+1)
}

func (s *Shares) share() int { return max(s.limit/shareOfClient, 1) }

// largest is the client that has held most places longest; there is one.
func (s *Shares) largest() *holder { return s.levels[s.most].Front().Value.(*holder) }

func oldest(h *holder) *Place { return h.places.Front().Value.(*Place) }

func (s *Shares) endOldest(h *holder, r Reason) {
	p := oldest(h)
	s.Leave(p)
	p.end(r)
}

func (s *Shares) take(client netip.Addr, now time.Time, end func(Reason)) *Place {
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
func (s *Shares) setLevel(h *holder, before int) {
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
