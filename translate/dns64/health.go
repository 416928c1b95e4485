// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

import "time"

const (
	// failuresAllowed in a row make an upstream one that is asked last.
	failuresAllowed = 2
	// probeInterval is between looks whether such an upstream is back.
	probeInterval = 3 * time.Second
)

// Health says in which order upstreams are asked: those that answer before those that
// do not, each in the operator's order. It is not safe for concurrent use.
type Health struct{ upstreams []upstream }

type upstream struct {
	failures int       // in a row
	probe    time.Time // when to look again; of failing ones alone
}

// NewHealth takes n upstreams for well.
func NewHealth(n int) *Health { return &Health{upstreams: make([]upstream, n)} }

// Well reports whether an upstream answers.
func (h *Health) Well(i int) bool { return h.upstreams[i].failures < failuresAllowed }

// Order returns all upstreams, the one to ask first at the front.
func (h *Health) Order() []int {
	order := make([]int, 0, len(h.upstreams))
	for _, well := range []bool{true, false} {
		for i := range h.upstreams {
			if h.Well(i) == well {
				order = append(order, i)
			}
		}
	}
	return order
}

// Report reports whether an upstream answered, and returns whether that changed what is
// thought of it.
func (h *Health) Report(i int, answered bool, now time.Time) (changed bool) {
	before, u := h.Well(i), &h.upstreams[i]
	if answered {
		u.failures = 0
		return !before
	}
	u.failures = min(u.failures+1, failuresAllowed)
	if h.Well(i) {
		return false
	}
	if before {
		u.probe = now.Add(probeInterval)
	}
	return before
}

// Probes returns the upstreams that are to be asked for a sign of life now.
func (h *Health) Probes(now time.Time) []int {
	var due []int
	for i := range h.upstreams {
		if u := &h.upstreams[i]; !h.Well(i) && !now.Before(u.probe) {
			u.probe = now.Add(probeInterval)
			due = append(due, i)
		}
	}
	return due
}
