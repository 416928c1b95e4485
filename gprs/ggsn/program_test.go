// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"time"
)

// program carries packets by the records of an engine, as one of a fast path does.
type program struct {
	*Shared
	epoch time.Time
}

// handling is what a program does with a packet.
type handling uint8

const (
	punted  handling = iota // it leaves it to the engine
	carried                 // it passes
	policed                 // it is dropped above the rate
)

// view is what a program reads of a record.
type view struct {
	teid, node, nodeTEID, address, flags, mtu, class, aggregate uint32
	prefix, left                                                uint64
}

// read returns what a record says; false: it is not to be used.
func (r *SharedContext) read() (v view, ok bool) {
	state := atomic.LoadUint32(&r.State)
	v = view{
		atomic.LoadUint32(&r.TEID), atomic.LoadUint32(&r.Node), atomic.LoadUint32(&r.NodeTEID), atomic.LoadUint32(&r.Address),
		atomic.LoadUint32(&r.Flags), atomic.LoadUint32(&r.MTU), atomic.LoadUint32(&r.Class), atomic.LoadUint32(&r.Aggregate),
		atomic.LoadUint64(&r.Prefix), atomic.LoadUint64(&r.Left),
	}
	return v, state&1 != 0 && atomic.LoadUint32(&r.State) == state
}

// up takes a packet of a terminal, from a node.
func (p *program) up(teid uint32, node netip.Addr, ip []byte, now time.Time) (handling, view) {
	n := p.index().find4(p.index().teids, wire32(teid))
	r := &p.Contexts[n]
	v, ok := r.read()
	if !ok || v.teid != wire32(teid) || !node.Is4() || v.node != wire32(number4(node)) && v.flags&SharedAnySource == 0 {
		return punted, v
	}
	if ip[0]>>4 == 4 && (v.flags&SharedIPv4 == 0 || v.address != binary.NativeEndian.Uint32(ip[12:])) ||
		ip[0]>>4 == 6 && (v.flags&SharedIPv6 == 0 || v.prefix != binary.NativeEndian.Uint64(ip[8:])) {
		return punted, v
	}
	did := p.carry(r, &v, &r.Up, func(all *SharedAggregate) *SharedRate { return &all.Up }, len(ip), now)
	if did == carried {
		atomic.StoreUint32(&r.Seen, uint32(now.Sub(p.epoch)/time.Second))
	}
	return did, v
}

// down takes a packet for a terminal.
func (p *program) down(ip []byte, now time.Time) (handling, view) {
	var n uint32
	if ip[0]>>4 == 4 {
		n = p.index().find4(p.index().fours, binary.NativeEndian.Uint32(ip[16:]))
	} else {
		n = p.index().find6(binary.NativeEndian.Uint64(ip[24:]))
	}
	r := &p.Contexts[n]
	v, ok := r.read()
	if !ok {
		return punted, v
	}
	return p.carry(r, &v, &r.Down, func(all *SharedAggregate) *SharedRate { return &all.Down }, len(ip), now), v
}

func (p *program) index() *testIndex { return p.Index.(*testIndex) }

func (x *testIndex) find4(m map[uint32]uint32, k uint32) uint32 {
	x.Lock()
	defer x.Unlock()
	return m[k]
}

func (x *testIndex) find6(k uint64) uint32 {
	x.Lock()
	defer x.Unlock()
	return x.sixes[k]
}

// carry polices and counts a packet.
func (p *program) carry(r *SharedContext, v *view, w *SharedWay, of func(*SharedAggregate) *SharedRate, octets int, now time.Time) handling {
	at := now.Sub(p.epoch)
	if octets > int(v.mtu) || atomic.LoadUint64(&r.Up.Octets)+atomic.LoadUint64(&r.Down.Octets) >= v.left {
		return punted
	}
	var all rateOfTest
	if v.aggregate != 0 {
		all = rateOfTest{of(&p.Aggregates[v.aggregate])}
	}
	if !all.open(at) || !(rateOfTest{&w.Rate}).take(octets, at) {
		atomic.AddUint64(&w.Over, 1)
		return policed
	}
	all.take(octets, at)
	atomic.AddUint64(&w.Packets, 1)
	atomic.AddUint64(&w.Octets, uint64(octets))
	return carried
}

// rateOfTest spends from a rate by what its two words are said to mean; of nil there is none.
type rateOfTest struct{ *SharedRate }

// latest is the latest arrival with which a packet may pass; false: none may.
func (p rateOfTest) latest(cost uint64, now time.Duration) (uint64, bool) {
	one := cost * 1500 >> 16
	return uint64(now) + max(uint64(200*time.Millisecond), 2*one) - one, cost != ^uint64(0)
}

func (p rateOfTest) open(now time.Duration) bool {
	if p.SharedRate == nil {
		return true
	}
	cost := atomic.LoadUint64(&p.Cost)
	latest, ok := p.latest(cost, now)
	return cost == 0 || ok && atomic.LoadUint64(&p.Arrival) <= latest
}

func (p rateOfTest) take(octets int, now time.Duration) bool {
	for p.open(now) {
		if p.SharedRate == nil || atomic.LoadUint64(&p.Cost) == 0 {
			return true
		}
		was := atomic.LoadUint64(&p.Arrival)
		latest, _ := p.latest(atomic.LoadUint64(&p.Cost), now)
		if was <= latest && atomic.CompareAndSwapUint64(&p.Arrival, was, max(was, uint64(now))+atomic.LoadUint64(&p.Cost)*uint64(octets)>>16) {
			return true
		}
	}
	return false
}
