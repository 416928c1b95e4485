// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import "encoding/binary"

// arena keeps packets that wait in memory of a fixed size, in chains of chunks.
type arena struct {
	memory []byte
	next   []int32 // of each chunk, the following one of its chain, or of the free ones
	free   int32
	unused int // chunks that are free
}

// chain is packets in the order in which they came. Each begins a chunk, with its length.
type chain struct {
	first, last     int32
	chunks, packets int
}

const (
	chunkSize   = 512 // a full Ethernet frame takes 3
	chunkHeader = 4   // the packet's length
	noChunk     = int32(-1)
)

// newArena makes an arena of that many octets, rounded down to whole chunks.
func newArena(octets int) arena {
	n := octets / chunkSize
	a := arena{memory: make([]byte, n*chunkSize), next: make([]int32, n), unused: n}
	a.free = noChunk
	for i := n - 1; i >= 0; i-- {
		a.next[i], a.free = a.free, int32(i)
	}
	return a
}

func (a *arena) chunk(i int32) []byte {
	return a.memory[int(i)*chunkSize : (int(i)+1)*chunkSize]
}

// chunksFor returns how many chunks a packet of that many octets takes.
func chunksFor(octets int) int { return (chunkHeader + octets + chunkSize - 1) / chunkSize }

// put appends a packet to a chain. There must be room for it.
func (a *arena) put(c *chain, p []byte) {
	head, last, need := a.free, a.free, chunksFor(len(p))
	first := a.chunk(head)
	binary.NativeEndian.PutUint32(first, uint32(len(p)))
	rest := p[copy(first[chunkHeader:], p):]
	for range need - 1 {
		last = a.next[last]
		rest = rest[copy(a.chunk(last), rest):]
	}
	a.free = a.next[last]
	a.next[last] = noChunk
	if c.packets == 0 {
		c.first = head
	} else {
		a.next[c.last] = head
	}
	c.last = last
	c.chunks += need
	c.packets++
	a.unused -= need
}

// size returns the length of a packet.
func (a *arena) size(head int32) int {
	return int(binary.NativeEndian.Uint32(a.chunk(head)))
}

// appendTo appends a packet to b, and returns where the one behind it begins.
func (a *arena) appendTo(b []byte, head int32) (whole []byte, following int32) {
	left := a.size(head)
	part := a.chunk(head)[chunkHeader:]
	for at := head; ; part = a.chunk(at) {
		n := min(left, len(part))
		b = append(b, part[:n]...)
		if left -= n; left == 0 {
			return b, a.next[at]
		}
		at = a.next[at]
	}
}

// release gives the memory of a chain back, however long it is.
func (a *arena) release(c *chain) {
	if c.packets > 0 {
		a.next[c.last], a.free = a.free, c.first
		a.unused += c.chunks
	}
	*c = chain{}
}
