// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"math"
	"net/netip"
	"sync/atomic"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// sharing is whether programs carry packets of a context as well.
type sharing uint8

const (
	sharingNone    sharing = iota
	sharingRefused         // the index had no room for it
	sharingEntered         // it is in the index, and its record is even: programs leave its packets to the engine
	sharingOpen            // its record is odd
)

// enterAgain is after how many seconds a context is entered for which the index had no room.
const enterAgain = 10

// noLimit is [SharedContext].Left of a context that may carry any volume.
const noLimit = math.MaxUint64

// enter has programs, if there are any, carry packets of a context, if it may be shared. A packet of it has passed, so that one which has
// none costs nothing.
func (e *Engine) enter(x handle, c call) {
	u := e.contexts.at(x)
	if u.sharing == sharingOpen || u.sharing == sharingRefused && uint16(c.seconds())-u.refused < enterAgain {
		return
	}
	is, ok := e.sharedOf(x)
	if !ok {
		return
	}
	r := &e.shared.Contexts[x]
	r.set(&is)
	if u.sharing != sharingEntered {
		r.empty(u.lastSeen)
		if !e.shared.Index.Enter(uint32(x), r) {
			u.sharing, u.refused = sharingRefused, uint16(c.seconds())
			return
		}
	}
	e.shareAggregate(handle(is.Aggregate))
	u.sharing = sharingOpen
	atomic.AddUint32(&r.State, 1)
}

// forget has programs leave the packets of a context to the engine, since what its record says is about to change.
// They go on once it has carried one.
func (e *Engine) forget(x handle) {
	if e.shared == nil || x == 0 {
		return
	}
	u := e.contexts.at(x)
	if u.sharing != sharingOpen {
		return
	}
	r := &e.shared.Contexts[x]
	atomic.AddUint32(&r.State, 1)
	u.sharing = sharingEntered
	u.up.Arrival, u.down.Arrival = atomic.LoadUint64(&r.Up.Rate.Arrival), atomic.LoadUint64(&r.Down.Rate.Arrival)
	e.unshareAggregate(handle(r.Aggregate))
	e.collect(x, u)
}

// forgetAll does so with all contexts.
func (e *Engine) forgetAll() {
	for h := handle(1); h <= e.contexts.last && e.shared != nil; h++ {
		e.forget(h)
	}
}

// withdraw takes a context out of the index, too, before it ends, or is found by other keys.
func (e *Engine) withdraw(x handle) {
	e.forget(x)
	u := e.contexts.at(x)
	if u.sharing == sharingEntered {
		e.collect(x, u)
		e.shared.Index.Leave(uint32(x), &e.shared.Contexts[x])
	}
	u.sharing = sharingNone
}

// collect takes over what programs have counted of a context since the last time.
func (e *Engine) collect(x handle, u *pdpContext) {
	if u.sharing < sharingEntered {
		return
	}
	r := &e.shared.Contexts[x]
	closes := u.sharing == sharingOpen && u.full > 0 // or more would pass than is left
	if closes {
		atomic.AddUint32(&r.State, 1)
	}
	u.up.collect(&r.Up)
	u.down.collect(&r.Down)
	u.lastSeen = e.seenLast(x, u)
	if closes {
		atomic.StoreUint64(&r.Left, u.left())
		atomic.AddUint32(&r.State, 1)
	}
}

// collect takes over what programs have counted in one direction.
func (w *way) collect(r *SharedWay) {
	w.Octets += atomic.SwapUint64(&r.Octets, 0)
	w.Packets += atomic.SwapUint64(&r.Packets, 0)
	w.over += atomic.SwapUint64(&r.Over, 0)
}

// left is how many octets may pass before the charging record of a context is full.
func (u *pdpContext) left() uint64 {
	switch passed := u.up.Octets + u.down.Octets; {
	case u.full == 0:
		return noLimit
	case passed >= u.full:
		return 0
	default:
		return u.full - passed
	}
}

// seenLast is when the terminal sent a packet by a context last, in seconds.
func (e *Engine) seenLast(x handle, u *pdpContext) uint32 {
	if u.sharing < sharingEntered {
		return u.lastSeen
	}
	return max(u.lastSeen, atomic.LoadUint32(&e.shared.Contexts[x].Seen))
}

// rates are those of a context, where they are spent from now.
func (e *Engine) rates(x handle, u *pdpContext) (up, down *policer) {
	if u.sharing == sharingOpen {
		r := &e.shared.Contexts[x]
		return &r.Up.Rate, &r.Down.Rate
	}
	return &u.up.policer, &u.down.policer
}

// ratesOfAll are those that contexts share, where they are spent from now.
func (e *Engine) ratesOfAll(h handle) (up, down *policer) {
	g := e.aggregates.at(h)
	if g.shared > 0 {
		r := &e.shared.Aggregates[h]
		return &r.Up, &r.Down
	}
	return &g.up, &g.down
}

// shareAggregate has the rates that contexts share lie where programs spend from them, from the first record on that
// names them.
func (e *Engine) shareAggregate(h handle) {
	if h == 0 {
		return
	}
	g := e.aggregates.at(h)
	if g.shared++; g.shared == 1 {
		r := &e.shared.Aggregates[h]
		r.Up.set(g.up)
		r.Down.set(g.down)
	}
}

