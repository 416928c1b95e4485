// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// NewBinding makes a dynamic binding of a client (the second step of a new flow from
// IPv6). random draws the port. Outcomes: Made, Found with what was there, NoPort,
// TableFull, Gone when the client has ended, Busy.
func (t *Table) NewBinding(s *Subscriber, in Inside, wish Wish, random uint64, b *Binding) Outcome {
	c := &t.subscribers[s.Index]
	if !lock(&c.lock) {
		return Busy
	}
	defer unlock(&c.lock)
	switch {
	case !t.current(s):
		return Gone
	case t.FindBinding6(&in, b):
		return Found
	}
	i, ok := t.takeBinding()
	if !ok {
		return TableFull
	}
	port, ok := t.takePort(c, in.Transport, wish, random)
	if !ok {
		t.bindingsUsed.give(i)
		return NoPort
	}
	out := Outside{Pool: s.Pool, Port: port, Transport: in.Transport}
	if wish.On != [4]byte{} {
		out.Pool = wish.On
	}
	if o := t.publishBinding(i, &in, &out, bindingDynamic, s.Index+1); o != Made {
		t.givePort(&out)
		t.bindingsUsed.give(i)
		return o
	}
	t.ViewBinding(i, b)
	return Made
}

// takeBinding takes a free record. Where there is none it looks again only when a binding
// has ended, so that a flood does not look through all the bitmap for each packet.
func (t *Table) takeBinding() (i uint32, ok bool) {
	if t.noBinding {
		return 0, false
	}
	if i, ok = t.bindingsUsed.take(t.bindingHint); ok {
		t.bindingHint = i
	}
	t.noBinding = !ok
	return i, ok
}

// takeSession does the same for sessions. Those that packets of the IPv4 side make have the
// first three quarters of the records alone: anybody can send such packets, and what clients
// open must find room (RFC 6888 REQ-4).
func (t *Table) takeSession(fromIPv4 bool) (i uint32, ok bool) {
	used, from := t.sessionsUsed, &t.free6
	if fromIPv4 {
		n := used.size - used.size/4
		used, from = bitmap{used.words[:(n+63)/64], n}, &t.free4
	}
	if from.none {
		return 0, false
	}
	if i, ok = used.take(from.hint); ok {
		from.hint = i
	}
	from.none = !ok
	return i, ok
}

// publishBinding fills a record and enters it into the indexes. No one ends the binding
// before it is in both. Outcomes: Made, TableFull, Busy.
func (t *Table) publishBinding(i uint32, in *Inside, out *Outside, state, owner uint32) Outcome {
	r, e := t.binding(i), &t.bindings[i]
	// Whoever held the lock in the record's last use may do so still.
	if !lock(&e.lock) {
		return Busy
	}
	defer unlock(&e.lock)
	a0, a1 := addressWords6(&in.Client)
	atomic.StoreUint64(&r[bindingAddress], a0)
	atomic.StoreUint64(&r[bindingAddress+1], a1)
	atomic.StoreUint64(&r[bindingPorts], bindingPortsOf(out.Pool, in.Port, out.Port))
	atomic.StoreUint32(&e.subscriber, owner)
	generation := atomic.LoadUint32(&e.word)>>generationShift + 1
	atomic.StoreUint32(&e.word, generation<<generationShift|uint32(in.Transport)<<transportShift|state)
	h := t.hashBinding6(in)
	if t.bindings6.insert(h, i) {
		if t.bindings4.insert(t.hashBinding4(out), i) {
			if owner != 0 {
				atomic.AddUint32(&t.subscribers[owner-1].bindings, 1)
			}
			return Made
		}
		t.bindings6.remove(h, i)
	}
	atomic.StoreUint32(&e.word, generation<<generationShift)
	return TableFull
}

