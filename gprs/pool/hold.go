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
	p.queue = append(p.queue, freed{n, at, p.ticket})
	if len(p.queue) > 2*len(p.held)+queueSpare {
		p.queue = slices.DeleteFunc(p.queue, func(f freed) bool { return !p.counts(f) })
	}
}

// counts reports whether an entry of the queue is of a lease that was not taken since.
func (p *Pool) counts(f freed) bool { return p.held[f.number] == f.ticket }

// release ends the hold of leases whose time has passed: of a few, and of more only
// until one is free.
func (p *Pool) release(now time.Time) {
	until := now.Add(-p.hold).UnixNano()
	for i := 0; len(p.queue) > 0 && (i < releaseMost || p.inside == p.size); i++ {
		first := p.queue[0]
		counts := p.counts(first)
		if counts && first.at > until {
			return
		}
		p.queue = p.queue[1:]
		if !counts {
			continue
		}
		delete(p.held, first.number)
		p.drop(first.number)
	}
}
