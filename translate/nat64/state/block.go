// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// Blocks appends the blocks that a client holds.
func (t *Table) Blocks(s *Subscriber, dst []Block) []Block {
	c := &t.subscribers[s.Index]
	for i := range min(atomic.LoadUint32(&c.blocks), MaxBlocks) {
		dst = append(dst, t.blockAt(s.Pool, atomic.LoadUint32(&c.first[i])))
	}
	return dst
}

func (t *Table) blockAt(pool [4]byte, first uint32) Block {
	low := first % portWords * 64
	return Block{Pool: pool, First: uint16(low), Last: uint16(low + uint32(t.sizes.BlockWords)*64 - 1)}
}

// blocksOf is how many blocks an address has.
func (t *Table) blocksOf() uint32 { return portWords / uint32(t.sizes.BlockWords) }

// leaseOf returns the number of the block that begins with a word.
func (t *Table) leaseOf(first uint32) uint32 {
	return first/uint32(addressWords)*t.blocksOf() + first%portWords/uint32(t.sizes.BlockWords)
}

// Lease gives a client another block of its address, one with a free port of the
// transport, from a random one on, and says which. Outcomes: Made, NoBlock, BlockLimit
// when it holds limit (or [MaxBlocks]) already, Gone, Busy.
func (t *Table) Lease(s *Subscriber, transport Transport, limit int, random uint64, b *Block) Outcome {
	address, ok := t.numberOf(s.Pool)
	if !ok {
		return NoBlock
	}
	n := t.blocksOf()
	at := uint32((random & 0xffff_ffff) * uint64(n) >> 32)
	for range n {
		if t.leases[address*n+at] == 0 && t.usable(address, transport, at) {
			return t.lease(s, address, at, limit, b)
		}
		if at++; at == n {
			at = 0
		}
	}
	return NoBlock
}

// LeaseAt gives a client the block of its address that has a port (RFC 7422). Outcomes:
// Made, Found when it holds it already, Taken when another does, NotInPool, BlockLimit,
// Gone, Busy.
func (t *Table) LeaseAt(s *Subscriber, port uint16, b *Block) Outcome {
	address, ok := t.numberOf(s.Pool)
	if !ok {
		return NotInPool
	}
	at := uint32(port) / 64 / uint32(t.sizes.BlockWords)
	switch t.leases[address*t.blocksOf()+at] {
	case 0:
		return t.lease(s, address, at, MaxBlocks, b)
	case s.Index + 1:
		*b = t.blockAt(s.Pool, t.firstOf(address, at))
		return Found
	}
	return Taken
}

// firstOf returns the first word of a block.
func (t *Table) firstOf(address, at uint32) uint32 {
	return address*uint32(addressWords) + at*uint32(t.sizes.BlockWords)
}

// usable reports whether a block has a free port of a transport that may be taken at
// random.
func (t *Table) usable(address uint32, transport Transport, at uint32) bool {
	first := t.firstOf(address, at)
	for word := first; word < first+uint32(t.sizes.BlockWords); word++ {
		if word%portWords >= systemWords && ^atomic.LoadUint64(&t.ports.words[word+uint32(transport)*portWords]) != 0 {
			return true
		}
	}
	return false
}

func (t *Table) lease(s *Subscriber, address, at uint32, limit int, b *Block) Outcome {
	c := &t.subscribers[s.Index]
	if !lock(&c.lock) {
		return Busy
	}
	defer unlock(&c.lock)
	held := atomic.LoadUint32(&c.blocks)
	switch {
	case !t.current(s):
		return Gone
	case int(held) >= min(limit, MaxBlocks):
		return BlockLimit
	}
	first := t.firstOf(address, at)
	atomic.StoreUint32(&c.first[held], first)
	atomic.StoreUint32(&c.blocks, held+1)
	t.setLease(address*t.blocksOf()+at, s.Index+1)
	s.Blocks = held + 1
	*b = t.blockAt(s.Pool, first)
	return Made
}

