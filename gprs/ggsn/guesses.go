// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// A flow label of version 0 has 16 bits, so that a peer that knows a terminal's TID finds it in
// time: 65,536 requests take seconds. So many that name a session by a wrong one are answered at
// once, and one a second; the others are dropped, right or wrong.
const guessesAtOnce = 16

// guesses are those at the flow label of a session.
type guesses struct {
	at   uint32 // when the last was, in seconds since the epoch
	made uint8  // that time has not made up for
}

// guessed reports whether a request of version 0 is to be dropped, since too many have named its
// session by wrong flow labels. An update that moves the session here from version 1 needs none.
func (e *Engine) guessed(t *transaction) bool {
	h := &t.header
	if h.Version != gtp.V0 || h.Type != gtp.TypeUpdateRequest && h.Type != gtp.TypeDeleteRequest {
		return false
	}
	x := e.byTID[h.TID]
	if x == 0 {
		return false
	}
	s := e.sessions.at(e.contexts.at(x).session)
	if s.version != gtp.V0 {
		return false
	}
	g := &s.guesses
	now := t.seconds()
	g.made -= uint8(min(uint32(g.made), now-g.at))
	g.at = now
	if g.made == guessesAtOnce {
		return true
	}
	if h.FlowLabel != uint16(s.teid) {
		g.made++
	}
	return false
}
