// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// infoChange takes word of where a terminal has gone (TS 29.060 section 7.5B.1): a sign that
// its SGSN has the session. This node asks for no such reports, so there is nothing to keep.
func (e *Engine) infoChange(t *transaction) Reason {
	m := &e.scratch.changed
	if r := e.request(t, m); r != none {
		return r
	}
	if s := e.sessionOf(t); s != nil {
		e.respond(t, gtp.CauseAccepted, s.peerTEID)
	} else {
		e.respond(t, gtp.CauseNonExistent, 0)
	}
	return none
}
