// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "unsafe"

// Table is the state of one NAT64, laid over its slabs. The package comment says who may
// call what when.
type Table struct {
	sizes Sizes
	seed  [Seeds]uint64

	head        *head
	sessions    []session
	bindings    []binding
	subscribers []subscriber
	addresses   []poolAddress

	sessions6, sessions4, bindings6, bindings4, subscribers6 index

	sessionsUsed, bindingsUsed, dirty, ports bitmap

	// What this side alone needs, and rebuilds from the records.
	numbers         map[[4]byte]uint32 // of addresses
	pool            [][]PortRange      // by number of an address
	leases          []uint32           // by number of a block: index + 1 of its subscriber
	leased          int                // how many of them have one
	freeSubscribers []uint32
	bindingHint     uint32 // the record taken last
	noBinding       bool   // none was free, and none has ended since
	free6, free4    search // the same of sessions, by the side that makes them
	feed            Feed
	visited         Session // by HasPeer, whom packets call
}

// search is where free records are looked for.
type search struct {
	hint uint32 // the record taken last
	none bool   // none was free, and none has ended since
}

// Sizes returns the table's sizes.
func (t *Table) Sizes() Sizes { return t.sizes }

// Seed returns the seed of the hash of the indexes.
func (t *Table) Seed() [Seeds]uint64 { return t.seed }

// subscriberRecord is the words of a subscriber's record.
type subscriberRecord [unsafe.Sizeof(subscriber{}) / 8]uint64

func (t *Table) subscriber(i uint32) *subscriberRecord {
	return (*subscriberRecord)(unsafe.Pointer(&t.subscribers[i]))
}
