// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import "encoding/binary"

// arena keeps packets that wait in memory of a fixed size: chains of chunks, of which
// the first begins with the packet's length and the next packet of the same list.
type arena struct {
	memory []byte
	next   []int32 // of each chunk, the following one of its chain, or of the free ones
	free   int32
}

const (
	chunkSize   = 512 // a full Ethernet frame takes 3
	chunkHeader = 8   // length and following packet
	noChunk     = int32(-1)
)

// newArena makes an arena of that many octets, rounded down to whole chunks.
func newArena(octets int) arena {
	n := octets / chunkSize
	a := arena{memory: make([]byte, n*chunkSize), next: make([]int32, n)}
	a.free = noChunk
	for i := n - 1; i >= 0; i-- {
		a.next[i], a.free = a.free, int32(i)
	}
	return a
}

func (a *arena) chunk(i int32) []byte {
	return a.memory[int(i)*chunkSize : (int(i)+1)*chunkSize]
}

// put keeps a packet. ok is false when there is no room for it.
func (a *arena) put(p []byte) (head int32, ok bool) {
	need := (chunkHeader + len(p) + chunkSize - 1) / chunkSize
	at := a.free
	for range need {
		if at == noChunk {
			return noChunk, false
		}
		at = a.next[at]
	}
	head = a.free
	first := a.chunk(head)
	binary.NativeEndian.PutUint32(first, uint32(len(p)))
	a.setFollowing(head, noChunk)
	rest := p[copy(first[chunkHeader:], p):]
	last := head
	for range need - 1 {
		last = a.next[last]
		rest = rest[copy(a.chunk(last), rest):]
	}
	a.free = a.next[last]
	a.next[last] = noChunk
	return head, true
}

// size returns the length of a packet.
func (a *arena) size(head int32) int {
	return int(binary.NativeEndian.Uint32(a.chunk(head)))
}

// following and setFollowing are the next packet of the same list.
func (a *arena) following(head int32) int32 {
	return int32(binary.NativeEndian.Uint32(a.chunk(head)[4:]))
}

func (a *arena) setFollowing(head, to int32) {
	binary.NativeEndian.PutUint32(a.chunk(head)[4:], uint32(to))
}

// appendTo appends a packet to b.
func (a *arena) appendTo(b []byte, head int32) []byte {
	left := a.size(head)
	part := a.chunk(head)[chunkHeader:]
	for at := head; ; part = a.chunk(at) {
		n := min(left, len(part))
		b = append(b, part[:n]...)
		if left -= n; left == 0 {
			return b
		}
		at = a.next[at]
	}
}

// release gives the memory of a packet back, and returns the one that followed it.
func (a *arena) release(head int32) (following int32) {
	following = a.following(head)
	last := head
	for a.next[last] != noChunk {
		last = a.next[last]
	}
	a.next[last], a.free = a.free, head
	return following
}
