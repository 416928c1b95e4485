// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "math/bits"

// adopt takes over the records of an earlier daemon, which may have ended at any point. A
// record counts when its word says that it is in use; the rest is rebuilt from these.
func (t *Table) adopt() {
	t.sessionsUsed.reset()
	t.bindingsUsed.reset()
	t.dirty.reset()
	t.ports.fill()
	for _, x := range []*index{&t.sessions6, &t.sessions4, &t.bindings6, &t.bindings4, &t.subscribers6} {
		x.reset()
	}
	t.adoptAddresses()
	for i := range uint32(len(t.subscribers)) {
		t.adoptSubscriber(i)
	}
	t.adoptBindings()
	t.adoptSessions()
	t.dropBare()
	t.freeAll()
	t.feed.Resync()
}

// batch is how many records are adopted at a time. Nearly all the time of an adoption is
// memory that answers: it takes a quarter less when all buckets of a batch are asked for
// at once.
const batch = 64

func (t *Table) adoptBindings() {
	var inside, outside [batch]uint64 // hashes
	for from := uint32(0); from < uint32(len(t.bindings)); from += batch {
		end, n := min(from+batch, uint32(len(t.bindings))), 0
		for i := from; i < end; i++ {
			var b Binding
			if t.ViewBinding(i, &b) {
				in, out := b.Inside(), b.Outside()
				inside[n], outside[n] = t.hashBinding6(&in), t.hashBinding4(&out)
				n++
			}
		}
		t.bindings6.warm(inside[:n])
		t.bindings4.warm(outside[:n])
		for i := from; i < end; i++ {
			t.adoptBinding(i)
		}
	}
}

func (t *Table) adoptSessions() {
	var inside, outside [batch]uint64 // hashes
	for from := uint32(0); from < uint32(len(t.sessions)); from += batch {
		end, n := min(from+batch, uint32(len(t.sessions))), 0
		for i := from; i < end; i++ {
			var s Session
			if t.View(i, &s) {
				k6, k4 := s.Key6(), s.Key4()
				inside[n], outside[n] = t.hashSession6(&k6), t.hashSession4(&k4)
				n++
			}
		}
		t.sessions6.warm(inside[:n])
		t.sessions4.warm(outside[:n])
		for i := from; i < end; i++ {
			t.adoptSession(i)
		}
	}
}

// adoptAddresses learns the numbers of the addresses.
func (t *Table) adoptAddresses() {
	for n := range t.addresses {
		a := bytes4(t.addresses[n].address)
		if _, twice := t.numbers[a]; twice {
			t.addresses[n].address = 0
		} else if a != [4]byte{} {
			t.numbers[a] = uint32(n)
		}
	}
}

// adoptSubscriber keeps a client whose blocks are its alone.
func (t *Table) adoptSubscriber(i uint32) {
	c := &t.subscribers[i]
	c.lock, c.sessions, c.bindings = 0, 0, 0
	if c.word&stateMask != subscriberUsed {
		return
	}
	var s, other Subscriber
	if !t.ViewSubscriber(i, &s) || t.prefixOf(&s.Prefix) != s.Prefix ||
		t.FindSubscriber(&s.Prefix, &other) || !t.adoptBlocks(i) ||
		!t.subscribers6.insert(t.hashPrefix(&s.Prefix), i) {
		t.dropBlocks(i)
		c.word &^= stateMask
	}
}

// adoptBlocks leases a client's blocks to it again; false when one cannot be.
func (t *Table) adoptBlocks(i uint32) bool {
	c := &t.subscribers[i]
	if c.blocks > MaxBlocks {
		return false
	}
	address, ok := t.numberOf(bytes4(c.pool))
	for _, first := range c.first[:c.blocks] {
		if !ok || first/uint32(addressWords) != address || first%uint32(addressWords) >= portWords ||
			first%uint32(t.sizes.BlockWords) != 0 || t.leases[t.leaseOf(first)] != 0 {
			return false
		}
		t.setLease(t.leaseOf(first), i+1)
	}
	return true
}

