// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// Subscriber is a copy of one client.
type Subscriber struct {
	Prefix       [16]byte // the rest after SubscriberLength bits zero
	Pool         [4]byte  // T of all its bindings
	Sessions     uint32   // how many it has
	SessionLimit uint32   // 0: none
	Bindings     uint32   // how many it has
	Blocks       uint32   // how many it holds
	IdleSince    uint32   // stamp, as [Table.SetIdle] left it
	Guarded      bool     // programs make nothing of it, see [Table.SetGuarded]
	Generation   uint16   // tells one use of the record from the next
	Index        uint32   // its record
}

// Block is a run of ports of an address, the same for each transport. What the pool
// does not have of it is not the subscriber's either.
type Block struct {
	Pool        [4]byte // T
	First, Last uint16  // ports
}

// FindSubscriber finds the client of an IPv6 address.
func (t *Table) FindSubscriber(client *[16]byte, s *Subscriber) bool {
	prefix := t.prefixOf(client)
	a0, a1 := addressWords6(&prefix)
	q := t.subscribers6.query(t.hashPrefix(&prefix))
	for {
		i, ok := q.next()
		if !ok {
			return false
		}
		if int(i) >= len(t.subscribers) {
			continue
		}
		r := t.subscriber(i)
		if atomic.LoadUint32(&t.subscribers[i].word)&stateMask == subscriberUsed &&
			atomic.LoadUint64(&r[0]) == a0 && atomic.LoadUint64(&r[1]) == a1 {
			return t.ViewSubscriber(i, s)
		}
	}
}

// ViewSubscriber reads the client in a record; false when there is none.
func (t *Table) ViewSubscriber(index uint32, s *Subscriber) bool {
	if int(index) >= len(t.subscribers) {
		return false
	}
	r, c := t.subscriber(index), &t.subscribers[index]
	w := atomic.LoadUint32(&c.word)
	if w&stateMask != subscriberUsed {
		return false
	}
	a0, a1 := atomic.LoadUint64(&r[0]), atomic.LoadUint64(&r[1])
	putAddress6(&s.Prefix, a0, a1)
	s.Pool = bytes4(atomic.LoadUint32(&c.pool))
	s.Sessions, s.SessionLimit = atomic.LoadUint32(&c.sessions), atomic.LoadUint32(&c.sessionLimit)
	s.Bindings, s.Blocks = atomic.LoadUint32(&c.bindings), atomic.LoadUint32(&c.blocks)
	s.IdleSince = atomic.LoadUint32(&c.idleSince)
	s.Guarded = w&subscriberGuarded != 0
	s.Generation, s.Index = uint16(w>>generationShift), index
	return atomic.LoadUint32(&c.word) == w
}

// current reports whether the subscriber of a copy has not ended, nor moved to another
// address. Under its lock it stays so.
func (t *Table) current(s *Subscriber) bool {
	c := &t.subscribers[s.Index]
	w := atomic.LoadUint32(&c.word)
	return w&stateMask == subscriberUsed && uint16(w>>generationShift) == s.Generation &&
		atomic.LoadUint32(&c.pool) == wire32(s.Pool)
}

// prefixOf cuts an address to what distinguishes clients.
func (t *Table) prefixOf(client *[16]byte) (prefix [16]byte) {
	n := t.sizes.SubscriberLength
	copy(prefix[:], client[:n/8])
	if n%8 != 0 {
		prefix[n/8] = client[n/8] &^ (0xff >> (n % 8))
	}
	return prefix
}

// MakeSubscriber makes the client of an IPv6 address, with T and a limit of sessions (0:
// none), and no blocks yet. Outcomes: Made, Found, TableFull.
func (t *Table) MakeSubscriber(client *[16]byte, pool [4]byte, limit uint32, s *Subscriber) Outcome {
	if t.FindSubscriber(client, s) {
		return Found
	}
	if len(t.freeSubscribers) == 0 {
		return TableFull
	}
	i := t.freeSubscribers[len(t.freeSubscribers)-1]
	prefix := t.prefixOf(client)
	a0, a1 := addressWords6(&prefix)
	r, c := t.subscriber(i), &t.subscribers[i]
	atomic.StoreUint64(&r[0], a0)
	atomic.StoreUint64(&r[1], a1)
	atomic.StoreUint32(&c.pool, wire32(pool))
	atomic.StoreUint32(&c.sessionLimit, limit)
	atomic.StoreUint32(&c.sessions, 0)
	atomic.StoreUint32(&c.bindings, 0)
	atomic.StoreUint32(&c.blocks, 0)
	atomic.StoreUint32(&c.idleSince, 0)
	generation := atomic.LoadUint32(&c.word)>>generationShift + 1
	atomic.StoreUint32(&c.word, generation<<generationShift|subscriberUsed)
	if !t.subscribers6.insert(t.hashPrefix(&prefix), i) {
		atomic.StoreUint32(&c.word, generation<<generationShift)
		return TableFull
	}
	t.freeSubscribers = t.freeSubscribers[:len(t.freeSubscribers)-1]
	t.ViewSubscriber(i, s)
	return Made
}

// EndSubscriber ends a client without bindings, and gives its blocks back. Outcomes:
// Made, Found when it has bindings and stays, Gone, Busy.
func (t *Table) EndSubscriber(s *Subscriber) Outcome {
	c := &t.subscribers[s.Index]
	if !lock(&c.lock) {
		return Busy
	}
	defer unlock(&c.lock)
	switch {
	case !t.current(s):
		return Gone
	case atomic.LoadUint32(&c.bindings) != 0:
		return Found
	}
	t.returnAll(c)
	atomic.StoreUint32(&c.word, uint32(s.Generation)<<generationShift)
	t.subscribers6.remove(t.hashPrefix(&s.Prefix), s.Index)
	t.freeSubscribers = append(t.freeSubscribers, s.Index)
	return Made
}

// SetSessionLimit changes a client's limit of sessions; 0: none.
func (t *Table) SetSessionLimit(s *Subscriber, limit uint32) {
	atomic.StoreUint32(&t.subscribers[s.Index].sessionLimit, limit)
}

// SetGuarded keeps programs from making bindings and sessions of a client, or lets them do so
// again. The word is the daemon's alone.
func (t *Table) SetGuarded(s *Subscriber, guarded bool) {
	word := &t.subscribers[s.Index].word
	w := atomic.LoadUint32(word) &^ subscriberGuarded
	if guarded {
		w |= subscriberGuarded
	}
	atomic.StoreUint32(word, w)
}

// SetIdle records when the client was found to be without bindings.
func (t *Table) SetIdle(s *Subscriber, stamp uint32) {
	atomic.StoreUint32(&t.subscribers[s.Index].idleSince, stamp)
}
