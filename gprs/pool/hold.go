// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package pool

import (
	"slices"
	"time"
)

const (
	// releaseMost is how many leases one call releases: more than a call can add, so that
	// the queue ends, and few, so that no call takes long.
	releaseMost = 8
	// queueSpare is how many entries the queue has beyond twice those that count.
	queueSpare = 64
)

// keep holds a taken number that is used no longer. Times are in order also where the
// clock was set.
func (p *Pool) keep(n uint64, at int64) {
	if len(p.queue) > 0 {
		at = max(at, p.queue[len(p.queue)-1].at)
	}
	p.ticket++
	p.held[n] = p.ticket
	p.rest(n, 1)
	p.queue = append(p.queue, freed{n, at, p.ticket})
	if len(p.queue) > 2*len(p.held)+queueSpare {
		p.queue = slices.DeleteFunc(p.queue, func(f freed) bool { return !p.counts(f) })
	}
}

// counts reports whether an entry of the queue is of a lease that was not taken since.
func (p *Pool) counts(f freed) bool { return p.held[f.number] == f.ticket }

// release ends the hold of leases whose time has passed: of a few, and of more only
// until one of a part is free, if there is one for which that matters.
func (p *Pool) release(now time.Time, of *part) {
	until := now.Add(-p.hold).UnixNano()
	for i := 0; (i < releaseMost || of != nil && of.inside == of.size) && p.releaseFirst(until); i++ {
	}
}

// Expire ends the hold of leases whose time has passed, of no more than so many, and reports
// whether any are held still. Other methods do so by the way; where nobody calls them, leases
// would be held for ever.
func (p *Pool) Expire(now time.Time, most int) (held bool) {
	until := now.Add(-p.hold).UnixNano()
	for i := 0; i < most && p.releaseFirst(until); i++ {
	}
	return len(p.held) > 0
}

// releaseFirst takes the first entry out of the queue unless its time is not over.
func (p *Pool) releaseFirst(until int64) bool {
	if len(p.queue) == 0 {
		return false
	}
	first := p.queue[0]
	counts := p.counts(first)
	if counts && first.at > until {
		return false
	}
	p.queue = p.queue[1:]
	if counts {
		delete(p.held, first.number)
		p.rest(first.number, -1)
		p.drop(first.number)
	}
	return true
}
