// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import "time"

// roundTrip is what RTO is computed of (RFC 9260 section 6.3.1).
type roundTrip struct {
	srtt, rttvar time.Duration
	rto          time.Duration
	measured     bool

	// One TSN at a time is timed, unless it is sent again (C4 and C5).
	timing   bool
	timedTSN uint32
	timedAt  time.Time
}

// measure takes a round trip time.
func (p *Path) measure(r time.Duration) {
	r = max(r, 0)
	if !p.measured {
		p.measured, p.srtt, p.rttvar = true, r, r/2
	} else {
		p.rttvar += (max(p.srtt-r, r-p.srtt) - p.rttvar) >> betaShift
		p.srtt += (r - p.srtt) >> alphaShift
	}
	p.rttvar = max(p.rttvar, granularity)
	p.rto = min(max(p.srtt+4*p.rttvar, p.Parameters.RTOMin), p.Parameters.RTOMax)
}

// backOff doubles RTO (RFC 9260 section 6.3.3, E2).
func (p *Path) backOff() { p.rto = min(2*p.rto, p.Parameters.RTOMax) }
