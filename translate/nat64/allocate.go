// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// bind finds the binding of X',x or makes it (RFC 6146 sections 3.5.1.1, 3.5.2.3, 3.5.3):
// T is that of the client's other bindings; t is of the same class, system port or not,
// and for UDP as even or odd as x, if there is one, and otherwise random (RFC 6056).
func (e *Engine) bind(c *call, in state.Inside, b *state.Binding) Reason {
	if e.table.FindBinding6(&in, b) {
		return e.judgeClient(b)
	}
	var s state.Subscriber
	if r := e.subscriber(c, in.Client, in.Transport, &s); r != none {
		return r
	}
	wish := state.Wish{Port: in.Port, System: in.Port < 1024 && in.Transport != state.ICMP, Parity: in.Transport == state.UDP}
	// A fast path may take the last port between two tries, and a block may be at hand
	// without one of the right kind.
	for range maxBlocks + 1 {
		switch outcome := e.table.NewBinding(&s, in, wish, e.random.Uint64(), b); outcome {
		case state.Made:
			e.stats.BindingsMade++
			e.bound(c, &s, b)
			return none
		case state.Found:
			return none
		case state.NoPort:
			if r := e.lease(c, &s, in.Transport); r != none {
				return r
			}
		case state.TableFull:
			return BindingsFull
		default:
			return Busy
		}
	}
	return NoPort
}

// bindOn is bind on a given address of the pool, that of a static binding. Where the client's
// own is another, the port is of no block, and reported by itself.
func (e *Engine) bindOn(c *call, in state.Inside, pool [4]byte, b *state.Binding) Reason {
	if e.table.FindBinding6(&in, b) {
		return e.judgeClient(b)
	}
	var s state.Subscriber
	if r := e.subscriber(c, in.Client, in.Transport, &s); r != none {
		return r
	}
	if s.Pool == pool {
		return e.bind(c, in, b)
	}
	wish := state.Wish{On: pool}
	if d := e.settings.Deterministic; d != nil {
		wish.First = uint32(d.dynamicFirst(e.blockPorts()))
	}
	switch outcome := e.table.NewBinding(&s, in, wish, e.random.Uint64(), b); outcome {
	case state.Made:
		e.stats.BindingsMade++
		e.portEvent(c, BlockStart, s.Prefix, b.Pool, b.PoolPort)
		return none
	case state.Found:
		return none
	case state.NoPort:
		return NoPort
	case state.TableFull:
		return BindingsFull
	}
	return Busy
}

// lease gives a client another block of ports.
func (e *Engine) lease(c *call, s *state.Subscriber, transport state.Transport) Reason {
	var block state.Block
	if place, ok := e.deterministicPlace(s.Prefix); ok {
		for port := place.first; port <= place.last; port += e.blockPorts() {
			if e.table.LeaseAt(s, uint16(port), &block) == state.Made {
				e.started(c, s, block)
				return none
			}
		}
	}
	switch e.leaseAny(s, transport, &block) {
	case state.Made:
		e.started(c, s, block)
		return none
	case state.BlockLimit:
		e.reach(c, s.Prefix, NoPort)
		return NoPort
	case state.NoBlock:
		e.reach(c, s.Prefix, NoAddress)
		return NoAddress
	}
	return Busy
}

// leaseAny leases a random block, or, where ports are calculated, one of those that are
// no one's by calculation. Of these a client gets ClientBlocks beside what is its own.
func (e *Engine) leaseAny(s *state.Subscriber, transport state.Transport, b *state.Block) state.Outcome {
	limit := e.settings.Limits.ClientBlocks
	d := e.settings.Deterministic
	if d == nil {
		return e.table.Lease(s, transport, limit, e.random.Uint64(), b)
	}
	if e.leasedTo(s) >= limit || int(s.Blocks) >= maxBlocks {
		return state.BlockLimit
	}
	for port := d.dynamicFirst(e.blockPorts()); port+e.blockPorts() <= 65536; port += e.blockPorts() {
		switch outcome := e.table.LeaseAt(s, uint16(port), b); outcome {
		case state.Taken, state.Found:
		default:
			return outcome
		}
	}
	return state.NoBlock
}

// leasedTo returns how many blocks a client holds that are not its own by calculation.
func (e *Engine) leasedTo(s *state.Subscriber) (n int) {
	own, ok := e.deterministicPlace(s.Prefix)
	var held [maxBlocks]state.Block
	for _, b := range e.table.Blocks(s, held[:0]) {
		if !ok || own.address != netip.AddrFrom4(b.Pool) || int(b.First) < own.first || int(b.First) > own.last {
			n++
		}
	}
	return n
}

// bound reports a binding that has a port outside of its client's blocks.
func (e *Engine) bound(c *call, s *state.Subscriber, b *state.Binding) {
	if b.PoolPort < 1024 && b.Transport != state.ICMP {
		e.portEvent(c, BlockStart, s.Prefix, b.Pool, b.PoolPort)
	}
}

// blockPorts is how many ports a block has.
func (e *Engine) blockPorts() int { return e.table.Sizes().BlockWords * state.BlockPorts }
