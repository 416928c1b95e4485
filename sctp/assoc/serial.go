// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

// before reports whether a number comes before another in the circle of them (RFC 9260 section 1.6, RFC 1982).
func before(a, b uint32) bool { return int32(a-b) < 0 }

// messageBefore does so of the numbers of messages in a stream, of which DATA has 16 bits (RFC 9260 section
// 6.5) and I-DATA 32.
func messageBefore(a, b uint32, interleaved bool) bool {
	if interleaved {
		return before(a, b)
	}
	return int16(a-b) < 0
}

// nextMessage is the number behind a message's.
func nextMessage(n uint32, interleaved bool) uint32 {
	if interleaved {
		return n + 1
	}
	return uint32(uint16(n + 1))
}

// ring is a queue whose places can be looked at. The zero value is empty.
type ring[T any] struct {
	places []T // a power of two of them, or none
	head   int
	length int
}

// at is the place so many behind the first.
func (r *ring[T]) at(i int) *T { return &r.places[(r.head+i)&(len(r.places)-1)] }

// push appends a place, zeroed, and returns it; it holds until the next push.
func (r *ring[T]) push() *T {
	if r.length == len(r.places) {
		grown := make([]T, max(4, 2*len(r.places)))
		for i := range r.length {
			grown[i] = *r.at(i)
		}
		r.places, r.head = grown, 0
	}
	r.length++
	place := r.at(r.length - 1)
	*place = *new(T)
	return place
}

// keptPlaces are those that an idle association keeps: it is to be small.
const keptPlaces = 16

// drop takes the first away.
func (r *ring[T]) drop() {
	*r.at(0) = *new(T)
	r.head, r.length = (r.head+1)&(len(r.places)-1), r.length-1
}

// trim gives up memory that an empty ring does not need.
func (r *ring[T]) trim() {
	if r.length == 0 && len(r.places) > keptPlaces {
		*r = ring[T]{}
	}
}
