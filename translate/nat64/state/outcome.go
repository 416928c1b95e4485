// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

// Outcome is what became of an attempt to make something.
type Outcome uint8

// The outcomes.
const (
	Made         Outcome = iota
	Found                // it was there already, and stays as it is
	Busy                 // a lock stayed held: drop the packet
	TableFull            // no free record, or no room in an index
	NoPort               // no free port in the subscriber's blocks: lease another
	NoBlock              // no free block with such ports on the address
	BlockLimit           // the subscriber holds as many blocks as it may
	SessionLimit         // the subscriber has as many sessions as it may
	Gone                 // what it should belong to has ended: begin again
	OtherPrefix          // a session with that Z,z uses another prefix of pool6
	Taken                // X',x or T,t belongs to another binding
	NotInPool            // T,t is not in the pool
)

// OK reports whether the thing is there now.
func (o Outcome) OK() bool { return o <= Found }

// String returns the outcome in snake_case.
func (o Outcome) String() string {
	if int(o) >= len(outcomes) {
		return "unknown"
	}
	return outcomes[o]
}

var outcomes = [...]string{
	"made", "found", "busy", "table_full", "no_port", "no_block", "block_limit", "session_limit",
	"gone", "other_prefix", "taken", "not_in_pool",
}
