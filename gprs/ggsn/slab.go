// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

// handle names a record of a [slab]; 0 is none.
type handle uint32

// slab holds records in chunks, so that one more neither moves nor copies the others.
type slab[T any] struct {
	chunks [][]T
	free   []handle
	last   handle // the highest that was taken
}

// chunkBits is the number of bits that say which record of a chunk it is.
const chunkBits = 10

func (s *slab[T]) at(h handle) *T { return &s.chunks[h>>chunkBits][h&(1<<chunkBits-1)] }

// take returns an empty record.
func (s *slab[T]) take() (handle, *T) {
	if n := len(s.free); n > 0 {
		h := s.free[n-1]
		s.free = s.free[:n-1]
		return h, s.at(h)
	}
	s.last++
	if int(s.last>>chunkBits) == len(s.chunks) {
		s.chunks = append(s.chunks, make([]T, 1<<chunkBits))
	}
	return s.last, s.at(s.last)
}

// give empties a record and takes it back.
func (s *slab[T]) give(h handle) {
	var empty T
	*s.at(h) = empty
	s.free = append(s.free, h)
}

// used is how many records are taken.
func (s *slab[T]) used() int { return int(s.last) - len(s.free) }
