// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
)

// Spool has records that must reach somebody, in a [Journal]: what has been put and flushed is there,
// whatever ends the process, until it is done. Each record is of a line, and those of one line are handed
// out one at a time and in their order. Passing records tell nothing that a later one of their line does
// not tell as well, and so the next one takes the place of one that waits. One of the line without a name is of
// all lines: it stays between what was put before it and what comes behind, whatever is postponed, until it is set
// aside (spool_order.go).
// Its methods may be called by several goroutines.
type Spool struct {
	journal *Journal
	of      func(record []byte) (line string, passing bool)

	mu        sync.Mutex          // guards what follows
	dirty     map[uint64]struct{} // numbers of records that are not in the file as they are here
	failing   bool                // the last was not written
	waiting   map[uint64]*spooled
	lines     map[string][]*spooled
	ready     readyHeap // the first of each line that is not taken
	postponed []*spooled
	order     order
	end       uint64 // number of the one that comes next
	octets    int
	limit     int
	refused   uint64
	passed    uint64
}

type spooled struct {
	number  uint64
	record  []byte
	written bool // it, or what it has replaced, is in the file
	line    string
	passing bool
	turn    int // how often it was postponed
	stage   int // see order
	place   int // in the heap; notReady: it is not there
}

const notReady = -1

// SpoolInfo is how full a spool is.
type SpoolInfo struct {
	Records, Octets int
	Refused         uint64 // records that found it full, but for passing ones
	Cut             int64  // octets of the file that could not be read: see [Journal]
	Passed          uint64 // passing records that later ones have replaced, or that found no room
}

// OpenSpool opens the spool in a file, and makes it if there is none. It takes no more records while
// those in it have so many octets as the limit, and no more passing ones from half of that on. of names the
// line of a record, and tells passing ones.
func OpenSpool(path string, limit int, of func(record []byte) (line string, passing bool)) (*Spool, error) {
	journal, records, err := OpenJournal(path)
	if err != nil {
		return nil, err
	}
	s := &Spool{journal: journal, of: of, waiting: make(map[uint64]*spooled, len(records)), lines: map[string][]*spooled{}, limit: limit, dirty: map[uint64]struct{}{}, order: newOrder()}
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if len(key) == 8 { // another is of nobody
			s.end = binary.BigEndian.Uint64([]byte(key))
			line, passing := of(records[key])
			s.add(line, passing, records[key]).written = true
		}
	}
	return s, nil
}

// add appends a record to its line.
func (s *Spool) add(line string, passing bool, record []byte) *spooled {
	one := &spooled{number: s.end, record: record, line: line, passing: passing, place: notReady}
	s.order.add(one)
	s.waiting[one.number] = one
	s.lines[one.line] = append(s.lines[one.line], one)
	if s.lines[one.line][0] == one {
		heap.Push(&s.ready, one)
	}
	s.octets += len(record)
	s.end++
	return one
}

// Put appends a record, which [Spool.Flush] writes; false: there is no room for it.
func (s *Spool) Put(record []byte) bool {
	line, passing := s.of(record)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.replaceable(line)
	more, limit := len(record), s.limit
	if passing {
		limit /= 2
	}
	if old != nil {
		more -= len(old.record)
	}
	if more > 0 && s.octets+more > limit {
		s.count(passing)
		return false
	}
	if old == nil {
		s.dirty[s.add(line, passing, record).number] = struct{}{}
		return true
	}
	s.dirty[old.number] = struct{}{} // the file has the one or the other, whenever the process ends
	s.octets += more
	s.passed++
	old.record, old.passing = record, passing
	return true
}

// replaceable is the record whose place the next one of a line takes; nil: none, or it is taken.
func (s *Spool) replaceable(line string) *spooled {
	list := s.lines[line]
	if len(list) == 0 {
		return nil
	}
	last := list[len(list)-1]
	if !last.passing || last.stage < s.order.last || len(list) == 1 && last.place == notReady {
		return nil
	}
	return last
}

// count counts a record that found no room.
func (s *Spool) count(passing bool) {
	if passing {
		s.passed++
	} else {
		s.refused++
	}
}

