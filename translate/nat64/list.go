// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// SessionInfo is one session for people.
type SessionInfo struct {
	Transport state.Transport
	Status    state.Status
	Inside    netip.AddrPort // X',x; of an FTP control connection the client's, not the proxy's
	Peer6     netip.Addr     // Z as the IPv6 host writes it
	Outside   netip.AddrPort // T,t
	Peer      netip.AddrPort // Z,z
	Expires   time.Time
}

// BindingInfo is one entry of a BIB for people.
type BindingInfo struct {
	Transport state.Transport
	Static    bool
	Inside    netip.AddrPort // X',x
	Outside   netip.AddrPort // T,t
}

// Selection chooses among sessions or bindings; what is not set matches all.
type Selection struct {
	Transport *state.Transport
	Inside    netip.Prefix // of X'
	Outside   netip.AddrPort
	Peer      netip.Prefix // of Z; sessions alone
}

// Block is a range of ports that a client has.
type Block struct {
	Client      netip.Prefix
	Pool        netip.Addr
	First, Last uint16
	// Calculated says that the client has it without a lease, by calculation (RFC 7422).
	Calculated bool
}

// Sessions calls f for the sessions that match, until it returns false. It looks at n
// records from the one given and returns where to go on, 0 behind the last: a long list
// is had in parts, between which packets pass.
func (e *Engine) Sessions(sel Selection, from uint32, n int, now time.Time, f func(SessionInfo) bool) (next uint32) {
	at := state.Stamp(now.Sub(e.epoch))
	going := true
	return e.table.WalkSessions(from, n, func(s *state.Session) {
		if !going {
			return
		}
		info := e.describe(s, now, at)
		if sel.matches(info.Transport, info.Inside, info.Outside) && (!sel.Peer.IsValid() || sel.Peer.Contains(info.Peer.Addr())) {
			going = f(info)
		}
	})
}

func (e *Engine) describe(s *state.Session, now time.Time, at uint32) SessionInfo {
	info := SessionInfo{
		Transport: s.Transport, Status: s.Word.Status(),
		Outside: netip.AddrPortFrom(netip.AddrFrom4(s.Pool), s.PoolPort),
		Peer:    netip.AddrPortFrom(netip.AddrFrom4(s.Peer), s.PeerPort),
		Expires: now.Add(time.Duration(int64(e.lifetime(s))-int64(s.Word.Age(at))) * state.StampUnit),
	}
	info.Inside = e.insideOf(s.Client, s.ClientPort, info.Outside)
	if int(s.Prefix) < len(e.prefixes) {
		info.Peer6 = e.prefixes[s.Prefix].prefix.Embed(info.Peer.Addr())
	}
	return info
}

// Bindings does the same for bindings.
func (e *Engine) Bindings(sel Selection, from uint32, n int, f func(BindingInfo) bool) (next uint32) {
	going := true
	return e.table.WalkBindings(from, n, func(b *state.Binding) {
		info := BindingInfo{
			Transport: b.Transport, Static: b.Static,
			Outside: netip.AddrPortFrom(netip.AddrFrom4(b.Pool), b.PoolPort),
		}
		info.Inside = e.insideOf(b.Client, b.ClientPort, info.Outside)
		if going && sel.matches(info.Transport, info.Inside, info.Outside) {
			going = f(info)
		}
	})
}

// Blocks calls f for the blocks of ports that clients hold, until it returns false.
func (e *Engine) Blocks(from uint32, n int, f func(Block) bool) (next uint32) {
	going := true
	var held [maxBlocks]state.Block
	return e.table.WalkSubscribers(from, n, func(s *state.Subscriber) {
		for _, b := range e.table.Blocks(s, held[:0]) {
			pool := netip.AddrFrom4(b.Pool)
			if going = going && f(e.block(e.prefixOf(s.Prefix), pool, int(b.First), int(b.Last), e.calculatedFor(s, b))); !going {
				return
			}
		}
	})
}

// block is a block of ports for people.
func (e *Engine) block(client netip.Prefix, pool netip.Addr, first, last int, calculated bool) Block {
	b := Block{Client: client, Pool: pool, Calculated: calculated}
	b.First, b.Last = e.pool.within(pool, first, last)
	return b
}

func (sel *Selection) matches(t state.Transport, inside, outside netip.AddrPort) bool {
	switch {
	case sel.Transport != nil && *sel.Transport != t:
		return false
	case sel.Inside.IsValid() && !sel.Inside.Contains(inside.Addr()):
		return false
	case sel.Outside.Addr().IsValid() && sel.Outside.Addr() != outside.Addr():
		return false
	}
	return sel.Outside.Port() == 0 || sel.Outside.Port() == outside.Port()
}

// Sizes returns how full the tables are.
func (e *Engine) Sizes() Sizes {
	n := e.table.Counts()
	return Sizes{
		Sessions: n.Sessions, Bindings: n.Bindings, Subscribers: n.Subscribers, Blocks: n.Blocks,
		StoredSYNs: len(e.stored.index), Assemblies: len(e.fragments6.index) + len(e.fragments4.index), Aliases: len(e.aliases.index) + len(e.callers.index),
	}
}

// Feed returns the table's feed of changes, for a copy of the state elsewhere.
func (e *Engine) Feed() *state.Feed { return e.table.Feed() }
