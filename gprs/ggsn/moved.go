// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// maxMoved is how many moves of a user plane are remembered; a power of two.
const maxMoved = 1 << 10

// moved are the moves of user planes that came last, each at the place that the low bits of
// the context's TEID before it say. What the node before has sent is taken still: an Update
// Request takes another way than G-PDUs do, and overtakes them, by which a handoff would lose
// packets (TS 23.060 section 6.9.1.2.2).
type moved [maxMoved]move

type move struct {
	was        endedContext // what its G-PDUs named, and until when
	node       netip.Addr   // that sent them
	context    handle
	chargingID uint32 // of the context, for the handle may be another's by then
}

// add remembers a context as it is before it moves.
func (l *moved) add(e *Engine, h handle, version gtp.Version) {
	c := e.contexts.at(h)
	was := endedOf(version, tidOf(e.sessions.at(c.session), c.nsapi), c.teid, uint16(c.teid))
	was.until = e.at + lateness
	l[was.teid%maxMoved] = move{was, e.peers.at(c.user).addr, h, c.chargingID}
}

// contextBefore returns the context that a G-PDU names as the node that sends it did before
// the context moved away from it a short time ago.
func (e *Engine) contextBefore(h *gtp.Header, from netip.Addr, now time.Duration) handle {
	x := endedOf(h.Version, h.TID, h.TEID, h.FlowLabel)
	m := &e.moved[x.teid%maxMoved]
	if x.until = m.was.until; now >= x.until || x != m.was || from != m.node {
		return 0
	}
	if c := e.contexts.at(m.context); c.session == 0 || c.chargingID != m.chargingID {
		return 0
	}
	return m.context
}
