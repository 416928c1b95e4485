// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transfer

import "encoding/binary"

// List asks for the sources behind a name, in their order:
//
//	| header (4) | name length (1) | name |
type List struct {
	Transfer uint16
	After    string // empty: from the first on
}

func (*List) kind() Kind { return KindList }

// Append implements [Message].
func (m *List) Append(b []byte) []byte { return appendText(begin(b, m, m.Transfer), m.After) }

func readList(transfer uint16, r *reader) *List {
	m := &List{Transfer: transfer, After: r.text()}
	if m.After != "" && CheckName(m.After) != nil {
		r.fail("a name that cannot be")
	}
	return m
}

// Entries are some of the sources:
//
//	| header (4) | more (1) | count (1) | count times: octets (8) | messages a second (4) | name length (1) | name |
type Entries struct {
	Transfer uint16
	More     bool // there are some behind the last one
	List     []Entry
}

// Entry is a source.
type Entry struct {
	Name   string
	Octets uint64
	Rate   uint32 // messages a second; 0 is as fast as they go
}

func (*Entries) kind() Kind { return KindEntries }

// Append implements [Message]. There are at most [MaxEntries].
func (m *Entries) Append(b []byte) []byte {
	b = begin(b, m, m.Transfer)
	more := byte(0)
	if m.More {
		more = 1
	}
	b = append(b, more, byte(len(m.List)))
	for _, e := range m.List {
		b = binary.BigEndian.AppendUint64(b, e.Octets)
		b = binary.BigEndian.AppendUint32(b, e.Rate)
		b = appendText(b, e.Name)
	}
	return b
}

func readEntries(transfer uint16, r *reader) *Entries {
	more, n := r.uint8(), int(r.uint8())
	if more > 1 || n > MaxEntries || more == 1 && n == 0 {
		r.fail("a count that cannot be")
	}
	m := &Entries{Transfer: transfer, More: more == 1}
	for i := 0; i < n && r.problem == ""; i++ {
		e := Entry{Octets: r.uint64(), Rate: r.uint32(), Name: r.text()}
		if r.problem == "" && CheckName(e.Name) != nil {
			r.fail("a name that cannot be")
		}
		m.List = append(m.List, e)
	}
	return m
}
