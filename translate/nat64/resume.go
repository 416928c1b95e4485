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
	// Tell is given the events of what ends, some at a time, so that there may be any number;
	// nil: no one wants to know.
	Tell func([]Event)
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
	e.settings.SessionEvents = s.SessionEvents
	r := resuming{Engine: e, tell: left.Tell}
	r.call = e.begin(translate.Path{}, left.Now, &r.out)
	had := table.Counts().Sessions
	r.endOver(&s)
	ended.Expired = had - table.Counts().Sessions
	r.endImpossible()
	r.endPrefixes(s.Translate.Prefixes)
	r.endAddresses(addresses)
	r.endInWay(left.Static)
	ended.Displaced = had - ended.Expired - table.Counts().Sessions
	return e, ended, e.start(s, random)
}

// resuming is an engine that looks through what an earlier one has left.
type resuming struct {
	*Engine
	call call
	out  Out
	tell func([]Event)
}

// said gives events away.
func (r *resuming) said() {
	if r.tell != nil && len(r.out.Events) > 0 {
		r.tell(r.out.Events)
	}
	r.out.Reset()
}

// end ends a session.
func (r *resuming) end(s *state.Session) {
	r.Engine.end(&r.call, s)
	r.said()
}

// endBinding ends a binding with all its sessions.
func (r *resuming) endBinding(b *state.Binding) {
	r.Engine.endBinding(&r.call, b)
	r.said()
}

// endOver ends the sessions whose time is over, so that they hold nothing.
func (r *resuming) endOver(s *Settings) {
	lifetimes := s.Lifetimes()
	r.table.WalkSessions(0, math.MaxInt32, func(one *state.Session) {
		life := lifetimeOf(&lifetimes, s.Timers.Expected, one)
		if one.Word.Status() == state.Established && one.Word.Flags()&state.Expected == 0 {
			life += lifetimes[state.TCP][state.Trans] // it is probed first
		}
		if one.Word.Age(r.call.at) >= life {
			r.end(one)
		}
	})
}

// endImpossible ends what is bound to addresses that no pool can have, of memory that was
// damaged: it would be led here.
func (r *resuming) endImpossible() {
	r.table.WalkBindings(0, math.MaxInt32, func(b *state.Binding) {
		if !translate.Forwarded(netip.AddrFrom4(b.Pool)) {
			r.endBinding(b)
		}
	})
}

// endPrefixes ends the sessions of prefixes that are no longer wanted until there are numbers
// for all that are: those of the fewest sessions first.
func (r *resuming) endPrefixes(wanted []translate.Prefix) {
	sessions := make([]int, len(r.prefixes))
	r.table.WalkSessions(0, math.MaxInt32, func(s *state.Session) {
		if int(s.Prefix) < len(sessions) {
			sessions[s.Prefix]++
		} else {
			r.end(s) // no one knows its prefix
		}
	})
	isWanted := func(p netip.Prefix) bool {
		return slices.ContainsFunc(wanted, func(w translate.Prefix) bool { return w.Prefix() == p })
	}
	var old []int
	for i := range r.prefixes {
		if !isWanted(r.prefixes[i].prefix.Prefix()) {
			old = append(old, i)
		}
	}
	slices.SortStableFunc(old, func(a, b int) int { return cmp.Compare(sessions[a], sessions[b]) })
	over := old[:max(0, min(len(old)+len(wanted)-MaxPrefixes, len(old)))]
	r.table.WalkSessions(0, math.MaxInt32, func(s *state.Session) {
		if slices.Contains(over, int(s.Prefix)) {
			r.end(s)
		}
	})
}

// endAddresses ends what is bound to addresses that are no longer in the pool until there is
// room for all that are: those of the fewest bindings first.
func (r *resuming) endAddresses(wanted []state.PoolAddress) {
	bindings := make(map[[4]byte]int)
	r.table.WalkSubscribers(0, math.MaxInt32, func(s *state.Subscriber) { bindings[s.Pool] += 0 })
	r.table.WalkBindings(0, math.MaxInt32, func(b *state.Binding) { bindings[b.Pool]++ })
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
	for _, a := range old[:max(0, min(len(old)+len(wanted)-r.table.Sizes().Addresses, len(old)))] {
		over[a] = true
	}
	if len(over) == 0 {
		return
	}
	r.table.WalkBindings(0, math.MaxInt32, func(b *state.Binding) {
		if over[b.Pool] {
			r.endBinding(b)
		}
	})
	r.table.WalkSubscribers(0, math.MaxInt32, func(s *state.Subscriber) {
		if over[s.Pool] {
			held := r.table.Blocks(s, nil)
			if r.table.EndSubscriber(s) == state.Made {
				r.ended(&r.call, s, held)
				r.said()
			}
		}
	})
}

// endInWay ends the bindings that have one side of a static one, and so many others that
// there is room for all of these.
func (r *resuming) endInWay(static []Static) {
	missing := 0
	for _, s := range static {
		var b state.Binding
		in, out := s.sides()
		if r.table.FindBinding6(&in, &b) && b.Outside() != out {
			r.endBinding(&b)
		}
		switch {
		case !r.table.FindBinding4(&out, &b):
			missing++
		case b.Inside() != in:
			r.endBinding(&b)
			missing++
		}
	}
	room := func() int { return r.table.Sizes().Sessions - r.table.Counts().Bindings }
	if room() >= missing {
		return
	}
	r.table.WalkBindings(0, math.MaxInt32, func(b *state.Binding) {
		if !b.Static && room() < missing {
			r.endBinding(b)
		}
	})
}
