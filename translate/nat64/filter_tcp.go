// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// tcp6 finds or makes the session of a segment from the IPv6 side (RFC 6146 section
// 3.5.2.2, CLOSED for what is made).
func (e *Engine) tcp6(c *call, k *state.Key6, flags uint8, s *state.Session) Reason {
	if e.find6(c, k, s) {
		e.step(c, s, FromIPv6, flags)
		return none
	}
	if !opens(flags) {
		in := state.Inside{Client: k.Client, Port: k.ClientPort, Transport: k.Transport}
		var b state.Binding
		if !e.table.FindBinding6(&in, &b) {
			return NoSession
		}
		return e.unmatched(&b, k.Peer, k.PeerPort, k.Prefix, s)
	}
	if r := e.make6(c, k, state.V6Init, s); r != none {
		return r
	}
	e.simultaneousOpen(c, s)
	return none
}

// simultaneousOpen joins a new SYN of the IPv6 side with a stored one of the IPv4 side, if one waits at
// its T,t: both sides opened at once. The stored one is discarded in silence (RFC 5382
// REQ-4): the IPv4 host sends it again, or answers the other. It has no say in where the
// other is bound: anybody may have sent it.
func (e *Engine) simultaneousOpen(c *call, s *state.Session) {
	key := s.Key4()
	if !e.unstore(&key) {
		return
	}
	e.stats.Dropped[StoredSYNReplaced]++
	if s.Word.Status() == state.V6Init {
		e.table.Step(s, state.Established, s.Word.Flags(), c.at)
	}
}

// tcp4 does so for a segment from the IPv4 side.
func (e *Engine) tcp4(c *call, ip []byte, k *state.Key4, flags uint8, s *state.Session) Reason {
	if e.find4(c, k, s) {
		e.step(c, s, FromIPv4, flags)
		return none
	}
	out := state.Outside{Pool: k.Pool, Port: k.PoolPort, Transport: k.Transport}
	var b state.Binding
	bound := e.table.FindBinding4(&out, &b)
	if opens(flags) {
		return e.open(c, ip, k, &b, bound, s)
	}
	filtered := bound && e.settings.FilterTCP == AddressDependent && !e.allowsPeer(c.at, &b, k.Peer)
	switch {
	case !bound:
		return NoBinding
	case filtered:
		return Filtered
	case e.settings.DropExternalTCP:
		return NoSession
	}
	prefix, ok := e.prefixFor(&b, k.Peer)
	if !ok {
		return NoSession
	}
	return e.unmatched(&b, k.Peer, k.PeerPort, prefix, s)
}

// open judges a SYN from the IPv4 side that belongs to no session.
func (e *Engine) open(c *call, ip []byte, k *state.Key4, b *state.Binding, bound bool, s *state.Session) Reason {
	switch {
	case e.settings.DropExternalTCP && !(bound && e.expects(c.at, b, k.Peer)):
		return ExternalTCP
	case !bound && !e.settings.hasPort(netip.AddrFrom4(k.Pool), state.TCP, k.PoolPort):
		return NoBinding
	case !bound:
		return e.store(c, ip, k, e.accountOf4(k.Pool, k.Peer))
	case e.settings.FilterTCP == AddressDependent && !e.allowsPeer(c.at, b, k.Peer):
		return e.store(c, ip, k, e.accountOfClient(b.Client))
	}
	return e.make4(c, b, k, state.V4Init, s)
}

// expects reports whether a connection from the IPv4 host was announced by an FTP control
// connection (RFC 6384). What waits for it is among the newest: no stranger makes others here.
func (e *Engine) expects(at uint32, b *state.Binding, peer [4]byte) bool {
	return e.table.HasPeer(b, peer, shortChain, func(s *state.Session) bool {
		return s.Word.Flags()&state.Expected != 0 && e.live(at, s)
	})
}

// unmatched lets a segment without a session pass by its binding, if it may; no state
// comes of it.
func (e *Engine) unmatched(b *state.Binding, peer [4]byte, port uint16, prefix uint8, s *state.Session) Reason {
	if e.settings.DropUnmatchedTCP {
		return NoSession
	}
	if r := e.judgeClient(b); r != none {
		return r
	}
	*s = state.Session{
		Client: b.Client, ClientPort: b.ClientPort, Pool: b.Pool, PoolPort: b.PoolPort,
		Peer: peer, PeerPort: port, Prefix: prefix, Transport: state.TCP,
	}
	return none
}

// step moves a session on. A fast path may have done so at the same moment: then the
// segment is judged by what that made of it.
func (e *Engine) step(c *call, s *state.Session, from Side, flags uint8) {
	for range maxRetries {
		change := Step(s.Word.Status(), from, flags)
		if change.Next == state.V4Init && e.settings.DropExternalTCP {
			change = Change{Next: s.Word.Status()}
		}
		expected := s.Word.Flags()&state.Expected != 0
		if change.Next == s.Word.Status() && !expected {
			if change.Refresh {
				e.table.Touch(s, c.at)
			}
			return
		}
		stamp := s.Word.Stamp()
		if change.Refresh || expected {
			stamp = c.at
		}
		if e.table.Step(s, change.Next, s.Word.Flags()&^state.Expected, stamp) || !e.table.View(s.Index, s) {
			return
		}
	}
}

// hasPort reports whether a port is of the pool.
func (s *Settings) hasPort(a netip.Addr, transport state.Transport, port uint16) bool {
	at := netip.AddrPortFrom(a, port)
	return slices.ContainsFunc(s.Pool4, func(r Range) bool { return r.Has(transport, at) })
}
