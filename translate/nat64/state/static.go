// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// NewStatic makes a binding that stays until [Table.EndBinding], and takes its port, which
// may be any of the pool. It belongs to the client that X' is in, if there is one and its
// address is T. A dynamic binding of just that pair becomes static. Outcomes: Made, Found
// when it is there, Taken when X',x or T,t belongs to another, NotInPool, TableFull, Busy.
func (t *Table) NewStatic(in Inside, out Outside, b *Binding) Outcome {
	var s Subscriber
	if !t.FindSubscriber(&in.Client, &s) {
		return t.newStatic(&in, &out, 0, b)
	}
	// Programs make bindings of a client under its lock.
	c := &t.subscribers[s.Index]
	if !lock(&c.lock) {
		return Busy
	}
	defer unlock(&c.lock)
	owner := uint32(0)
	if s.Pool == out.Pool {
		owner = s.Index + 1
	}
	return t.newStatic(&in, &out, owner, b)
}

func (t *Table) newStatic(in *Inside, out *Outside, owner uint32, b *Binding) Outcome {
	address, ok := t.numberOf(out.Pool)
	if in.Transport != out.Transport || !ok || !t.allowed(address, out.Transport, out.Port) {
		return NotInPool
	}
	if t.FindBinding6(in, b) {
		return t.makeStatic(out, b)
	}
	port := t.portBit(address, out)
	if !t.ports.set(port) {
		return Taken
	}
	i, ok := t.takeBinding()
	if !ok {
		t.ports.give(port)
		return TableFull
	}
	if o := t.publishBinding(i, in, out, bindingStatic, owner); o != Made {
		t.bindingsUsed.give(i)
		t.ports.give(port)
		return o
	}
	t.ViewBinding(i, b)
	return Made
}

// makeStatic makes a binding that is there static, if it is to be bound to out.
func (t *Table) makeStatic(out *Outside, b *Binding) Outcome {
	e := &t.bindings[b.Index]
	if !lock(&e.lock) {
		return Busy
	}
	defer unlock(&e.lock)
	switch {
	case !t.alive(b) || b.Outside() != *out:
		return Taken
	case b.Static:
		return Found
	}
	w := atomic.LoadUint32(&e.word)
	atomic.StoreUint32(&e.word, w&^stateMask|bindingStatic)
	b.Static = true
	return Made
}
