// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "time"

// Shared is memory in which an engine describes contexts for programs of a fast path, which carry their plain packets
// beside it. The number of a context, or of rates that contexts share, is where its record lies. A context for which
// there is no room is carried by the engine alone.
type Shared struct {
	Contexts   []SharedContext // number 0 is unused
	Aggregates []SharedAggregate
	Index      SharedIndex
}

// SharedIndex is how programs find the record of a context: by its TEID, and by the addresses that its flags say it has.
type SharedIndex interface {
	// Enter enters a record by its number; false: there is no room, and nothing was entered.
	Enter(number uint32, c *SharedContext) bool
	// Leave takes out what Enter entered for the same keys. Entries of another number under these stay.
	Leave(number uint32, c *SharedContext)
}

// SharedContext is the record of a context: three cache lines. "Wire" are words as loaded from a packet.
type SharedContext struct {
	// State is odd while programs may use the record. Any change makes it even first, and another odd number then, so
	// that a program which reads the same odd number before and after has read a record that is whole. Atomic.
	State     uint32
	TEID      uint32 // ours; wire
	Node      uint32 // IPv4 address of the node that has the user plane; wire
	NodeTEID  uint32 // its TEID; wire
	Address   uint32 // IPv4 address of the terminal; wire
	Flags     uint32 // SharedIPv4 and so on
	Prefix    uint64 // upper half of the terminal's IPv6 addresses; wire
	MTU       uint32 // of inner packets, octets
	Class     uint32 // traffic class of G-PDUs for the terminal, without ECN
	Aggregate uint32 // number in Shared.Aggregates; 0: none
	Seen      uint32 // when the terminal sent last, seconds since the engine's epoch; atomic
	Left      uint64 // octets of both directions that may pass before a charging record is full; all ones: any
	_         uint64
	Up, Down  SharedWay
}

// The flags of a record.
const (
	SharedIPv4      = 1 << iota // the terminal has Address
	SharedIPv6                  // it has Prefix
	SharedAnySource             // G-PDUs may come from any node
	SharedClearECN              // G-PDUs for the terminal have no ECN field
)

// SharedWay is what a context has in one direction: 64 octets.
type SharedWay struct {
	Rate SharedRate
	// What programs have carried, and dropped above the rate, since the engine took it last. Atomic.
	Packets, Octets, Over uint64
	_                     [3]uint64
}

// SharedRate is what a policer is: its arrival is spent by compare-and-swap.
type SharedRate struct{ Arrival, Cost uint64 }

// SharedAggregate are rates that contexts share.
type SharedAggregate struct{ Up, Down SharedRate }

// Epoch is the time from which the engine counts: that of SharedRate.Arrival and SharedContext.Seen.
func (e *Engine) Epoch() time.Time { return e.epoch }

// Share has programs carry plain packets by records in s from now on. With those of another one before, or of one if s
// is nil, it is over: what programs have counted there is taken over, and all its records are even. Its index is left
// as it is, and so is not to be used again. The memory of s is zero.
func (e *Engine) Share(s *Shared) {
	for h := handle(1); h <= e.contexts.last && e.shared != nil; h++ {
		e.forget(h)
		u := e.contexts.at(h)
		e.collect(h, u)
		u.sharing = sharingNone
	}
	e.shared = s
}