// unshareAggregate has them go on here where they stood, when the last such record is even.
func (e *Engine) unshareAggregate(h handle) {
	if h == 0 {
		return
	}
	g, r := e.aggregates.at(h), &e.shared.Aggregates[h]
	if g.shared--; g.shared == 0 {
		g.up.Arrival, g.down.Arrival = atomic.LoadUint64(&r.Up.Arrival), atomic.LoadUint64(&r.Down.Arrival)
	}
}

// sharedOf describes a context for programs; false: it is the engine's alone, for what they do not know of may be done
// with its packets. Whatever changes what this says of a context has to [Engine.forget] it, and what changes its TEID,
// its addresses or its prefix to [Engine.withdraw] it.
func (e *Engine) sharedOf(x handle) (r SharedContext, ok bool) {
	u := e.contexts.at(x)
	s := e.sessions.at(u.session)
	a, node := e.accessPoint(s), e.peers.at(u.user).addr
	if s.version != gtp.V1 || !node.Is4() || e.own4 == 0 || u.filtered || s.first != x || u.next != 0 || !a.shares() {
		return r, false
	}
	r = SharedContext{
		TEID: wire32(u.teid), Node: wire32(number4(node)), NodeTEID: wire32(u.peerTEID),
		MTU: uint32(e.mtuOf(s)), Class: uint32(u.mark) << 2, Left: u.left(), Flags: a.sharedFlags(),
		Up: SharedWay{Rate: u.up.policer}, Down: SharedWay{Rate: u.down.policer},
	}
	if s.has.has(TypeIPv4) {
		r.Flags, r.Address = r.Flags|SharedIPv4, wire32(s.address)
	}
	if s.has.has(TypeIPv6) {
		r.Flags, r.Prefix = r.Flags|SharedIPv6, wire64(s.prefix)
	}
	if u.aggregate {
		r.Aggregate = uint32(s.aggregate)
	}
	return r, int(x) < len(e.shared.Contexts) && int(r.Aggregate) < max(1, len(e.shared.Aggregates))
}

// shares reports whether programs do with packets of an access point all that is to be done.
func (a *access) shares() bool {
	return !a.Apart && !a.EngineOnly && !a.disputed && !a.SequenceNumbers && !a.MarkInner && !a.Uniform
}

func (a *access) sharedFlags() (f uint32) {
	if a.AnyOuterSource {
		f |= SharedAnySource
	}
	if a.ClearECN {
		f |= SharedClearECN
	}
	return f
}

// set writes what describes a context. The record is even.
func (r *SharedContext) set(is *SharedContext) {
	for _, word := range [...]struct {
		to *uint32
		is uint32
	}{
		{&r.TEID, is.TEID}, {&r.Node, is.Node}, {&r.NodeTEID, is.NodeTEID}, {&r.Address, is.Address}, {&r.Flags, is.Flags},
		{&r.MTU, is.MTU}, {&r.Class, is.Class}, {&r.Aggregate, is.Aggregate},
	} {
		atomic.StoreUint32(word.to, word.is)
	}
	atomic.StoreUint64(&r.Prefix, is.Prefix)
	atomic.StoreUint64(&r.Left, is.Left)
	r.Up.Rate.set(is.Up.Rate)
	r.Down.Rate.set(is.Down.Rate)
}

func (p *SharedRate) set(is SharedRate) {
	atomic.StoreUint64(&p.Arrival, is.Arrival)
	atomic.StoreUint64(&p.Cost, is.Cost)
}

// empty has nothing counted in a record that another context may have had before.
func (r *SharedContext) empty(seen uint32) {
	for _, w := range []*SharedWay{&r.Up, &r.Down} {
		atomic.StoreUint64(&w.Packets, 0)
		atomic.StoreUint64(&w.Octets, 0)
		atomic.StoreUint64(&w.Over, 0)
	}
	atomic.StoreUint32(&r.Seen, seen)
}

// wire32 is a number as it is loaded from a packet.
func wire32(n uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return binary.NativeEndian.Uint32(b[:])
}

func wire64(n uint64) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	return binary.NativeEndian.Uint64(b[:])
}

// setDisputed notes which access points have addresses that are those of another network, too: programs find a context
// by its address alone, by whichever device a packet comes.
func (e *Engine) setDisputed() {
	all := make([][]netip.Prefix, len(e.apns))
	for i, a := range e.apns {
		a.disputed, all[i] = false, e.prefixesOf(a)
	}
	for i, a := range e.apns {
		for j, b := range e.apns[:i] {
			if a.VRF != b.VRF && overlap(all[i], all[j]) {
				a.disputed, b.disputed = true, true
			}
		}
	}
}

// prefixesOf are those that terminals of an access point have addresses of, or can get.
func (e *Engine) prefixesOf(a *access) (list []netip.Prefix) {
	if !a.gone {
		list = a.pools()
	}
	for _, l := range a.all() {
		list = append(list, l.leaving(list)...)
	}
	return append(list, a.leftRouted...)
}

func overlap(a, b []netip.Prefix) bool {
	for _, p := range a {
		for _, q := range b {
			if p.Overlaps(q) {
				return true
			}
		}
	}
	return false
}
