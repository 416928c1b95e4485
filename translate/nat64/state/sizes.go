// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// Sizes shape a table. They are fixed for its life.
type Sizes struct {
	// Sessions is how many sessions, and as many bindings, there may be.
	Sessions int
	// Subscribers is how many clients there may be at a time.
	Subscribers int
	// Addresses is how many addresses of a pool have room for their ports.
	Addresses int
	// BlockWords is the size of a block of ports, in words of [BlockPorts]: a power of
	// two up to 1024, a whole address.
	BlockWords int
	// SubscriberLength is how many bits of an IPv6 address tell one client from
	// another.
	SubscriberLength int
}

// Limits of sizes: what BPF arrays can hold, and what indexes can name.
const (
	MaxSessions    = 1 << 26
	MaxSubscribers = 1 << 24
	MaxAddresses   = 1 << 14
)

// Check reports what is wrong with the sizes.
func (z Sizes) Check() error {
	switch {
	case z.Sessions < 1 || z.Sessions > MaxSessions:
		return fmt.Errorf("a table of %d sessions cannot be: use 1 to %d", z.Sessions, MaxSessions)
	case z.Subscribers < 1 || z.Subscribers > MaxSubscribers:
		return fmt.Errorf("a table of %d clients cannot be: use 1 to %d", z.Subscribers, MaxSubscribers)
	case z.Addresses < 1 || z.Addresses > MaxAddresses:
		return fmt.Errorf("a pool of %d addresses cannot be: use 1 to %d", z.Addresses, MaxAddresses)
	case z.BlockWords < 1 || z.BlockWords > portWords || bits.OnesCount(uint(z.BlockWords)) != 1:
		return fmt.Errorf("a block of %d ports cannot be: use a power of two from %d to 65536", z.BlockWords*BlockPorts, BlockPorts)
	case z.SubscriberLength < 1 || z.SubscriberLength > 128:
		return fmt.Errorf("clients cannot be told apart by %d bits of their address: use 1 to 128", z.SubscriberLength)
	}
	return nil
}

// Names of the slabs.
const (
	SlabHead          = "head"
	SlabSessions      = "sessions"
	SlabBindings      = "bindings"
	SlabSubscribers   = "subscribers"
	SlabAddresses     = "addresses"
	SlabSessions6     = "sessions6"
	SlabSessions4     = "sessions4"
	SlabBindings6     = "bindings6"
	SlabBindings4     = "bindings4"
	SlabSubscribers6  = "subscribers6"
	SlabSessionsUsed  = "sessions_used"
	SlabBindingsUsed  = "bindings_used"
	SlabSessionsDirty = "sessions_dirty"
	SlabPortsUsed     = "ports_used"
)

// Slab is one piece of the table's memory: an array of records.
type Slab struct {
	Name       string
	Records    int
	RecordSize int // bytes, a multiple of 8
}

// Bytes is the size of the slab.
func (s Slab) Bytes() int { return s.Records * s.RecordSize }

// Slabs returns the table's pieces of memory, always in the same order. Each can be a
// BPF array of that many elements of that size, part of a file, or memory of this
// process; fresh ones are zero.
func (z Sizes) Slabs() []Slab {
	const word, line = 8, int(unsafe.Sizeof(bucket{}))
	sessions, subscribers := buckets(z.Sessions), buckets(z.Subscribers)
	return []Slab{
		{SlabHead, 1, int(unsafe.Sizeof(head{}))},
		{SlabSessions, z.Sessions, int(unsafe.Sizeof(session{}))},
		{SlabBindings, z.Sessions, int(unsafe.Sizeof(binding{}))},
		{SlabSubscribers, z.Subscribers, int(unsafe.Sizeof(subscriber{}))},
		{SlabAddresses, z.Addresses, int(unsafe.Sizeof(poolAddress{}))},
		{SlabSessions6, sessions, line},
		{SlabSessions4, sessions, line},
		{SlabBindings6, sessions, line},
		{SlabBindings4, sessions, line},
		{SlabSubscribers6, subscribers, line},
		{SlabSessionsUsed, bitWords(z.Sessions), word},
		{SlabBindingsUsed, bitWords(z.Sessions), word},
		{SlabSessionsDirty, bitWords(z.Sessions), word},
		{SlabPortsUsed, z.Addresses * addressWords, word},
	}
}

// SessionBytes is what one session with a binding of its own takes, with its part of
// the indexes and bitmaps, when all the table's records are in use.
func (z Sizes) SessionBytes() float64 {
	sum := 0
	for _, s := range z.Slabs() {
		switch s.Name {
		case SlabHead, SlabSubscribers, SlabSubscribers6, SlabAddresses, SlabPortsUsed:
		default:
			sum += s.Bytes()
		}
	}
	return float64(sum) / float64(z.Sessions)
}

// fullness is how much of an index's slots full records take, in eighths. There one in
// fifty entries finds both its buckets full and needs the engine to make room; below
// two thirds of that, none.
const fullness = 6

// buckets returns how many buckets the index of so many records has: at least two,
// since home and other bucket differ.
func buckets(records int) int {
	return max((records*8+fullness*indexSlots-1)/(fullness*indexSlots), 2)
}

// bitWords returns how many words so many bits take.
func bitWords(n int) int { return (n + 63) / 64 }
