// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// lateness is how long after the end of a context its last packets may come: a Delete
// Request takes another way than they do, and overtakes them.
const lateness = 5 * time.Second

// maxEnded is how many contexts that ended are remembered; a power of two.
const maxEnded = 1 << 12

// ended are the contexts that ended last, each at the place that the low bits of its TEID
// say, so that nothing is searched. TEIDs are random: few share a place, and of those the
// latest has it.
type ended [maxEnded]endedContext

type endedContext struct {
	tid   gtp.TID // of version 0
	teid  uint32  // ours, or of version 0 the flow label
	until time.Duration
}

// endedOf is the record of a context of a version, but for its time.
func endedOf(v gtp.Version, tid gtp.TID, teid uint32, label uint16) endedContext {
	if v == gtp.V0 {
		return endedContext{tid: tid, teid: uint32(label)}
	}
	return endedContext{teid: teid}
}

// maxLate is how many requests are remembered whose contexts have ended; a power of two.
const maxLate = 1 << 14

// late are the Create Requests of contexts that ended while the request could still come again:
// it would open a context that no SGSN knows. Each has the place that its hash says, and of those
// that share one the latest has it.
type late [maxLate]lateCreate

type lateCreate struct {
	hash  uint64 // 0: none
	until time.Duration
}

func (l *late) add(u *pdpContext, patience time.Duration) {
	l[u.hash%maxLate] = lateCreate{u.requestHash(), u.createdAt + patience}
}

// has reports whether a request has made a context that has ended.
func (l *late) has(t *transaction) bool {
	is := pdpContext{hash: t.hash, sequence: t.header.Sequence, port: t.from.Port()}
	at := l[t.hash%maxLate]
	return t.at < at.until && at.hash == is.requestHash()
}

// requestHash tells the request that made a context from others: [Engine.hash] is of all octets,
// and the port is that of its sender.
func (u *pdpContext) requestHash() uint64 { return u.hash ^ uint64(u.port)<<16 ^ uint64(u.sequence) }

func (l *ended) add(x endedContext, now time.Duration) {
	x.until = now + lateness
	l[x.teid%maxEnded] = x
}

// has reports whether a G-PDU is of a context that ended a short time ago.
func (l *ended) has(h *gtp.Header, now time.Duration) bool {
	x := endedOf(h.Version, h.TID, h.TEID, h.FlowLabel)
	at := l[x.teid%maxEnded]
	x.until = at.until
	return now < at.until && x == at
}
