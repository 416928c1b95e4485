// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Memory holds the slabs of a table, by name, as [Sizes.Slabs] lists them.
type Memory map[string][]byte

// HeapMemory returns fresh memory of this process, for a table without a fast path.
func HeapMemory(z Sizes) Memory {
	m := make(Memory)
	for _, slab := range z.Slabs() {
		m[slab.Name] = aligned(slab.Bytes())
	}
	return m
}

// Holds reports whether a state was opened in the memory, or copied there as a whole.
func (m Memory) Holds() bool { return atomic.LoadUint32(&m.head().version) != 0 }

func (m Memory) head() *head { return (*head)(unsafe.Pointer(&m[SlabHead][0])) }

// CopyTo copies a state into memory of the same sizes that no one else uses. The version
// comes last: whoever is killed meanwhile leaves memory that holds none.
func (m Memory) CopyTo(other Memory) {
	to, from := other.head(), *m.head()
	atomic.StoreUint32(&to.version, 0)
	for name, slab := range m {
		if name != SlabHead {
			copy(other[name], slab)
		}
	}
	version := from.version
	from.version = 0
	*to = from
	atomic.StoreUint32(&to.version, version)
}

// Clear makes the memory fresh.
func (m Memory) Clear() {
	for _, slab := range m {
		clear(slab)
	}
}

// Bytes is how much memory [Divide] needs.
func (z Sizes) Bytes() (n int) {
	for _, slab := range z.Slabs() {
		n += wholeLines(slab.Bytes())
	}
	return n
}

// Divide makes the slabs of one piece of memory, such as a mapped file, of [Sizes.Bytes]
// that begin with a cache line.
func Divide(z Sizes, b []byte) (Memory, error) {
	if len(b) < z.Bytes() {
		return nil, fmt.Errorf("the memory of the table has %d bytes and needs %d: it was made for other sizes", len(b), z.Bytes())
	}
	m := make(Memory)
	for _, slab := range z.Slabs() {
		m[slab.Name] = b[:slab.Bytes():slab.Bytes()]
		b = b[wholeLines(slab.Bytes()):]
	}
	return m, nil
}

// wholeLines rounds up to cache lines.
func wholeLines(n int) int {
	const line = int(unsafe.Sizeof(bucket{}))
	return (n + line - 1) / line * line
}

// aligned returns so many zero bytes that begin with a cache line.
func aligned(n int) []byte {
	const line = unsafe.Sizeof(bucket{})
	b := make([]byte, n+int(line)-1)
	skip := -uintptr(unsafe.Pointer(&b[0])) % line
	return b[skip : int(skip)+n : int(skip)+n]
}

// ErrOther says that memory holds a state of another layout, or of other sizes. Whoever
// can do without it opens fresh memory instead.
var ErrOther = errors.New("the kept state of the translator is of another version, or has other sizes")

// Open lays a table over its memory. Fresh memory, all zero, is set up with the seed, which
// must be from a cryptographic source. Memory that holds a state of the same layout and
// sizes is adopted with the seed that it has: what is whole is kept, counts, chains,
// indexes and bitmaps are rebuilt, and locks are given back. Meanwhile, and for a moment
// before, no program may run on it. Then [Table.SetPool] is called.
func Open(z Sizes, m Memory, seed [Seeds]uint64) (t *Table, adopted bool, err error) {
	if err := z.Check(); err != nil {
		return nil, false, err
	}
	if err := m.check(z); err != nil {
		return nil, false, err
	}
	t = overlay(z, m)
	switch want := t.heading(seed); {
	case t.head.version == 0:
		t.seed = seed
		t.ports.fill()
		t.freeAll()
		*t.head = want
		// The version comes last: memory without it is fresh.
		atomic.StoreUint32(&t.head.version, LayoutVersion)
		return t, false, nil
	case !t.head.fits(&want):
		return nil, false, ErrOther
	}
	t.seed = t.head.seed
	t.adopt()
	return t, true, nil
}

// check reports whether the slabs are as they must be.
func (m Memory) check(z Sizes) error {
	for _, slab := range z.Slabs() {
		b := m[slab.Name]
		if len(b) < slab.Bytes() {
			return fmt.Errorf("the memory of %s has %d bytes and needs %d: it was made for other sizes", slab.Name, len(b), slab.Bytes())
		}
		if uintptr(unsafe.Pointer(&b[0]))%unsafe.Sizeof(bucket{}) != 0 {
			return fmt.Errorf("the memory of %s does not start at a cache line", slab.Name)
		}
	}
	return nil
}

// overlay lays a table over slabs of the right size.
func overlay(z Sizes, m Memory) *Table {
	t := &Table{
		sizes:       z,
		head:        m.head(),
		sessions:    records[session](m[SlabSessions], z.Sessions),
		bindings:    records[binding](m[SlabBindings], z.Sessions),
		subscribers: records[subscriber](m[SlabSubscribers], z.Subscribers),
		addresses:   records[poolAddress](m[SlabAddresses], z.Addresses),

		sessions6:    index{records[bucket](m[SlabSessions6], buckets(z.Sessions))},
		sessions4:    index{records[bucket](m[SlabSessions4], buckets(z.Sessions))},
		bindings6:    index{records[bucket](m[SlabBindings6], buckets(z.Sessions))},
		bindings4:    index{records[bucket](m[SlabBindings4], buckets(z.Sessions))},
		subscribers6: index{records[bucket](m[SlabSubscribers6], buckets(z.Subscribers))},

		sessionsUsed: bitmapOver(m[SlabSessionsUsed], z.Sessions),
		bindingsUsed: bitmapOver(m[SlabBindingsUsed], z.Sessions),
		dirty:        bitmapOver(m[SlabSessionsDirty], z.Sessions),
		ports:        bitmapOver(m[SlabPortsUsed], z.Addresses*addressWords*64),

		numbers: make(map[[4]byte]uint32),
		pool:    make([][]PortRange, z.Addresses),
	}
	t.leases = make([]uint32, uint32(z.Addresses)*t.blocksOf())
	t.feed.table = t
	return t
}

// records lays an array over bytes.
func records[R any](b []byte, n int) []R { return unsafe.Slice((*R)(unsafe.Pointer(&b[0])), n) }

func bitmapOver(b []byte, n int) bitmap {
	return bitmap{words: records[uint64](b, bitWords(n)), size: uint32(n)}
}

// heading returns the head that a table of these sizes has.
func (t *Table) heading(seed [Seeds]uint64) head {
	z := t.sizes
	return head{
		seed:              seed,
		sessions:          uint32(z.Sessions),
		bindings:          uint32(z.Sessions),
		subscribers:       uint32(z.Subscribers),
		sessionBuckets:    uint32(len(t.sessions6.buckets)),
		bindingBuckets:    uint32(len(t.bindings6.buckets)),
		subscriberBuckets: uint32(len(t.subscribers6.buckets)),
		addresses:         uint32(z.Addresses),
		blockWords:        uint32(z.BlockWords),
		subscriberLength:  uint32(z.SubscriberLength),
	}
}

// fits reports whether a head is that of this version, whatever its seed.
func (h *head) fits(want *head) bool {
	same := *want
	same.version, same.seed = LayoutVersion, h.seed
	return *h == same
}

// freeAll makes the list of free subscribers, the first to be taken first.
func (t *Table) freeAll() {
	t.freeSubscribers = t.freeSubscribers[:0]
	for i := len(t.subscribers) - 1; i >= 0; i-- {
		if t.subscribers[i].word&stateMask != subscriberUsed {
			t.freeSubscribers = append(t.freeSubscribers, uint32(i))
		}
	}
}
