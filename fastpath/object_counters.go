// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import "fmt"

// Verdict is what became of a packet.
type Verdict uint8

// The verdicts, as bpf/base.h has them.
const (
	Forward Verdict = iota // it left by the fast path
	Punt                   // left to the kernel, and so to the engine
	Drop
)

// String returns the verdict as a word.
func (v Verdict) String() string {
	switch v {
	case Forward:
		return "forward"
	case Punt:
		return "punt"
	case Drop:
		return "drop"
	}
	return "unknown"
}

// Reasons are why packets meet their verdicts in the programs of an object. Each has one
// verdict; those that forward come first, then those that punt, then those that drop.
type Reasons struct {
	// Words are stable, in snake_case, in the order of the reasons' numbers.
	Words []string
	// FirstPunt and FirstDrop are numbers of reasons.
	FirstPunt, FirstDrop int
}

// Word returns the word of a reason.
func (r *Reasons) Word(reason uint8) string {
	if int(reason) >= len(r.Words) {
		return "unknown"
	}
	return r.Words[reason]
}

// Verdict returns the verdict that goes with a reason.
func (r *Reasons) Verdict(reason uint8) Verdict {
	switch {
	case int(reason) >= r.FirstDrop:
		return Drop
	case int(reason) >= r.FirstPunt:
		return Punt
	}
	return Forward
}

// Counter is how many packets met a verdict for one reason, since the tables were made.
type Counter struct {
	Verdict Verdict
	Reason  string
	Packets uint64
	Bytes   uint64 // from the outer IP header on, as they came
}

// CounterRecord is struct counter of bpf/base.h.
type CounterRecord struct{ Packets, Bytes uint64 }

// Counters returns one counter for each reason, in the order of their numbers.
func (o *Object) Counters() ([]Counter, error) {
	list := make([]Counter, len(o.build.Reasons.Words))
	var cores []CounterRecord
	for i := range list {
		key := uint32(i)
		if err := o.tables[countersMap].Lookup(&key, &cores); err != nil {
			return nil, fmt.Errorf("cannot read the counters of the fast path: %w", err)
		}
		c := &list[i]
		c.Reason, c.Verdict = o.Reason(uint8(i)), o.build.Reasons.Verdict(uint8(i))
		for _, core := range cores {
			c.Packets += core.Packets
			c.Bytes += core.Bytes
		}
	}
	return list, nil
}

// Reason returns the word of a reason, such as that of a [Sample].
func (o *Object) Reason(reason uint8) string { return o.build.Reasons.Word(reason) }
