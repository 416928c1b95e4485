// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// sessions counts those that are up. The library would be asked for each neighbor, and answers behind a walk over all routes
// of each, with all else waiting.
type sessions struct {
	up   map[netip.Addr]bool // for [Speaker.changed] alone
	some atomic.Pointer[heard]
}

// heard is whether a session is up, and since when.
type heard struct {
	some  bool
	since time.Time
}

// note takes the state of a session.
func (s *sessions) note(neighbor netip.Addr, up bool, now time.Time) {
	before := len(s.up) > 0
	if !up {
		delete(s.up, neighbor)
	} else {
		if s.up == nil {
			s.up = map[netip.Addr]bool{}
		}
		s.up[neighbor] = true
	}
	if some := len(s.up) > 0; some != before {
		s.some.Store(&heard{some, now})
	}
}

// Heard reports whether a neighbor has a session, and since when one has, or none; zero: none has had one.
func (s *Speaker) Heard() (some bool, since time.Time) {
	if h := s.sessions.some.Load(); h != nil {
		return h.some, h.since
	}
	return false, time.Time{}
}
