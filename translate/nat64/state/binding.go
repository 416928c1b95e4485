// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package state

import "sync/atomic"

// Inside is X',x: what a binding is found by from IPv6.
type Inside struct {
	Client    [16]byte // X'
	Port      uint16   // x, or the identifier of an ICMP query
	Transport Transport
}

// Outside is T,t: what a binding is found by from IPv4.
type Outside struct {
	Pool      [4]byte // T
	Port      uint16  // t, or the identifier of an ICMP query
	Transport Transport
}

// Binding is a copy of an entry of a BIB.
type Binding struct {
	Client     [16]byte // X'
	Pool       [4]byte  // T
	ClientPort uint16   // x
	PoolPort   uint16   // t
	Transport  Transport
	Static     bool   // goes by the operator alone
	Generation uint16 // tells one use of the record from the next
	Index      uint32 // its record
	Subscriber uint32 // index + 1 of its subscriber; 0: none
}

// Inside returns X',x.
func (b *Binding) Inside() Inside { return Inside{b.Client, b.ClientPort, b.Transport} }

// Outside returns T,t.
func (b *Binding) Outside() Outside { return Outside{b.Pool, b.PoolPort, b.Transport} }

// The words of a binding's record, as struct binding lies in them.
const (
	bindingAddress = 0 // two words
	bindingPorts   = 2 // T, x, t
	bindingWords   = 5
)

type bindingRecord [bindingWords]uint64

func bindingPortsOf(pool [4]byte, client, port uint16) uint64 {
	return uint64(wire32(pool)) | uint64(wire16(client))<<32 | uint64(wire16(port))<<48
}

// FindBinding6 finds the binding of X',x.
func (t *Table) FindBinding6(k *Inside, b *Binding) bool {
	a0, a1 := addressWords6(&k.Client)
	q := t.bindings6.query(t.hashBinding6(k))
	for {
		i, ok := q.next()
		if !ok {
			return false
		}
		if int(i) >= len(t.bindings) {
			continue
		}
		r, w := t.binding(i), atomic.LoadUint32(&t.bindings[i].word)
		if w&stateMask == bindingFree || Transport(w>>transportShift) != k.Transport ||
			uint16(atomic.LoadUint64(&r[bindingPorts])>>32) != wire16(k.Port) ||
			atomic.LoadUint64(&r[bindingAddress]) != a0 || atomic.LoadUint64(&r[bindingAddress+1]) != a1 {
			continue
		}
		if t.readBinding(i, w, b) {
			return true
		}
	}
}

// FindBinding4 finds the binding of T,t.
func (t *Table) FindBinding4(k *Outside, b *Binding) bool {
	const mask = 0xffff_0000_ffff_ffff // T, t
	ports := bindingPortsOf(k.Pool, 0, k.Port)
	q := t.bindings4.query(t.hashBinding4(k))
	for {
		i, ok := q.next()
		if !ok {
			return false
		}
		if int(i) >= len(t.bindings) {
			continue
		}
		w := atomic.LoadUint32(&t.bindings[i].word)
		if w&stateMask == bindingFree || Transport(w>>transportShift) != k.Transport ||
			(atomic.LoadUint64(&t.binding(i)[bindingPorts])^ports)&mask != 0 {
			continue
		}
		if t.readBinding(i, w, b) {
			return true
		}
	}
}

// ViewBinding reads the binding in a record; false when there is none.
func (t *Table) ViewBinding(index uint32, b *Binding) bool {
	if int(index) >= len(t.bindings) {
		return false
	}
	w := atomic.LoadUint32(&t.bindings[index].word)
	return w&stateMask != bindingFree && t.readBinding(index, w, b)
}

// readBinding copies a record whose word was just seen; false when its binding has ended
// since.
func (t *Table) readBinding(i, w uint32, b *Binding) bool {
	r := t.binding(i)
	a0, a1 := atomic.LoadUint64(&r[bindingAddress]), atomic.LoadUint64(&r[bindingAddress+1])
	ports := atomic.LoadUint64(&r[bindingPorts])
	owner := atomic.LoadUint32(&t.bindings[i].subscriber)
	if atomic.LoadUint32(&t.bindings[i].word) != w {
		return false
	}
	putAddress6(&b.Client, a0, a1)
	b.Pool = bytes4(uint32(ports))
	b.ClientPort, b.PoolPort = wire16(uint16(ports>>32)), wire16(uint16(ports>>48))
	b.Transport = Transport(w >> transportShift)
	b.Static = w&stateMask == bindingStatic
	b.Generation = uint16(w >> generationShift)
	b.Index, b.Subscriber = i, owner
	return true
}

// alive reports whether a binding is still the one of the copy. Under its lock it stays so.
func (t *Table) alive(b *Binding) bool {
	w := atomic.LoadUint32(&t.bindings[b.Index].word)
	return w&stateMask != bindingFree && uint16(w>>generationShift) == b.Generation
}
