// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"io"
	"math/bits"
	"net"
	"sync"

	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// inbox holds what has come for the reader of one association. The engine's goroutine fills it and
// never waits for the reader: the receive window, which opens as octets are read, bounds what comes.
type inbox struct {
	mu     sync.Mutex
	pieces ring[piece]
	ready  int // pieces that a reader may have: not those of a message of which the engine has more in hand
	octets octets
	credit int   // cost of what was read, and of which the engine does not know yet
	quota  int   // credit that the engine is to know of at once
	end    error // what a reader gets when all is read; nil while more may come
	shut   bool  // no one reads any more: what comes is dropped
	more   signal
}

// piece is a message, or a part of one, whose octets are in the inbox; or an error in its place.
type piece struct {
	info MessageInfo
	size int
	err  error
}

// put takes octets from the engine, and returns the cost of what was read since the last call.
func (b *inbox) put(d *assoc.Data) (credit int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return d.Cost()
	}
	p := b.pieces.push()
	p.size, p.info = len(d.User), messageInfo(d)
	b.octets.append(d.User)
	if d.Last {
		b.ready = b.pieces.length
	}
	credit, b.credit = b.credit, 0
	return credit
}

// putError has the reader get an error when it has read what came before. One that is the last already is not told again:
// it costs the peer nothing to have it happen.
func (b *inbox) putError(err error, info MessageInfo) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := piece{err: err, info: info}
	if n := b.pieces.length; b.shut || n > 0 && *b.pieces.at(n - 1) == one {
		return
	}
	*b.pieces.push() = one
	b.ready = b.pieces.length
}

// publish lets a reader have all that has come: the engine has no more in hand.
func (b *inbox) publish() {
	b.mu.Lock()
	b.ready = b.pieces.length
	b.mu.Unlock()
	b.more.send()
}

// finish says that nothing more comes. The first reason is the one that counts.
func (b *inbox) finish(err error) {
	b.mu.Lock()
	if b.end == nil {
		b.end = err
	}
	b.ready = b.pieces.length
	b.mu.Unlock()
	b.more.send()
}

// reopen takes back that the peer sends nothing more: it has begun again.
func (b *inbox) reopen() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end == io.EOF {
		b.end = nil
	}
}

// orClosed is an error, or that no one may read any more.
func (b *inbox) orClosed(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return net.ErrClosed
	}
	return err
}

// close drops what is there and what will come. It returns the cost of what was not read.
func (b *inbox) close() (credit int) {
	b.mu.Lock()
	b.shut, b.end = true, net.ErrClosed
	credit = b.credit + b.octets.length + b.pieces.length*assoc.PieceCost
	b.credit, b.pieces, b.ready, b.octets = 0, ring[piece]{}, 0, octets{}
	b.mu.Unlock()
	b.more.send()
	return credit
}

// read takes octets of the next message. Pieces of it that have come behind each other are joined. some is false
// if there is nothing yet. credit is what the engine is to know of now, if it is not 0.
func (b *inbox) read(to []byte) (n int, info MessageInfo, credit int, some bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ready == 0 && b.end != nil:
		b.more.send() // for the next reader
		return 0, info, 0, true, b.end
	case b.ready == 0:
		return 0, info, 0, false, nil
	}
	first := b.pieces.at(0)
	info = first.info
	if err = first.err; err != nil {
		b.drop()
		return 0, info, 0, true, err
	}
	for info.Last = false; b.ready > 0 && !info.Last; {
		p := b.pieces.at(0)
		if p.err != nil || p.info.Stream != info.Stream || p.info.Unordered != info.Unordered || n > 0 && p.info.First {
			break
		}
		k := min(p.size, len(to)-n)
		b.octets.take(to[n : n+k])
		n += k
		if p.size -= k; p.size > 0 {
			p.info.First = false
			break
		}
		info.Last = p.info.Last
		b.drop()
		b.credit += assoc.PieceCost
	}
	switch {
	case b.ready > 0:
		b.more.send() // for the next reader
	case b.pieces.length == 0:
		b.octets.rest()
	}
	if b.credit += n; b.credit >= b.quota {
		credit, b.credit = b.credit, 0
	}
	return n, info, credit, true, nil
}

func (b *inbox) drop() {
	b.pieces.drop()
	b.ready--
}

// ring is a queue that keeps its memory.
type ring[T any] struct {
	list          []T // of a length that is a power of two
	start, length int
}

func (r *ring[T]) at(i int) *T { return &r.list[(r.start+i)&(len(r.list)-1)] }

// push makes room for one more at the end.
func (r *ring[T]) push() *T {
	if r.length == len(r.list) {
		larger := make([]T, max(8, 2*r.length))
		for i := range r.length {
			larger[i] = *r.at(i)
		}
		r.list, r.start = larger, 0
	}
	r.length++
	return r.at(r.length - 1)
}

// drop takes the first out.
func (r *ring[T]) drop() {
	var none T
	*r.at(0) = none
	r.start = (r.start + 1) & (len(r.list) - 1)
	r.length--
}

// octets is a queue of octets that keeps its memory, as long as it needs so much from time to time.
type octets struct {
	list          []byte // of a length that is a power of two
	start, length int
	peak          int // of length, since the queue was empty
	rests         int // times that it was empty since it was full by a quarter
}

// What of the memory stays at any rate, and how often the queue is empty before it is given up.
const (
	leastOctets = 2048
	maxRests    = 1000
)

// rest gives up memory that was not needed for long. The queue is empty.
func (o *octets) rest() {
	o.rests++
	if o.peak > len(o.list)/4 || len(o.list) <= leastOctets {
		o.rests = 0
	}
	if o.peak = 0; o.rests > maxRests {
		*o = octets{}
	}
}

func (o *octets) append(b []byte) {
	if o.length+len(b) > len(o.list) {
		larger := make([]byte, max(leastOctets, 1<<bits.Len(uint(o.length+len(b)-1))))
		o.copy(larger[:o.length])
		o.list, o.start = larger, 0
	}
	end := (o.start + o.length) & (len(o.list) - 1)
	copy(o.list, b[copy(o.list[end:], b):])
	o.length += len(b)
	o.peak = max(o.peak, o.length)
}

// copy copies the first octets.
func (o *octets) copy(to []byte) {
	copy(to[copy(to, o.list[o.start:]):], o.list)
}

// take moves the first octets out.
func (o *octets) take(to []byte) {
	if len(to) == 0 {
		return
	}
	o.copy(to)
	o.start = (o.start + len(to)) & (len(o.list) - 1)
	o.length -= len(to)
}
