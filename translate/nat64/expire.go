// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"time"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// A round through the whole table takes sweepRound, in slices of equal size: what has
// ended is gone within that time, and no slice holds packets up for long.
const (
	sweepRound = 5 * time.Second
	// sweepEvery is the least time between two slices.
	sweepEvery = 5 * time.Millisecond
)

// sweep is how far the rounds through sessions, bindings and clients have come.
type sweep struct {
	next                         time.Duration // when the next slice is due
	session, binding, subscriber uint32        // where it begins
}

// Tick ends what is over: sessions, clients without sessions, SYNs and fragments that
// waited in vain. What one call does is bounded; Next may be due at once.
func (e *Engine) Tick(now time.Time, out *Out) {
	c := e.begin(translate.Path{}, now, out)
	e.expireStored(&c)
	e.fragments6.expire(c.mono)
	e.fragments4.expire(c.mono)
	e.expireAliases(&c)
	if c.mono < e.sweep.next {
		return
	}
	n := e.table.Sizes()
	every := sweepRound * time.Duration(e.settings.Limits.SweepSlice) / time.Duration(n.Sessions)
	every = min(max(every, sweepEvery), sweepRound)
	slice := func(records int) int { return int(int64(records)*int64(every)/int64(sweepRound)) + 1 }
	e.sweep.session = e.table.WalkSessions(e.sweep.session, slice(n.Sessions), func(s *state.Session) {
		if e.usable(&c, s) {
			e.remember(c.at, s)
		}
	})
	if e.sweep.session == 0 {
		e.peers.round()
	}
	e.sweep.binding = e.table.WalkBindings(e.sweep.binding, slice(n.Sessions), func(b *state.Binding) { e.reap(&c, b) })
	e.sweep.subscriber = e.table.WalkSubscribers(e.sweep.subscriber, slice(n.Subscribers), func(s *state.Subscriber) {
		e.logHeld(&c, s)
		e.endIdle(&c, s)
	})
	// A slice that comes late does not let the round take longer for good: the next
	// one is due by the clock, but never more than one round is made up for.
	e.sweep.next = max(e.sweep.next+every, c.mono-sweepRound)
}

// Next returns when Tick has something to do.
func (e *Engine) Next() time.Time {
	at := e.sweep.next
	if t, ok := e.stored.next(); ok {
		at = min(at, t)
	}
	for _, f := range []*assemblies{&e.fragments6, &e.fragments4} {
		if t, ok := f.next(); ok {
			at = min(at, t)
		}
	}
	return e.epoch.Add(at)
}

// expired handles a session that is past its lifetime; true if it goes on. An established
// connection is probed, and put on probation from the moment at which it expired.
func (e *Engine) expired(c *call, s *state.Session) bool {
	trans := e.lifetimes[state.TCP][state.Trans]
	expected := s.Word.Flags()&state.Expected != 0
	if s.Word.Status() != state.Established || expected || s.Word.Age(c.at) >= e.lifetime(s)+trans {
		e.end(c, s)
		return false
	}
	if !e.table.Step(s, state.Trans, s.Word.Flags(), s.Word.Stamp()+e.lifetime(s)) {
		return e.table.View(s.Index, s) && e.live(c.at, s) // a packet came at this moment
	}
	e.probe(c, s)
	return true
}

// reap ends a binding that was left without a session: its maker found no room for one.
// The program that makes one right now has it end under its hands once, and begins again;
// so bindings younger than a round are hardly ever met.
func (e *Engine) reap(c *call, b *state.Binding) {
	if !b.Static && !e.table.HasSessions(b) {
		e.table.Reap(b)
	}
}
