// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// maxRetries bounds how often something is begun again because a fast path came between.
const maxRetries = 4

// find6 finds the live session of an IPv6 packet. One that is past its lifetime ends here,
// as if it had ended in time.
func (e *Engine) find6(c *call, k *state.Key6, s *state.Session) bool {
	return e.table.Find6(k, s) && e.usable(c, s)
}

// find4 is the counterpart for IPv4 packets.
func (e *Engine) find4(c *call, k *state.Key4, s *state.Session) bool {
	return e.table.Find4(k, s) && e.usable(c, s)
}

// usable reports whether a session lives, and ends it otherwise. An established connection
// is put on probation instead.
func (e *Engine) usable(c *call, s *state.Session) bool {
	return e.live(c.at, s) || e.expired(c, s)
}

// live reports whether a session is within its lifetime.
func (e *Engine) live(at uint32, s *state.Session) bool {
	return s.Word.Age(at) < e.lifetime(s)
}

// lifetime returns a session's, in units of a stamp.
func (e *Engine) lifetime(s *state.Session) uint32 {
	return lifetimeOf(&e.lifetimes, e.settings.Timers.Expected, s)
}

// lifetimeOf is lifetime by the given timers.
func lifetimeOf(lifetimes *lifetimes, expected time.Duration, s *state.Session) uint32 {
	if s.Word.Flags()&state.Expected != 0 {
		return state.Units(expected)
	}
	if s.Transport >= state.Transports || s.Word.Status() >= state.Statuses {
		return 0
	}
	return lifetimes[s.Transport][s.Word.Status()]
}

// make6 makes the session of an IPv6 packet, and its binding if there is none.
func (e *Engine) make6(c *call, k *state.Key6, status state.Status, s *state.Session) Reason {
	if e.prefixes[k.Prefix].out {
		return NotPool6 // any more; its number may soon be another's
	}
	in := state.Inside{Client: k.Client, Port: k.ClientPort, Transport: k.Transport}
	for range maxRetries {
		var b state.Binding
		if r := e.bind(c, in, &b); r != none {
			return r
		}
		n := state.Fresh{Peer: k.Peer, PeerPort: k.PeerPort, Prefix: k.Prefix, Status: status, Stamp: c.at}
		r, again := e.add(c, &b, n, s)
		if !again {
			return r
		}
	}
	return Busy
}

// make4 makes the session of an IPv4 packet that met a binding. The prefix of pool6 is
// the one that the client used last, or the first, of those that are in use.
func (e *Engine) make4(c *call, b *state.Binding, k *state.Key4, status state.Status, s *state.Session) Reason {
	if r := e.judgeClient(b); r != none {
		return r
	}
	prefix, ok := e.prefixFor(b, k.Peer)
	if !ok {
		return Reason(translate.ReasonNonGlobal)
	}
	n := state.Fresh{Peer: k.Peer, PeerPort: k.PeerPort, Prefix: prefix, Status: status, Stamp: c.at, FromIPv4: true}
	r, again := e.add(c, b, n, s)
	if again {
		return NoBinding // it ended at this moment
	}
	return r
}

// prefixFor chooses the prefix of pool6 that stands for an IPv4 host which comes first.
func (e *Engine) prefixFor(b *state.Binding, peer [4]byte) (uint8, bool) {
	a := netip.AddrFrom4(peer)
	chosen := -1
	e.table.WalkChain(b, 1, func(s *state.Session) bool {
		chosen = int(s.Prefix)
		return false
	})
	if chosen >= 0 && chosen < len(e.prefixes) && !e.prefixes[chosen].out && e.mayEmbed(chosen, a) {
		return uint8(chosen), true
	}
	for i := range e.prefixes {
		if !e.prefixes[i].out && e.mayEmbed(i, a) {
			return uint8(i), true
		}
	}
	return 0, false
}