// NewSession makes a session of a binding (the third step of a new flow from IPv6, the
// second of one from IPv4), for Z,z by a prefix of pool6. Outcomes: Made, Found with what
// was there, OtherPrefix, SessionLimit, TableFull, Gone when the binding has ended, Busy.
func (t *Table) NewSession(b *Binding, n Fresh, s *Session) Outcome {
	e := &t.bindings[b.Index]
	if !lock(&e.lock) {
		return Busy
	}
	defer unlock(&e.lock)
	if !t.alive(b) {
		return Gone
	}
	key := Key4{b.Pool, n.Peer, b.PoolPort, n.PeerPort, b.Transport}
	if t.Find4(&key, s) {
		if s.Prefix != n.Prefix {
			return OtherPrefix
		}
		return Found
	}
	if !t.charge(b.Subscriber, n.FromIPv4) {
		return SessionLimit
	}
	i, ok := t.takeSession(n.FromIPv4)
	if !ok {
		t.refund(b.Subscriber)
		return TableFull
	}
	if !t.publishSession(i, b, &n) {
		t.sessionsUsed.give(i)
		t.refund(b.Subscriber)
		return TableFull
	}
	t.View(i, s)
	return Made
}

// Fresh says what a new session is like.
type Fresh struct {
	Peer     [4]byte // Z
	PeerPort uint16  // z; 0 for an ICMP query
	Prefix   uint8   // number of the prefix of pool6
	Status   Status
	Flags    Flags
	Stamp    uint32
	// FromIPv4 says that a packet of the IPv4 side makes it, which no client has asked for:
	// it gets none of what is left for clients.
	FromIPv4 bool
}

// publishSession fills a record, enters it into the indexes and puts it first into its
// binding's chain; false when an index is full.
func (t *Table) publishSession(i uint32, b *Binding, n *Fresh) bool {
	r, e := t.session(i), &t.sessions[i]
	a0, a1 := addressWords6(&b.Client)
	atomic.StoreUint64(&r[sessionAddress], a0)
	atomic.StoreUint64(&r[sessionAddress+1], a1)
	atomic.StoreUint64(&r[sessionPoolPeer], uint64(wire32(b.Pool))|uint64(wire32(n.Peer))<<32)
	atomic.StoreUint64(&r[sessionPorts], sessionPortsOf(b.ClientPort, b.PoolPort, n.PeerPort, b.Transport, n.Prefix))
	atomic.StoreUint32(&e.binding, b.Index)
	generation := Word(atomic.LoadUint64(&r[sessionWord])).Generation() + 1
	atomic.StoreUint64(&r[sessionWord], uint64(wordOf(generation, n.Status, n.Flags, n.Stamp)))
	k6 := Key6{b.Client, n.Peer, b.ClientPort, n.PeerPort, b.Transport, n.Prefix}
	k4 := Key4{b.Pool, n.Peer, b.PoolPort, n.PeerPort, b.Transport}
	h := t.hashSession6(&k6)
	if t.sessions6.insert(h, i) {
		if t.sessions4.insert(t.hashSession4(&k4), i) {
			t.chain(b.Index, i)
			t.dirty.mark(i)
			return true
		}
		t.sessions6.remove(h, i)
	}
	atomic.StoreUint64(&r[sessionWord], uint64(wordOf(generation, Free, 0, 0)))
	return false
}

// chain puts a session first into its binding's chain.
func (t *Table) chain(owner, i uint32) {
	head := &t.bindings[owner].sessions
	first := atomic.LoadUint32(head)
	atomic.StoreUint32(&t.sessions[i].next, first)
	atomic.StoreUint32(&t.sessions[i].previous, 0)
	if first != 0 {
		atomic.StoreUint32(&t.sessions[first-1].previous, i+1)
	}
	atomic.StoreUint32(head, i+1)
}

// charge counts a session of a client; false when it has as many as it may. The second half
// is for those that the client opens itself.
func (t *Table) charge(owner uint32, fromIPv4 bool) bool {
	if owner == 0 {
		return true
	}
	c := &t.subscribers[owner-1]
	n, limit := atomic.AddUint32(&c.sessions, 1), atomic.LoadUint32(&c.sessionLimit)
	if fromIPv4 {
		limit -= limit / 2
	}
	if limit != 0 && n > limit {
		t.refund(owner)
		return false
	}
	return true
}

// refund takes it back.
func (t *Table) refund(owner uint32) {
	if owner != 0 {
		atomic.AddUint32(&t.subscribers[owner-1].sessions, ^uint32(0))
	}
}
