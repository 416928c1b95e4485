// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// End ends a session, unless its word has changed since the copy was made; a dynamic
// binding goes with its last session. Outcomes: Made, Gone when it has ended or a packet
// has come meanwhile, Busy.
func (t *Table) End(s *Session) Outcome {
	e := &t.bindings[s.Binding]
	if !lock(&e.lock) {
		return Busy
	}
	defer unlock(&e.lock)
	if !t.swap(s, wordOf(s.Word.Generation(), Free, 0, 0)) {
		return Gone
	}
	t.bury(s)
	t.endIfBare(s.Binding)
	return Made
}

// bury takes an ended session out of everything. The lock of its binding is held.
func (t *Table) bury(s *Session) {
	k6, k4 := s.Key6(), s.Key4()
	t.sessions6.remove(t.hashSession6(&k6), s.Index)
	t.sessions4.remove(t.hashSession4(&k4), s.Index)
	t.unchain(s.Binding, s.Index)
	t.refund(atomic.LoadUint32(&t.bindings[s.Binding].subscriber))
	t.dirty.mark(s.Index)
	t.sessionsUsed.give(s.Index)
	t.free6.none, t.free4.none = false, false
}

// unchain takes a session out of its binding's chain.
func (t *Table) unchain(owner, i uint32) {
	next, previous := atomic.LoadUint32(&t.sessions[i].next), atomic.LoadUint32(&t.sessions[i].previous)
	if next != 0 {
		atomic.StoreUint32(&t.sessions[next-1].previous, previous)
	}
	if previous != 0 {
		atomic.StoreUint32(&t.sessions[previous-1].next, next)
	} else {
		atomic.StoreUint32(&t.bindings[owner].sessions, next)
	}
}

// endIfBare ends a dynamic binding without sessions, whose lock is held.
func (t *Table) endIfBare(i uint32) bool {
	e := &t.bindings[i]
	if atomic.LoadUint32(&e.sessions) != 0 || atomic.LoadUint32(&e.word)&stateMask != bindingDynamic {
		return false
	}
	t.buryBinding(i)
	return true
}

// buryBinding ends a binding without sessions, whose lock is held.
func (t *Table) buryBinding(i uint32) {
	var b Binding
	t.ViewBinding(i, &b)
	e, in, out := &t.bindings[i], b.Inside(), b.Outside()
	atomic.StoreUint32(&e.word, uint32(b.Generation)<<generationShift)
	t.bindings6.remove(t.hashBinding6(&in), i)
	t.bindings4.remove(t.hashBinding4(&out), i)
	t.givePort(&out)
	if b.Subscriber != 0 {
		atomic.AddUint32(&t.subscribers[b.Subscriber-1].bindings, ^uint32(0))
	}
	t.bindingsUsed.give(i)
	t.noBinding = false
}

// EndBinding ends a binding of either kind with all its sessions. Outcomes: Made, Gone,
// Busy.
func (t *Table) EndBinding(b *Binding) Outcome {
	e := &t.bindings[b.Index]
	if !lock(&e.lock) {
		return Busy
	}
	defer unlock(&e.lock)
	if !t.alive(b) {
		return Gone
	}
	var s Session
	for first := atomic.LoadUint32(&e.sessions); first != 0; first = atomic.LoadUint32(&e.sessions) {
		t.View(first-1, &s)
		// A packet may renew its stamp meanwhile.
		for !t.swap(&s, wordOf(s.Word.Generation(), Free, 0, 0)) {
			t.View(first-1, &s)
		}
		t.bury(&s)
	}
	t.buryBinding(b.Index)
	return Made
}

// Reap ends a dynamic binding that has no session: one whose maker found no room for a
// session, or is about to make it and then begins again. Outcomes: Made, Found when it has
// sessions or is static, Gone, Busy.
func (t *Table) Reap(b *Binding) Outcome {
	e := &t.bindings[b.Index]
	if !lock(&e.lock) {
		return Busy
	}
	defer unlock(&e.lock)
	switch {
	case !t.alive(b):
		return Gone
	case !t.endIfBare(b.Index):
		return Found
	}
	return Made
}
