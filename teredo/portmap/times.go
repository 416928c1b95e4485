// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import "time"

// times are how long a gateway may take.
type times struct {
	// search is how long answers to a search are waited for, and repeat when it is
	// sent again: a datagram may be lost.
	search, repeat time.Duration
	// preference is how long NAT-PMP is held back where both are allowed: UPnP is
	// preferred, and its search is answered at once.
	preference time.Duration
	// request bounds one request by HTTP with its answer.
	request time.Duration
	// question bounds one question of NAT-PMP, repeats included.
	question time.Duration
	// reserve bounds all that one reservation takes, searches included.
	reserve time.Duration
	// release bounds giving a port back, since someone waits for the end.
	release time.Duration
	// doubt is the shortest time between a try and one for a doubt.
	doubt time.Duration
}

var usual = times{
	search: searchWait + 500*time.Millisecond, repeat: 400 * time.Millisecond, preference: 200 * time.Millisecond,
	request: 2 * time.Second, question: time.Second, reserve: 10 * time.Second, release: 2 * time.Second, doubt: time.Minute,
}

// limits are those of a target.
func (t Target) limits() *times {
	if t.times == nil {
		return &usual
	}
	return t.times
}