// dropBlocks takes back what adoptBlocks leased.
func (t *Table) dropBlocks(i uint32) {
	c := &t.subscribers[i]
	for _, first := range c.first[:min(c.blocks, MaxBlocks)] {
		if at := t.leaseOf(first); int(at) < len(t.leases) && t.leases[at] == i+1 {
			t.setLease(at, 0)
		}
	}
}

// adoptBinding keeps a binding that is one.
func (t *Table) adoptBinding(i uint32) {
	e := &t.bindings[i]
	e.lock, e.sessions = 0, 0
	if e.word&stateMask == bindingFree {
		return
	}
	if !t.plausibleBinding(i) || !t.indexBinding(i) {
		e.word &^= stateMask
		return
	}
	t.bindingsUsed.words[i/64] |= 1 << (i % 64)
	if e.subscriber != 0 {
		t.subscribers[e.subscriber-1].bindings++
	}
}

func (t *Table) plausibleBinding(i uint32) bool {
	var b, other Binding
	if !t.ViewBinding(i, &b) || b.Transport >= Transports || t.bindings[i].word&stateMask > bindingStatic {
		return false
	}
	if _, ok := t.numberOf(b.Pool); !ok {
		return false
	}
	if b.Subscriber == 0 {
		if !b.Static {
			return false
		}
	} else if !t.belongs(&b) {
		return false
	}
	in, out := b.Inside(), b.Outside()
	return !t.FindBinding6(&in, &other) && !t.FindBinding4(&out, &other)
}

// belongs reports whether a binding's subscriber is its client.
func (t *Table) belongs(b *Binding) bool {
	var s Subscriber
	return t.ViewSubscriber(b.Subscriber-1, &s) && t.prefixOf(&b.Client) == s.Prefix
}

func (t *Table) indexBinding(i uint32) bool {
	var b Binding
	t.ViewBinding(i, &b)
	in, out := b.Inside(), b.Outside()
	h := t.hashBinding6(&in)
	if !t.bindings6.insert(h, i) {
		return false
	}
	if !t.bindings4.insert(t.hashBinding4(&out), i) {
		t.bindings6.remove(h, i)
		return false
	}
	return true
}

// adoptSession keeps a session that is one of its binding.
func (t *Table) adoptSession(i uint32) {
	r := t.session(i)
	if Word(r[sessionWord]).Status() == Free {
		return
	}
	if !t.plausibleSession(i) || !t.indexSession(i) {
		r[sessionWord] &^= stateMask << wordStatus
		return
	}
	t.sessionsUsed.words[i/64] |= 1 << (i % 64)
	owner := t.sessions[i].binding
	t.chain(owner, i)
	if c := t.bindings[owner].subscriber; c != 0 {
		t.subscribers[c-1].sessions++
	}
}

func (t *Table) plausibleSession(i uint32) bool {
	var s, other Session
	var b Binding
	if !t.View(i, &s) || s.Word.Status() >= Statuses || !t.ViewBinding(s.Binding, &b) ||
		b.Inside() != (Inside{s.Client, s.ClientPort, s.Transport}) ||
		b.Outside() != (Outside{s.Pool, s.PoolPort, s.Transport}) {
		return false
	}
	k4 := s.Key4() // of one binding: no other has its key in IPv6 either
	return !t.Find4(&k4, &other)
}

func (t *Table) indexSession(i uint32) bool {
	var s Session
	t.View(i, &s)
	k6, k4 := s.Key6(), s.Key4()
	h := t.hashSession6(&k6)
	if !t.sessions6.insert(h, i) {
		return false
	}
	if !t.sessions4.insert(t.hashSession4(&k4), i) {
		t.sessions6.remove(h, i)
		return false
	}
	return true
}

// dropBare ends dynamic bindings without sessions.
func (t *Table) dropBare() {
	for at, w := range t.bindingsUsed.words {
		for ; w != 0; w &= w - 1 {
			t.endIfBare(uint32(at*64 + bits.TrailingZeros64(w)))
		}
	}
}
