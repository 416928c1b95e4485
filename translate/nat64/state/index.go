// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// index finds records by the hash of their key. An entry is in its home bucket, or in
// its other one, and then home counts it in spilled.
type index struct{ buckets []bucket }

// place returns the two buckets of a hash.
func (x *index) place(h uint64) (home, other uint32) {
	home = uint32((h >> 32) * uint64(len(x.buckets)) >> 32)
	if other = x.otherOf(uint32(h)); other == home {
		other = x.after(home)
	}
	return home, other
}

// otherOf returns the other bucket of an entry with that lower half of a hash, unless
// that is its home: then it is the one after.
func (x *index) otherOf(low uint32) uint32 {
	return uint32(uint64(low*0x85ebca6b) * uint64(len(x.buckets)) >> 32)
}

func (x *index) after(b uint32) uint32 {
	if b++; int(b) == len(x.buckets) {
		return 0
	}
	return b
}

// query is a look-up under way.
type query struct {
	index   *index
	bucket  *bucket
	low     uint32
	other   uint32
	at      uint32
	spilled bool // looks into the other bucket
}

// query begins a look-up.
func (x *index) query(h uint64) query {
	home, other := x.place(h)
	return query{index: x, bucket: &x.buckets[home], low: uint32(h), other: other}
}

// next returns the next record that may be the one.
func (q *query) next() (record uint32, ok bool) {
	for {
		for q.at < indexSlots {
			s := atomic.LoadUint64(&q.bucket.slot[q.at])
			q.at++
			if uint32(s>>32) == q.low && uint32(s) != 0 {
				return uint32(s) - 1, true
			}
		}
		if q.spilled || atomic.LoadUint32(&q.bucket.spilled) == 0 {
			return 0, false
		}
		q.bucket, q.at, q.spilled = &q.index.buckets[q.other], 0, true
	}
}

// warm loads the buckets that look-ups of the hashes begin with.
func (x *index) warm(hashes []uint64) {
	for _, h := range hashes {
		atomic.LoadUint32(&x.buckets[(h>>32)*uint64(len(x.buckets))>>32].spilled)
	}
}

// slotOf returns what a slot holds for a record.
func slotOf(h uint64, record uint32) uint64 { return h<<32 | uint64(record+1) }

// insert enters a record; false when both its buckets are full, and so are those that
// entries of theirs could move to.
func (x *index) insert(h uint64, record uint32) bool {
	home, other := x.place(h)
	s := slotOf(h, record)
	// A slot that a move has freed may be gone at once, to a program.
	for range 4 {
		if x.put(home, s) || x.spill(home, other, s) {
			return true
		}
		if !x.makeRoom(home) && !x.makeRoom(other) {
			return false
		}
	}
	return false
}

// put writes into an empty slot of a bucket.
func (x *index) put(b uint32, s uint64) bool {
	slots := &x.buckets[b].slot
	for i := range slots {
		if atomic.LoadUint64(&slots[i]) == 0 && atomic.CompareAndSwapUint64(&slots[i], 0, s) {
			return true
		}
	}
	return false
}

// spill writes into an empty slot of the other bucket. Home counts it before, so that
// no reader misses it.
func (x *index) spill(home, other uint32, s uint64) bool {
	atomic.AddUint32(&x.buckets[home].spilled, 1)
	if x.put(other, s) {
		return true
	}
	atomic.AddUint32(&x.buckets[home].spilled, ^uint32(0))
	return false
}

// makeRoom moves one entry of a full bucket from there, its home, to its other one.
func (x *index) makeRoom(b uint32) bool {
	if x.moveOne(b) {
		return true
	}
	// One step further: room in the other bucket of one of the entries.
	slots := &x.buckets[b].slot
	for i := range slots {
		if to, ok := x.movable(b, atomic.LoadUint64(&slots[i])); ok && x.moveOne(to) {
			return x.moveOne(b)
		}
	}
	return false
}

// moveOne moves the first entry that can to where there is an empty slot.
func (x *index) moveOne(b uint32) bool {
	slots := &x.buckets[b].slot
	for i := range slots {
		s := atomic.LoadUint64(&slots[i])
		to, ok := x.movable(b, s)
		if !ok || !x.spill(b, to, s) {
			continue
		}
		if atomic.CompareAndSwapUint64(&slots[i], s, 0) {
			return true
		}
		// A program has taken its own entry back meanwhile: so goes the copy.
		if x.clear(to, s) {
			atomic.AddUint32(&x.buckets[b].spilled, ^uint32(0))
		}
		return true
	}
	return false
}

// movable returns where an entry of a bucket that is its home could go. Where the slot
// alone does not determine whether the bucket is its home it stays.
func (x *index) movable(b uint32, s uint64) (to uint32, ok bool) {
	to = x.otherOf(uint32(s >> 32))
	return to, s != 0 && to != b && x.after(to) != b
}

// remove takes a record out; false when it is not there.
func (x *index) remove(h uint64, record uint32) bool {
	home, other := x.place(h)
	s := slotOf(h, record)
	if x.clear(home, s) {
		return true
	}
	if !x.clear(other, s) {
		return false
	}
	atomic.AddUint32(&x.buckets[home].spilled, ^uint32(0))
	return true
}

func (x *index) clear(b uint32, s uint64) bool {
	slots := &x.buckets[b].slot
	for i := range slots {
		if atomic.CompareAndSwapUint64(&slots[i], s, 0) {
			return true
		}
	}
	return false
}

// reset empties the index.
func (x *index) reset() { clear(x.buckets) }