// add makes a session of a binding. again asks to begin again.
func (e *Engine) add(c *call, b *state.Binding, n state.Fresh, s *state.Session) (r Reason, again bool) {
	if e.pool.has(netip.AddrFrom4(n.Peer)) {
		n.Flags = state.Slow // another client: packets are turned round here
	}
	if e.detouring() && n.Status == state.V4Init && b.ClientPort == ftpControl {
		n.Flags |= state.Detoured
	}
	for range maxRetries {
		switch outcome := e.table.NewSession(b, n, s); outcome {
		case state.Made:
			e.stats.SessionsMade++
			e.remember(c.at, s)
			e.sessionEvent(c, SessionStart, s)
			return none, false
		case state.Found, state.OtherPrefix:
			// What has another prefix is the same session on the IPv4 side: there is
			// one for both, or the way back would be a guess.
			if e.usable(c, s) {
				e.table.Touch(s, c.at)
				return none, false
			}
		case state.Gone:
			return Busy, true
		default:
			e.table.Reap(b)
			return e.noSession(c, b, outcome, n.FromIPv4), false
		}
	}
	return Busy, false
}

// noSession names what a session was refused for. That a client has reached its limit is
// reported only where it has, not where IPv4 hosts have reached their part of it.
func (e *Engine) noSession(c *call, b *state.Binding, outcome state.Outcome, fromIPv4 bool) Reason {
	switch outcome {
	case state.SessionLimit:
		if !fromIPv4 {
			e.reach(c, b.Client, SessionLimit)
		}
		return SessionLimit
	case state.TableFull:
		return SessionsFull
	}
	return Busy
}

// shortChain is how many sessions of a binding filtering looks at, the newest: a fast path may
// have made them since the sweep came by, and no one's chain may be so long that it holds up
// others.
const shortChain = 256

// allowsPeer reports whether a binding has a session with the IPv4 host, of any port (RFC 6146
// section 3.5.1).
func (e *Engine) allowsPeer(at uint32, b *state.Binding, peer [4]byte) bool {
	live := func(s *state.Session) bool { return e.live(at, s) }
	return e.met.has(e.table, b, peer, live) || e.table.HasPeer(b, peer, shortChain, live)
}

// remember takes a session in where packets are judged by who has sessions.
func (e *Engine) remember(at uint32, s *state.Session) {
	e.peers.add(s.Pool, s.Peer)
	e.met.add(e.table, s, at)
}

// end ends a session and, if it was the last one, its binding.
func (e *Engine) end(c *call, s *state.Session) bool {
	apart := s.Transport != state.ICMP && (s.PoolPort < 1024 || !e.table.InBlock(s))
	if e.table.End(s) != state.Made {
		return false
	}
	e.stats.SessionsEnded++
	e.sessionEvent(c, SessionStop, s)
	if apart {
		e.unbound(c, s)
	}
	return true
}

// unbound reports that a port outside of blocks is free again. A block on an address that was
// taken out of the pool has been reported already.
func (e *Engine) unbound(c *call, s *state.Session) {
	if _, named := e.pool.order[netip.AddrFrom4(s.Pool)]; !named && e.pool.order != nil && s.PoolPort >= 1024 {
		return
	}
	var b state.Binding
	out := state.Outside{Pool: s.Pool, Port: s.PoolPort, Transport: s.Transport}
	if !e.table.FindBinding4(&out, &b) {
		e.portEvent(c, BlockStop, s.Client, s.Pool, s.PoolPort)
	}
}

func (e *Engine) sessionEvent(c *call, kind EventKind, s *state.Session) {
	if !e.settings.SessionEvents {
		return
	}
	pool := netip.AddrFrom4(s.Pool)
	inside := e.insideOf(s.Client, s.ClientPort, netip.AddrPortFrom(pool, s.PoolPort))
	c.out.Events = append(c.out.Events, Event{
		Kind: kind, Time: c.now, Client: e.prefixOf(inside.Addr().As16()),
		Pool: pool, First: s.PoolPort, Last: s.PoolPort, Transport: s.Transport,
		Inside: inside,
		Peer:   netip.AddrPortFrom(netip.AddrFrom4(s.Peer), s.PeerPort),
	})
}