// Return takes a block from a client. Outcomes: Made, Found when bindings have ports of
// it and it stays, Gone, Busy.
func (t *Table) Return(s *Subscriber, b Block) Outcome {
	c := &t.subscribers[s.Index]
	if !lock(&c.lock) {
		return Busy
	}
	defer unlock(&c.lock)
	if !t.current(s) {
		return Gone
	}
	held := atomic.LoadUint32(&c.blocks)
	for i := range held {
		first := atomic.LoadUint32(&c.first[i])
		if t.blockAt(s.Pool, first) != b {
			continue
		}
		if t.holds(s, first) {
			return Found
		}
		atomic.StoreUint32(&c.first[i], atomic.LoadUint32(&c.first[held-1]))
		atomic.StoreUint32(&c.blocks, held-1)
		t.setLease(t.leaseOf(first), 0)
		s.Blocks = held - 1
		return Made
	}
	return Gone
}

// Rehome gives a client another address, T of all bindings that it makes from now on. Its
// blocks, which belong to the old one, are free at once; its bindings there go on until
// they end. Outcomes: Made, Gone, Busy.
func (t *Table) Rehome(s *Subscriber, pool [4]byte) Outcome {
	c := &t.subscribers[s.Index]
	if !lock(&c.lock) {
		return Busy
	}
	defer unlock(&c.lock)
	if !t.current(s) {
		return Gone
	}
	t.returnAll(c)
	atomic.StoreUint32(&c.pool, wire32(pool))
	s.Pool, s.Blocks = pool, 0
	return Made
}

// returnAll takes all blocks from a client, whose lock is held.
func (t *Table) returnAll(c *subscriber) {
	for i := range min(atomic.LoadUint32(&c.blocks), MaxBlocks) {
		t.setLease(t.leaseOf(atomic.LoadUint32(&c.first[i])), 0)
	}
	atomic.StoreUint32(&c.blocks, 0)
}

// holds reports whether a client has a binding with a port of a block.
func (t *Table) holds(s *Subscriber, first uint32) bool {
	if atomic.LoadUint32(&t.subscribers[s.Index].bindings) == 0 {
		return false
	}
	block := t.blockAt(s.Pool, first)
	for transport := range Transports {
		for port := int(block.First); port <= int(block.Last); port++ {
			out := Outside{s.Pool, uint16(port), transport}
			var b Binding
			if t.ports.has(t.portBit(first/uint32(addressWords), &out)) && t.FindBinding4(&out, &b) && b.Subscriber == s.Index+1 {
				return true
			}
		}
	}
	return false
}

// Owner finds the client that holds the block with a port of an address.
func (t *Table) Owner(pool [4]byte, port uint16, s *Subscriber) bool {
	address, ok := t.numberOf(pool)
	if !ok {
		return false
	}
	owner := t.leases[address*t.blocksOf()+uint32(port)/64/uint32(t.sizes.BlockWords)]
	return owner != 0 && t.ViewSubscriber(owner-1, s)
}

// InBlock reports whether the port of a session is of a block that the client of its binding
// holds; if no one has either, it is, too.
func (t *Table) InBlock(s *Session) bool {
	address, ok := t.numberOf(s.Pool)
	return ok && t.leases[address*t.blocksOf()+uint32(s.PoolPort)/64/uint32(t.sizes.BlockWords)] == atomic.LoadUint32(&t.bindings[s.Binding].subscriber)
}

// HasBlock reports whether an address has a free block with ports of a transport, from a port
// on that begins one.
func (t *Table) HasBlock(pool [4]byte, transport Transport, first uint32) bool {
	address, ok := t.numberOf(pool)
	if !ok {
		return false
	}
	for at := first / 64 / uint32(t.sizes.BlockWords); at < t.blocksOf(); at++ {
		if t.leases[address*t.blocksOf()+at] == 0 && t.usable(address, transport, at) {
			return true
		}
	}
	return false
}

// setLease records whose a block is: the index + 1 of a client, or 0.
func (t *Table) setLease(block, owner uint32) {
	if t.leases[block] != 0 {
		t.leased--
	}
	if owner != 0 {
		t.leased++
	}
	t.leases[block] = owner
}
