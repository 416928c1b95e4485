// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/isthmus-net/isthmus/translate"
)

// assembly is what is remembered of one packet that comes in fragments.
type assembly struct {
	key      fragmentKey
	deadline time.Duration
	phase    phase
	// endpoints are what the first fragment was given, in phase passing.
	endpoints translate.Endpoints
	covered   coverage
	largest   int   // octets of the largest fragment, with its header
	waiting   int32 // the first packet of those that wait, in order of arrival
	last      int32
	share     int   // which counter of its source it is counted in
	older     int32 // assemblies in order of their deadlines
	newer     int32
}

// phase is how far an assembly has come.
type phase uint8

const (
	unknown phase = iota // the first fragment has not come
	passing              // fragments are translated as they come
	whole                // fragments wait until all are there
	refused              // the first fragment was dropped, or two overlapped
)

// fragmentKey tells the fragments of one packet (RFC 791 section 3.2, RFC 8200 section
// 4.5). Addresses are in their 16 octet form, in which the families do not meet.
type fragmentKey struct {
	src, dst [16]byte
	id       uint32
	proto    uint8
	turned   bool // made here of an IPv6 packet: others cannot meet it
}

// assemblies is the table of them, of fixed size. All live equally long, so they end in
// the order in which they came.
type assemblies struct {
	index  map[fragmentKey]int32
	slots  []assembly
	free   []int32
	oldest int32
	newest int32
	memory arena

	hold      time.Duration
	perSource int
	shares    [1024]int32 // assemblies by a hash of their source
	seed      uint64
	dropped   *[NumReasons]uint64
}

// newAssemblies makes a table for the limits.
func newAssemblies(l *Limits, hold time.Duration, seed uint64, dropped *[NumReasons]uint64) *assemblies {
	f := &assemblies{
		index: make(map[fragmentKey]int32, l.FragmentPackets), slots: make([]assembly, l.FragmentPackets),
		memory: newArena(l.FragmentMemory), hold: hold, perSource: l.FragmentPacketsSource, seed: seed,
		oldest: noSlot, newest: noSlot, dropped: dropped,
	}
	for i := len(f.slots) - 1; i >= 0; i-- {
		f.free = append(f.free, int32(i))
	}
	return f
}

const noSlot = int32(-1)

// find returns the assembly of a fragment, a new one if it is the first to come.
func (f *assemblies) find(k fragmentKey, now time.Duration) (*assembly, Reason) {
	if i, ok := f.index[k]; ok {
		return &f.slots[i], none
	}
	share := f.shareOf(&k.src)
	switch {
	case int(f.shares[share]) >= f.perSource:
		return nil, FragmentsSource
	case len(f.free) == 0:
		return nil, FragmentsFull
	}
	i := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.index[k] = i
	f.shares[share]++
	a := &f.slots[i]
	*a = assembly{key: k, deadline: now + f.hold, waiting: noChunk, last: noChunk, share: share, older: f.newest, newer: noSlot}
	if f.newest == noSlot {
		f.oldest = i
	} else {
		f.slots[f.newest].newer = i
	}
	f.newest = i
	return a, none
}

// shareOf returns which counter a source is counted in: a host can take any address of
// its /64, so that counts as one. An IPv4 address stands in the last octets.
func (f *assemblies) shareOf(src *[16]byte) int {
	key := *src
	if binary.BigEndian.Uint64(src[:]) != 0 {
		clear(key[8:])
	}
	return int(mix(f.seed, key) % uint64(len(f.shares)))
}

// mix is a hash of an address for tables that forget.
func mix(seed uint64, a [16]byte) uint64 {
	h, l := bits.Mul64(binary.BigEndian.Uint64(a[:])^seed, binary.BigEndian.Uint64(a[8:])^0x9e3779b97f4a7c15)
	h, l = bits.Mul64(h^l^seed, 0x9e3779b97f4a7c15)
	return h ^ l
}