func spoolKey(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// Take returns the first record that nobody has taken and that no other of its line precedes, nor one of all lines,
// with its number; false: there is none.
func (s *Spool) Take() (n uint64, record []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.next()
	if one == nil {
		return 0, nil, false
	}
	heap.Remove(&s.ready, one.place)
	return one.number, one.record, true
}

// GiveBack has a record be taken again, in its place; false: it is gone, being a passing one with others
// behind it.
func (s *Spool) GiveBack(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.giveBack(s.waiting[n])
}

func (s *Spool) giveBack(one *spooled) bool {
	switch {
	case !s.isTaken(one):
	case one.passing && len(s.lines[one.line]) > 1:
		s.remove(one)
		s.passed++
		return false
	default:
		heap.Push(&s.ready, one)
	}
	return true
}

// isTaken reports whether there is such a record, which somebody has.
func (s *Spool) isTaken(one *spooled) bool {
	return one != nil && one.place == notReady && s.lines[one.line][0] == one
}

// Postpone is [Spool.GiveBack] behind all that were postponed less often, until [Spool.Restore].
func (s *Spool) Postpone(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.postpone(s.waiting[n])
}

func (s *Spool) postpone(one *spooled) bool {
	taken := s.isTaken(one)
	if taken {
		one.turn++
	}
	stays := s.giveBack(one)
	if taken && stays && one.turn == 1 {
		s.postponed = append(s.postponed, one)
	}
	return stays
}

// Restore has records be taken in their order again, whatever was postponed.
func (s *Spool) Restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.postponed {
		if one.turn = 0; one.place != notReady {
			heap.Fix(&s.ready, one.place)
		}
	}
	s.postponed = nil
}

// Done removes a record that was taken and has reached whom it is for. One that was tried before its time comes
// again.
func (s *Spool) Done(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch one := s.waiting[n]; {
	case !s.isTaken(one):
	case one.stage > s.order.current():
		s.postpone(one)
	default:
		s.remove(one)
	}
}

// remove removes the first of a line.
func (s *Spool) remove(one *spooled) {
	s.octets -= len(one.record)
	delete(s.waiting, one.number)
	if one.written {
		s.dirty[one.number] = struct{}{}
	} else {
		delete(s.dirty, one.number)
	}
	rest := s.lines[one.line][1:]
	if s.order.remove(one, rest, s.lines[ofAll]); len(rest) > 0 {
		s.lines[one.line] = rest
		heap.Push(&s.ready, rest[0])
	} else {
		delete(s.lines, one.line)
	}
}

// Flush writes what was put and what is done, and Sync has it outlive the machine: see [Journal]. What a full
// disk has no room for it writes when there is some again, not all of it at once.
func (s *Spool) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flush(flushBurst)
}

// flushBurst is how many octets one Flush writes at least, if there are so many: where there is more, the
// disk was full.
const flushBurst = 4 << 20

func (s *Spool) flush(most int) error {
	for written := 0; written < most && len(s.dirty) > 0; {
		numbers, octets := s.part()
		for _, n := range numbers {
			var record []byte // of one that is done: none
			if one := s.waiting[n]; one != nil {
				record = one.record
			}
			s.journal.Put(spoolKey(n), record)
		}
		if err := s.journal.Flush(); err != nil {
			s.journal.discard() // they are here
			s.failing = true
			return err
		}
		s.failing = false
		for _, n := range numbers {
			delete(s.dirty, n)
			if one := s.waiting[n]; one != nil {
				one.written = true
			}
		}
		written += octets
	}
	return nil
}

// part returns some of what is to be written, in its order, with about as many octets as a record may have; after
// an error no more than one, so that it costs little to find out that the disk is full still.
func (s *Spool) part() (numbers []uint64, octets int) {
	for n := range s.dirty {
		if octets >= maxRecord || s.failing && octets > 0 {
			break
		}
		numbers = append(numbers, n)
		octets += recordHeader + len(spoolKey(n))
		if one := s.waiting[n]; one != nil {
			octets += len(one.record)
		}
	}
	slices.Sort(numbers)
	return numbers, octets
}

// Sync is that of [Journal].
func (s *Spool) Sync() error { return s.journal.Sync() }

// Close leaves the rest to a successor.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.flush(math.MaxInt), s.journal.Close())
}

// Info returns how full it is.
func (s *Spool) Info() SpoolInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SpoolInfo{Records: len(s.waiting), Octets: s.octets, Refused: s.refused, Cut: s.journal.Cut, Passed: s.passed}
}
