// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"math"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// subscriber finds the client that an address belongs to, or makes it, with the pool
// address that all its bindings have (RFC 4787 REQ-2). The host itself must be of a client's
// network: one record may be of hosts in and outside of it.
func (e *Engine) subscriber(c *call, client [16]byte, transport state.Transport, s *state.Subscriber) Reason {
	owner := e.ownerOf(client)
	if !e.clients.has(netip.AddrFrom16(owner)) {
		return NotClient
	}
	if e.table.FindSubscriber(&owner, s) {
		if _, ok := e.pool.order[netip.AddrFrom4(s.Pool)]; ok {
			return none
		}
		return e.rehome(c, owner, transport, s)
	}
	pool, ok := e.chooseAddress(c, owner, transport)
	if !ok {
		e.reach(c, owner, NoAddress)
		return NoAddress
	}
	outcome := e.table.MakeSubscriber(&owner, pool.As4(), uint32(e.settings.Limits.ClientSessions), s)
	if !outcome.OK() {
		return SubscribersFull
	}
	e.guard(s) // before it has ports that a fast path could take
	return none
}

// judgeClient says whether a binding may have new sessions: that of a host which is no client
// any more may not, unless the operator has named the host in a static one.
func (e *Engine) judgeClient(b *state.Binding) Reason {
	if b.Static || e.clients.has(netip.AddrFrom16(e.ownerOf(b.Client))) {
		return none
	}
	return NotClient
}

// guard keeps a fast path, which knows records alone, from making anything for a client of
// which not all hosts may use the translator.
func (e *Engine) guard(s *state.Subscriber) {
	e.table.SetGuarded(s, !e.clients.covers(e.prefixOf(s.Prefix)))
}

// rehome gives a client another address when its own is no longer in the pool. What it has
// there goes on until it ends.
func (e *Engine) rehome(c *call, owner [16]byte, transport state.Transport, s *state.Subscriber) Reason {
	pool, ok := e.chooseAddress(c, owner, transport)
	if !ok {
		return NoAddress
	}
	var blocks [maxBlocks]state.Block
	held := e.table.Blocks(s, blocks[:0])
	if e.table.Rehome(s, pool.As4()) != state.Made {
		return Busy
	}
	e.ended(c, s, held)
	return none
}

// ended reports blocks that a client gave back.
func (e *Engine) ended(c *call, s *state.Subscriber, held []state.Block) {
	e.exhausted = [state.Transports]time.Duration{}
	for _, b := range held {
		e.stats.BlocksEnded++
		if e.unlogged[b] {
			delete(e.unlogged, b)
			continue
		}
		e.blockEvent(c, BlockStop, s, b)
	}
}

// chooseAddress returns the pool address for a new client: by calculation, or any
// one with a free block, from a random one on.
func (e *Engine) chooseAddress(c *call, client [16]byte, transport state.Transport) (netip.Addr, bool) {
	if d := e.settings.Deterministic; d != nil {
		if place, ok := e.deterministicPlace(client); ok {
			return place.address, true
		}
	}
	if c.mono < e.exhausted[transport] {
		return netip.Addr{}, false
	}
	n, first := len(e.pool.addresses), uint32(0)
	if d := e.settings.Deterministic; d != nil {
		first = uint32(d.dynamicFirst(e.blockPorts())) // the others are calculated for somebody
	}
	at := e.random.IntN(n)
	for range min(n, maxTries) {
		a := e.pool.addresses[at]
		if e.table.HasBlock(a.As4(), transport, first) {
			return a, true
		}
		if at++; at == n {
			at = 0
		}
	}
	e.exhausted[transport] = c.mono + lookAgain
	return netip.Addr{}, false
}

// maxTries bounds the addresses looked at for one packet. A pool without a free block is met
// by every packet of a new client: for a moment none of them looks again.
const (
	maxTries  = 64
	lookAgain = 100 * time.Millisecond
)

// prefixOf returns the prefix that makes a client of an address.
func (e *Engine) prefixOf(client [16]byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16(client), e.table.Sizes().SubscriberLength).Masked()
}

// limited remembers which clients were told to have reached a limit, by a hash of the client
// in a table that is emptied each minute: the operator hears of each once, and of no more than
// the table has places for.
type limited struct {
	seen  [256]bool
	until time.Duration
}

// reach reports that a client has reached a limit.
func (e *Engine) reach(c *call, client [16]byte, why Reason) {
	if c.mono >= e.limited.until {
		clear(e.limited.seen[:])
		e.limited.until = c.mono + time.Minute
	}
	prefix := e.prefixOf(client)
	place := &e.limited.seen[mix(e.peers.seed, prefix.Addr().As16())%256]
	if *place {
		return
	}
	*place = true
	c.out.Events = append(c.out.Events, Event{Kind: LimitReached, Time: c.now, Client: prefix, Reason: why})
}

// started reports a block that a client got.
func (e *Engine) started(c *call, s *state.Subscriber, b state.Block) {
	e.stats.BlocksLeased++
	if e.calculatedFor(s, b) {
		e.unlogged[b] = true // RFC 7422: what can be calculated is not logged
		return
	}
	e.blockEvent(c, BlockStart, s, b)
}

// logHeld reports the blocks of a client that were its own by calculation, and are no more.
func (e *Engine) logHeld(c *call, s *state.Subscriber) {
	if len(e.unlogged) == 0 {
		return
	}
	var blocks [maxBlocks]state.Block
	for _, b := range e.table.Blocks(s, blocks[:0]) {
		if e.unlogged[b] && !e.calculatedFor(s, b) {
			delete(e.unlogged, b)
			e.blockEvent(c, BlockStart, s, b)
		}
	}
}

// adoptLog takes the blocks that an earlier engine has left for such as it did not log: by which
// calculation is not known. What it did log is logged again.
func (e *Engine) adoptLog() {
	var blocks [maxBlocks]state.Block
	e.table.WalkSubscribers(0, math.MaxInt32, func(s *state.Subscriber) {
		for _, b := range e.table.Blocks(s, blocks[:0]) {
			e.unlogged[b] = true
		}
	})
}

func (e *Engine) blockEvent(c *call, kind EventKind, s *state.Subscriber, b state.Block) {
	pool := netip.AddrFrom4(b.Pool)
	first, last := e.pool.within(pool, int(b.First), int(b.Last))
	c.out.Events = append(c.out.Events, Event{
		Kind: kind, Time: c.now, Client: e.prefixOf(s.Prefix), Pool: pool, First: first, Last: last,
	})
}

// portEvent reports one port that is not of a block.
func (e *Engine) portEvent(c *call, kind EventKind, client [16]byte, pool [4]byte, port uint16) {
	c.out.Events = append(c.out.Events, Event{
		Kind: kind, Time: c.now, Client: e.prefixOf(client), Pool: netip.AddrFrom4(pool), First: port, Last: port,
	})
}

// endIdle ends a client that has had no bindings for the time of the quarantine, and so
// lets others have its address and its ports (RFC 6888 REQ-8).
func (e *Engine) endIdle(c *call, s *state.Subscriber) {
	switch {
	case s.Bindings != 0:
		if s.IdleSince != 0 {
			e.table.SetIdle(s, 0)
		}
	case s.IdleSince == 0:
		e.table.SetIdle(s, max(c.at, 1))
	case c.at-s.IdleSince >= state.Units(e.settings.Timers.Quarantine):
		var blocks [maxBlocks]state.Block
		held := e.table.Blocks(s, blocks[:0])
		if e.table.EndSubscriber(s) == state.Made {
			e.ended(c, s, held)
		}
	}
}
