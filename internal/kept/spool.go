// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package kept

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
)

// Spool has records that must reach somebody, in their order, in a [Journal]: what has been put and
// flushed is there, whatever ends the process, until it is done. Its methods may be called by several
// goroutines.
type Spool struct {
	journal *Journal

	mu      sync.Mutex // guards what follows
	waiting map[uint64]spooled
	next    uint64 // number from which on none is taken
	end     uint64 // number of the one that comes next
	octets  int
	limit   int
	refused uint64
}

type spooled struct {
	record []byte
	taken  bool
}

// SpoolInfo is how full a spool is.
type SpoolInfo struct {
	Records, Octets int
	Refused         uint64 // records that found it full
}

// OpenSpool opens the spool in a file, and makes it if there is none. It takes no more records while
// those in it have so many octets as the limit.
func OpenSpool(path string, limit int) (*Spool, error) {
	journal, records, err := OpenJournal(path)
	if err != nil {
		return nil, err
	}
	s := &Spool{journal: journal, waiting: make(map[uint64]spooled, len(records)), limit: limit}
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if len(key) != 8 {
			continue // of nobody
		}
		n := binary.BigEndian.Uint64([]byte(key))
		if s.end == 0 {
			s.next = n
		}
		s.waiting[n], s.end = spooled{record: records[key]}, n+1
		s.octets += len(records[key])
	}
	return s, nil
}

// Put appends a record, which [Spool.Flush] writes; false: there is no room for it.
func (s *Spool) Put(record []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.octets+len(record) > s.limit {
		s.refused++
		return false
	}
	s.waiting[s.end] = spooled{record: record}
	s.journal.Put(spoolKey(s.end), record)
	s.octets += len(record)
	s.end++
	return true
}

func spoolKey(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// Take returns the first record that nobody has taken, with its number; false: there is none.
func (s *Spool) Take() (n uint64, record []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; s.next < s.end; s.next++ {
		if one, there := s.waiting[s.next]; there && !one.taken {
			one.taken = true
			s.waiting[s.next] = one
			return s.next, one.record, true
		}
	}
	return 0, nil, false
}

// GiveBack has a record be taken again.
func (s *Spool) GiveBack(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, there := s.waiting[n]; there {
		one.taken = false
		s.waiting[n], s.next = one, min(s.next, n)
	}
}

// Done removes a record that has reached whom it is for.
func (s *Spool) Done(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, there := s.waiting[n]; there {
		s.octets -= len(one.record)
		delete(s.waiting, n)
		s.journal.Put(spoolKey(n), nil)
	}
}

// Flush writes what was put and what is done, and Sync has it outlive the machine: see [Journal].
func (s *Spool) Flush() error { return s.journal.Flush() }

// Sync is that of [Journal].
func (s *Spool) Sync() error { return s.journal.Sync() }

// Close leaves the rest to a successor.
func (s *Spool) Close() error { return s.journal.Close() }

// Info returns how full it is.
func (s *Spool) Info() SpoolInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SpoolInfo{len(s.waiting), s.octets, s.refused}
}
