// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peer

import (
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
)

// Budget bounds the packets that wait, per queue and in all, and recycles their
// buffers. All queues of an engine share one.
type Budget struct {
	QueuePackets int // most packets in one queue
	QueueBytes   int // most bytes in one queue
	TotalBytes   int // most bytes in all queues

	// Sources, if not nil, shares TotalBytes among the networks that packets come from,
	// and among the hosts of each.
	Sources *ratelimit.Held

	used  int
	free  [][]byte
	lists [][][]byte // of queues that are empty
}

// networkShare is the part of the bytes in all queues that one network may have.
const networkShare = 8

// admits reports whether there is room for p in all, and for its source. A host that is
// alone can fill a queue, however small the total.
func (b *Budget) admits(p packet.IPv6) bool {
	limit := b.TotalBytes
	if b.Sources != nil {
		switch b.Sources.Share(p.Src(), len(p), max(limit/networkShare, 2*b.QueueBytes)) {
		case ratelimit.NoShare:
			return false
		case ratelimit.Spare:
			limit = min(max(limit/2, b.QueueBytes), limit)
		}
	}
	return b.used+len(p) <= limit
}

// count adds what waits, or with a sign of -1 takes it away.
func (b *Budget) count(p packet.IPv6, sign int) {
	b.used += sign * len(p)
	if b.Sources != nil {
		b.Sources.Add(p.Src(), sign*len(p))
	}
}

// freeBuffers is how many emptied buffers a budget keeps for the next packets.
const freeBuffers = 1024

// Used returns the bytes that wait in all queues.
func (b *Budget) Used() int { return b.used }

// Queue holds packets in the order of their arrival until their peer is trusted
// (RFC 4380 sections 5.2.4 and 5.4.1). The zero value is empty.
type Queue struct {
	packets [][]byte
	bytes   int
}

// Len returns the number of packets.
func (q *Queue) Len() int { return len(q.packets) }

// Push copies p to the end of the queue. It returns false, and keeps nothing,
// when a bound of the budget is reached.
func (q *Queue) Push(b *Budget, p packet.IPv6) bool {
	if len(q.packets) >= b.QueuePackets || q.bytes+len(p) > b.QueueBytes || !b.admits(p) {
		return false
	}
	var buf []byte
	if n := len(b.free); n > 0 {
		buf = b.free[n-1]
		b.free[n-1] = nil
		b.free = b.free[:n-1]
	}
	if n := len(b.lists); q.packets == nil && n > 0 {
		q.packets = b.lists[n-1]
		b.lists = b.lists[:n-1]
	}
	q.packets = append(q.packets, append(buf[:0], p...))
	q.bytes += len(p)
	b.count(p, 1)
	return true
}

// Drain empties the queue, oldest first, into memory of out and calls f with each
// packet, which stays valid until out is reset.
func (q *Queue) Drain(b *Budget, out *packet.Batch, f func(packet.IPv6)) {
	for _, p := range q.packets {
		f(out.Copy(p))
	}
	q.Clear(b)
}

// Clear drops all packets and returns how many there were.
func (q *Queue) Clear(b *Budget) int {
	n := len(q.packets)
	for i, p := range q.packets {
		b.count(p, -1)
		if len(b.free) < freeBuffers {
			b.free = append(b.free, p)
		}
		q.packets[i] = nil
	}
	if q.packets != nil && len(b.lists) < freeBuffers {
		b.lists = append(b.lists, q.packets[:0])
	}
	q.packets, q.bytes = nil, 0
	return n
}
