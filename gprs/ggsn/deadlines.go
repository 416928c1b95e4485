// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "time"

// deadlines are times by handle, at most one each, the earliest first: a heap in which each
// has at most four below it.
type deadlines struct {
	heap  []deadline
	place []uint32 // by handle: where in heap, counted from 1
}

type deadline struct {
	at time.Duration // since the engine's epoch
	of handle
}

// never is the deadline of what has none.
const never time.Duration = 1<<63 - 1

const arity = 4

// set gives a handle a deadline in place of the one it has; never takes it away.
func (d *deadlines) set(h handle, at time.Duration) {
	if at == never {
		d.cancel(h)
		return
	}
	for int(h) >= len(d.place) {
		d.place = append(d.place, 0)
	}
	i := int(d.place[h]) - 1
	if i < 0 {
		i = len(d.heap)
		d.heap = append(d.heap, deadline{})
		d.put(i, deadline{at, h})
		d.up(i)
		return
	}
	earlier := at < d.heap[i].at
	d.heap[i].at = at
	if earlier {
		d.up(i)
	} else {
		d.down(i)
	}
}

func (d *deadlines) cancel(h handle) {
	if int(h) >= len(d.place) || d.place[h] == 0 {
		return
	}
	i, end := int(d.place[h])-1, len(d.heap)-1
	d.place[h] = 0
	last := d.heap[end]
	d.heap = d.heap[:end]
	if i < end {
		d.put(i, last)
		d.up(i)
		d.down(int(d.place[last.of]) - 1)
	}
}

// next returns the earliest deadline, never if there is none.
func (d *deadlines) next() time.Duration {
	if len(d.heap) == 0 {
		return never
	}
	return d.heap[0].at
}

// due returns the handle of the earliest deadline if that has come, and takes it out.
func (d *deadlines) due(now time.Duration) (handle, bool) {
	if d.next() > now || len(d.heap) == 0 {
		return 0, false
	}
	h := d.heap[0].of
	d.cancel(h)
	return h, true
}

func (d *deadlines) put(i int, e deadline) {
	d.heap[i] = e
	d.place[e.of] = uint32(i + 1)
}

func (d *deadlines) up(i int) {
	e := d.heap[i]
	for i > 0 {
		above := (i - 1) / arity
		if d.heap[above].at <= e.at {
			break
		}
		d.put(i, d.heap[above])
		i = above
	}
	d.put(i, e)
}

func (d *deadlines) down(i int) {
	e := d.heap[i]
	for {
		first := i*arity + 1
		if first >= len(d.heap) {
			break
		}
		least := first
		for j := first + 1; j < min(first+arity, len(d.heap)); j++ {
			if d.heap[j].at < d.heap[least].at {
				least = j
			}
		}
		if d.heap[least].at >= e.at {
			break
		}
		d.put(i, d.heap[least])
		i = least
	}
	d.put(i, e)
}