// keep stores a fragment behind those that wait.
func (f *assemblies) keep(a *assembly, ip []byte) Reason {
	head, ok := f.memory.put(ip)
	if !ok {
		return FragmentMemory
	}
	if a.last == noChunk {
		a.waiting = head
	} else {
		f.memory.setFollowing(a.last, head)
	}
	a.last = head
	return none
}

// discard drops what waits, for the reason given.
func (f *assemblies) discard(a *assembly, why Reason) {
	for a.waiting != noChunk {
		a.waiting = f.memory.release(a.waiting)
		f.dropped[why]++
	}
	a.last = noChunk
}

// remove ends an assembly that has nothing waiting.
func (f *assemblies) remove(a *assembly) {
	i := f.index[a.key]
	if a.older == noSlot {
		f.oldest = a.newer
	} else {
		f.slots[a.older].newer = a.newer
	}
	if a.newer == noSlot {
		f.newest = a.older
	} else {
		f.slots[a.newer].older = a.older
	}
	delete(f.index, a.key)
	f.shares[a.share]--
	f.free = append(f.free, i)
}

// next returns when the oldest assembly ends; ok is false when there is none.
func (f *assemblies) next() (at time.Duration, ok bool) {
	if f.oldest == noSlot {
		return 0, false
	}
	return f.slots[f.oldest].deadline, true
}

// expire ends what is due. A call does a bounded part of the work.
func (f *assemblies) expire(now time.Duration) {
	for range 1024 {
		if at, ok := f.next(); !ok || at > now {
			return
		}
		a := &f.slots[f.oldest]
		f.discard(a, FragmentTimeout)
		f.remove(a)
	}
}

// coverage is which octets of a packet have come, in units of 8.
type coverage struct {
	spans [maxSpans]span
	n     int
	end   int // octets of the whole, once the last fragment came; 0 before
}

// span is a part without a hole.
type span struct{ from, to uint16 }

// maxSpans bounds the parts with holes between them. A sender whose fragments come in
// order, or in the reverse, makes one.
const maxSpans = 32

// add notes a fragment. What a packet's fragments say of one place must not be said
// twice (RFC 5722); what is there whole already is a duplicate.
func (c *coverage) add(offset, size int, more bool) Reason {
	end := offset + size
	from, to := uint16(offset/8), uint16((end+7)/8)
	if c.end != 0 && (end > c.end || !more && end != c.end) || !more && c.n > 0 && c.spans[c.n-1].to > to {
		return FragmentOverlap
	}
	at := 0
	for at < c.n && c.spans[at].to < from {
		at++
	}
	for i := at; i < c.n && c.spans[i].from < to; i++ {
		if s := c.spans[i]; s.from <= from && to <= s.to {
			return FragmentDuplicate
		} else if s.to > from {
			return FragmentOverlap
		}
	}
	r := c.insert(at, span{from, to})
	if r == none && !more {
		c.end = end
	}
	return r
}

// insert puts a span into its place at, or joins it with its neighbours.
func (c *coverage) insert(at int, s span) Reason {
	before := at < c.n && c.spans[at].to == s.from
	behind := at
	if before {
		behind++
	}
	after := behind < c.n && c.spans[behind].from == s.to
	switch {
	case before && after:
		c.spans[at].to = c.spans[behind].to
		copy(c.spans[behind:], c.spans[behind+1:c.n])
		c.n--
	case before:
		c.spans[at].to = s.to
	case after:
		c.spans[behind].from = s.from
	case c.n == maxSpans:
		return FragmentTooMany
	default:
		copy(c.spans[at+1:c.n+1], c.spans[at:c.n])
		c.spans[at] = s
		c.n++
	}
	return none
}

// complete tells whether nothing is missing.
func (c *coverage) complete() bool {
	return c.end != 0 && c.n == 1 && c.spans[0].from == 0 && int(c.spans[0].to) == (c.end+7)/8
}
