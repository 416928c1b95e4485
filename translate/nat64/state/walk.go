// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// WalkSessions calls f for the sessions in n records from the one given, and returns
// where to go on; 0 behind the last. f may end the session. What is made or ended
// meanwhile may be met or not.
func (t *Table) WalkSessions(from uint32, n int, f func(s *Session)) (next uint32) {
	var s Session
	end := t.slice(from, n)
	for i, ok := t.sessionsUsed.next(from, end); ok; i, ok = t.sessionsUsed.next(i+1, end) {
		if t.View(i, &s) {
			f(&s)
		}
	}
	return t.wrap(end)
}

// WalkBindings does the same for bindings.
func (t *Table) WalkBindings(from uint32, n int, f func(b *Binding)) (next uint32) {
	var b Binding
	end := t.slice(from, n)
	for i, ok := t.bindingsUsed.next(from, end); ok; i, ok = t.bindingsUsed.next(i+1, end) {
		if t.ViewBinding(i, &b) {
			f(&b)
		}
	}
	return t.wrap(end)
}

// WalkSubscribers does the same for clients.
func (t *Table) WalkSubscribers(from uint32, n int, f func(s *Subscriber)) (next uint32) {
	var s Subscriber
	for i := from; int(i) < len(t.subscribers) && int(i-from) < n; i++ {
		if t.ViewSubscriber(i, &s) {
			f(&s)
		}
	}
	if int(from)+n >= len(t.subscribers) {
		return 0
	}
	return from + uint32(n)
}

func (t *Table) slice(from uint32, n int) (end uint32) {
	return uint32(min(int(from)+n, len(t.sessions)))
}

func (t *Table) wrap(end uint32) uint32 {
	if int(end) >= len(t.sessions) {
		return 0
	}
	return end
}

// WalkChain calls f for the sessions of a binding, newest first, at most limit of them,
// until f returns false. f may end the session. It returns false when there were more.
func (t *Table) WalkChain(b *Binding, limit int, f func(s *Session) bool) (all bool) {
	if !t.alive(b) {
		return true
	}
	// Programs put sessions before the first alone, so what follows one stays as it is.
	var s Session
	for link := atomic.LoadUint32(&t.bindings[b.Index].sessions); link != 0; {
		if limit--; limit < 0 {
			return false
		}
		i := link - 1
		link = atomic.LoadUint32(t.next(i))
		if t.View(i, &s) && s.Binding == b.Index && !f(&s) {
			return true
		}
	}
	return true
}

// HasSessions reports whether a binding has any session.
func (t *Table) HasSessions(b *Binding) bool {
	return t.alive(b) && atomic.LoadUint32(&t.bindings[b.Index].sessions) != 0
}

// Counts are how many records are in use.
type Counts struct{ Sessions, Bindings, Subscribers, Blocks int }

// Counts counts them, in some microseconds.
func (t *Table) Counts() Counts {
	return Counts{
		t.sessionsUsed.count(), t.bindingsUsed.count(),
		len(t.subscribers) - len(t.freeSubscribers), t.leased,
	}
}
