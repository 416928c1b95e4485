// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import "slices"

// order is which records of a [Spool] may be taken now. Each is of a stage: one of all lines has its own, and what
// is put behind that the next one. What is of a stage waits until nothing of the stages before it is left.
type order struct {
	last, first int // stages: of what is put next, and none before is left
	left        map[int]int
	aside       map[string]bool // lines of which nothing is counted in left
}

func newOrder() order { return order{left: map[int]int{}, aside: map[string]bool{}} }

// ofAll is the line of records that are of all lines.
const ofAll = ""

// add gives a record that was put its stage.
func (o *order) add(one *spooled) {
	if one.line == ofAll {
		o.last++
	}
	if one.stage = o.last; !o.aside[one.line] {
		o.left[one.stage]++
	}
	if one.line == ofAll {
		o.last++
	}
}

// remove forgets the first of a line. What follows it in a line that was set aside is in its order again: in its
// stage if one of all lines, of which these are left, waits behind it, and else in that of now, where it holds up
// nothing.
func (o *order) remove(one *spooled, rest, all []*spooled) {
	if !o.aside[one.line] {
		o.forget(one)
		return
	}
	delete(o.aside, one.line)
	now := o.current()
	for _, next := range rest {
		behind := func(other *spooled) bool { return next.stage < other.stage && other.stage <= now }
		if one.line != ofAll && !slices.ContainsFunc(all, behind) {
			next.stage = max(next.stage, now)
		}
		o.left[next.stage]++
		o.first = min(o.first, next.stage)
	}
}

func (o *order) forget(one *spooled) {
	if o.left[one.stage]--; o.left[one.stage] == 0 {
		delete(o.left, one.stage)
	}
}

// current is the stage of which records may be taken.
func (o *order) current() int {
	for o.first < o.last && o.left[o.first] == 0 {
		o.first++
	}
	return o.first
}

// next is what is taken next; nil: nothing.
func (s *Spool) next() *spooled {
	if len(s.ready) == 0 || s.ready[0].stage > s.order.current() {
		return nil
	}
	one := s.ready[0]
	if probe := s.probe(one.turn); probe != nil {
		return probe
	}
	return one
}

// probe is a record that is tried before its time, and again in its time, when all that may be taken was postponed
// more often, so many times: who takes it and nothing else is there, and has something against the others. What is
// of all lines is tried first, for what is behind it should not be told before it.
func (s *Spool) probe(turn int) *spooled {
	if turn == 0 {
		return nil
	}
	if all := s.lines[ofAll]; len(all) > 0 && all[0].place != notReady && all[0].turn < turn {
		return all[0]
	}
	for _, one := range s.ready {
		if one.turn < turn {
			return one
		}
	}
	return nil
}

// Aside has a record that was taken, and what follows it in its line, hold up no others any more, until it is done;
// false: it was tried before its time.
func (s *Spool) Aside(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.waiting[n]
	if !s.isTaken(one) || one.stage > s.order.current() {
		return false
	}
	if one.turn = 0; !s.order.aside[one.line] {
		s.order.aside[one.line] = true
		for _, each := range s.lines[one.line] {
			s.order.forget(each)
		}
	}
	return true
}

// readyHeap is the container/heap of records to be taken.
type readyHeap []*spooled

func (h readyHeap) Len() int { return len(h) }

func (h readyHeap) Less(i, j int) bool {
	if h[i].stage != h[j].stage {
		return h[i].stage < h[j].stage
	}
	if h[i].turn != h[j].turn {
		return h[i].turn < h[j].turn
	}
	return h[i].number < h[j].number
}

func (h readyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push is of [heap.Interface].
func (h *readyHeap) Push(x any) {
	one := x.(*spooled)
	one.place = len(*h)
	*h = append(*h, one)
}

// Pop is of [heap.Interface].
func (h *readyHeap) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	(*h)[last] = nil
	*h, one.place = (*h)[:last], notReady
	return one
}
