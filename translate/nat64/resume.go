// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"cmp"
	"io"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// Earlier is what an engine before this one has left beside its table, and what the new one
// needs of that table.
type Earlier struct {
	// Prefixes are pool6 as the sessions number it.
	Prefixes []translate.Prefix
	// Static are the bindings that [Engine.AddStatic] is to find room for.
	Static []Static
	// Now is when sessions are over, or not.
	Now time.Time
}

// Ended is how many sessions of an earlier engine do not go on.
type Ended struct {
	Expired   int // they were over
	Displaced int // they had what the settings need
}

// Resume is [New] over the table of an earlier engine. What the new settings, and the static
// bindings that are to come, need wins over sessions that have it: they end. All others
// go on, also those of clients, prefixes and addresses that are no longer named.
func Resume(s Settings, left Earlier, table *state.Table, epoch time.Time, random io.Reader) (*Engine, Ended, error) {
	var ended Ended
	if err := s.Check(); err != nil {
		return nil, ended, err
	}
	e, err := newEngine(table, epoch, random)
	if err != nil {
		return nil, ended, err
	}
	addresses, err := poolAddresses(s.Pool4)
	if err != nil {
		return nil, ended, err
	}
	for _, p := range left.Prefixes {
		e.prefixes = append(e.prefixes, slot6{prefix: p, out: true})
	}
	had := table.Counts().Sessions
	e.endOver(&s, state.Stamp(left.Now.Sub(epoch)))
	ended.Expired = had - table.Counts().Sessions
	e.endPrefixes(s.Translate.Prefixes)
	e.endAddresses(addresses)
	e.endInWay(left.Static)
	ended.Displaced = had - ended.Expired - table.Counts().Sessions
	return e, ended, e.start(s, random)
}

// endOver ends the sessions whose time is over, so that they hold nothing.
func (e *Engine) endOver(s *Settings, at uint32) {
	lifetimes := s.Lifetimes()
	e.table.WalkSessions(0, math.MaxInt32, func(one *state.Session) {
		life := lifetimeOf(&lifetimes, s.Timers.Expected, one)
		if one.Word.Status() == state.Established && one.Word.Flags()&state.Expected == 0 {
			life += lifetimes[state.TCP][state.Trans] // it is probed first
		}
		if one.Word.Age(at) >= life {
			e.table.End(one)
		}
	})
}

// endPrefixes ends the sessions of prefixes that are no longer wanted until there are numbers
// for all that are: those of the fewest sessions first.
func (e *Engine) endPrefixes(wanted []translate.Prefix) {
	sessions := make([]int, len(e.prefixes))
	e.table.WalkSessions(0, math.MaxInt32, func(s *state.Session) {
		if int(s.Prefix) < len(sessions) {
			sessions[s.Prefix]++
		} else {
			e.table.End(s) // nobody knows its prefix
		}
	})
	isWanted := func(p netip.Prefix) bool {
		return slices.ContainsFunc(wanted, func(w translate.Prefix) bool { return w.Prefix() == p })
	}
	var old []int
	for i := range e.prefixes {
		if !isWanted(e.prefixes[i].prefix.Prefix()) {
			old = append(old, i)
		}
	}
	slices.SortStableFunc(old, func(a, b int) int { return cmp.Compare(sessions[a], sessions[b]) })
	over := old[:max(0, min(len(old)+len(wanted)-MaxPrefixes, len(old)))]
	e.table.WalkSessions(0, math.MaxInt32, func(s *state.Session) {
		if slices.Contains(over, int(s.Prefix)) {
			e.table.End(s)
		}
	})
}

// endAddresses ends what is bound to addresses that are no longer in the pool until there is
// room for all that are: those of the fewest bindings first.
func (e *Engine) endAddresses(wanted []state.PoolAddress) {
	bindings := make(map[[4]byte]int)
	e.table.WalkSubscribers(0, math.MaxInt32, func(s *state.Subscriber) { bindings[s.Pool] += 0 })
	e.table.WalkBindings(0, math.MaxInt32, func(b *state.Binding) { bindings[b.Pool]++ })
	for _, a := range wanted {
		delete(bindings, a.Address)
	}
	var old [][4]byte
	for a := range bindings {
		old = append(old, a)
	}
	slices.SortFunc(old, func(a, b [4]byte) int {
		return cmp.Or(cmp.Compare(bindings[a], bindings[b]), slices.Compare(a[:], b[:]))
	})
	over := make(map[[4]byte]bool)
	for _, a := range old[:max(0, min(len(old)+len(wanted)-e.table.Sizes().Addresses, len(old)))] {
		over[a] = true
	}
	if len(over) == 0 {
		return
	}
	e.table.WalkBindings(0, math.MaxInt32, func(b *state.Binding) {
		if over[b.Pool] {
			e.table.EndBinding(b)
		}
	})
	e.table.WalkSubscribers(0, math.MaxInt32, func(s *state.Subscriber) {
		if over[s.Pool] {
			e.table.EndSubscriber(s)
		}
	})
}

// endInWay ends the bindings that have one side of a static one, and so many others that
// there is room for all of these.
func (e *Engine) endInWay(static []Static) {
	missing := 0
	for _, s := range static {
		var b state.Binding
		in, out := s.sides()
		if e.table.FindBinding6(&in, &b) && b.Outside() != out {
			e.table.EndBinding(&b)
		}
		switch {
		case !e.table.FindBinding4(&out, &b):
			missing++
		case b.Inside() != in:
			e.table.EndBinding(&b)
			missing++
		}
	}
	room := func() int { return e.table.Sizes().Sessions - e.table.Counts().Bindings }
	if room() >= missing {
		return
	}
	e.table.WalkBindings(0, math.MaxInt32, func(b *state.Binding) {
		if !b.Static && room() < missing {
			e.table.EndBinding(b)
		}
	})
}
