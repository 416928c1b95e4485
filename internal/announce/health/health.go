// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package health decides when the prefixes of an instance are announced: from
// the results of its checks, from what its operator asked for, and from how
// often it has failed. It is pure: time is an argument.
package health

import "time"

// Config is how patient a [Machine] is.
type Config struct {
	// Fall is how many checks in a row must fail before the prefixes are
	// withdrawn, Rise how many must succeed before they are announced again.
	// Both are at least 1.
	Fall, Rise int
	// HoldDown is the least time between a withdrawal for failed checks and the
	// next announcement. A relapse doubles it, at most to maxDoubling times.
	HoldDown time.Duration
}

// Dampening. A route that comes and goes costs every router on the way, and is
// in the end suppressed by them (RFC 2439).
const (
	// maxDoubling bounds the growth of the hold-down time.
	maxDoubling = 16
	// forget is how many hold-down times after the end of a failure make the next
	// one a first one again.
	forget = 10
)

// State says whether the prefixes are announced, or why not.
type State uint8

// The states.
const (
	// Starting: no check has succeeded yet.
	Starting State = iota
	// Announced: the prefixes are announced.
	Announced
	// Failed: checks fail, or not enough have succeeded since.
	Failed
	// HeldDown: checks succeed again, and the hold-down time runs.
	HeldDown
	// Drained: the operator asked for it.
	Drained
)

// String returns the word for status.
func (s State) String() string {
	return [...]string{"starting", "announced", "check_failed", "held_down", "drained"}[s]
}

// Machine decides for one instance. The zero value with a [Config] is starting.
type Machine struct {
	Config

	state   State
	since   time.Time // of the state
	problem string    // of the last failed check, until all is well again

	began   bool // a check has succeeded
	down    bool // Fall checks have failed, and not Rise succeeded since
	drained bool // on request

	good, bad int           // results in a row
	hold      time.Duration // after the last fall, 0 before the first
	fell      time.Time     // of the last fall
	rose      time.Time     // when the last failure was over
}

// State is the state, since when, and the problem of the last failed check, if it
// still matters.
func (m *Machine) State() (s State, since time.Time, problem string) {
	return m.state, m.since, m.problem
}

// Announced reports whether the prefixes are to be announced.
func (m *Machine) Announced() bool { return m.state == Announced }

// Check takes the result of one check: a problem, or "" for success. It returns
// true if the state changed. The first success is enough for the first
// announcement, since nothing has failed yet.
func (m *Machine) Check(problem string, now time.Time) bool {
	if problem == "" {
		m.good, m.bad = m.good+1, 0
		m.began = true
		if m.down && m.good >= m.Rise {
			m.down, m.rose = false, now
		}
		return m.settle(now)
	}
	m.good, m.bad = 0, m.bad+1
	if m.began && !m.down && m.bad >= m.Fall {
		m.fall(now)
	}
	if m.down || !m.began {
		m.problem = problem
	}
	return m.settle(now)
}

// fall notes a failure, and for how long it will be remembered.
func (m *Machine) fall(now time.Time) {
	relapse := !m.rose.IsZero() && now.Sub(m.rose) < forget*m.hold
	if relapse {
		m.hold = max(m.HoldDown, min(2*m.hold, maxDoubling*m.HoldDown))
	} else {
		m.hold = m.HoldDown
	}
	m.fell, m.down = now, true
}

// Drain withdraws the prefixes until it is called with false. It returns true if
// the state changed.
func (m *Machine) Drain(on bool, now time.Time) bool {
	m.drained = on
	return m.settle(now)
}

// Tick does what is due, and returns true if the state changed.
func (m *Machine) Tick(now time.Time) bool { return m.settle(now) }

// Next is when Tick has something to do; zero is never.
func (m *Machine) Next() time.Time {
	if m.state == HeldDown {
		return m.fell.Add(m.hold)
	}
	return time.Time{}
}

// settle takes the state that follows from what is known.
func (m *Machine) settle(now time.Time) (changed bool) {
	s := m.follow(now)
	changed = s != m.state
	if changed || m.since.IsZero() {
		m.state, m.since = s, now
	}
	if s == Announced {
		m.problem = ""
	}
	return changed
}

func (m *Machine) follow(now time.Time) State {
	switch {
	case m.drained:
		return Drained
	case !m.began:
		return Starting
	case m.down:
		return Failed
	case !m.fell.IsZero() && now.Before(m.fell.Add(m.hold)):
		return HeldDown
	}
	return Announced
}
