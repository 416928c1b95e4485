// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package retry decides when something that failed is tried again, each time later than
// the last, and whether a failure is to be reported: once for each kind.
package retry

import (
	"slices"
	"time"
)

// Trouble is what is known of the failures of one thing. First and Last are the waits
// after the first failure and the longest one; a Trouble that no one asks when to try
// again needs neither.
type Trouble struct {
	First, Last time.Duration

	wait     time.Duration // after the last failure
	failed   time.Time     // when that was
	well     time.Time     // since when it works; zero: it does not
	reported []string      // kinds, the latest at the end
}

// kindsKept is how many kinds of failure are known as reported. Who fails in more ways in
// turn has them reported again, as rarely as it is tried.
const kindsKept = 8

// Failed notes a failure, and reports whether it is news. Failures with the same
// text are of one kind, so that the text should not hold what differs at each try.
func (t *Trouble) Failed(text string, now time.Time) (news bool) {
	if t.past(now) {
		t.wait, t.reported = 0, nil
	}
	t.failed, t.well = now, time.Time{}
	t.wait = min(max(2*t.wait, t.First), t.Last)
	if slices.Contains(t.reported, text) {
		return false
	}
	if len(t.reported) == kindsKept {
		t.reported = slices.Delete(t.reported, 0, 1)
	}
	t.reported = append(t.reported, text)
	return true
}

// Works notes that it works. What fails again before it has worked for the longest wait
// is in the same trouble still.
func (t *Trouble) Works(now time.Time) {
	if t.well.IsZero() {
		t.well = now
	}
}

// past reports whether it has worked for long enough.
func (t *Trouble) past(now time.Time) bool {
	return !t.well.IsZero() && now.Sub(t.well) >= t.Last
}

// Changed notes that something has changed on which the failure may have hung: the next
// try comes as if it were the first that failed.
func (t *Trouble) Changed() {
	t.wait = min(t.wait, t.First)
}

// Wait is how long the next try has to wait; zero if it may come now.
func (t *Trouble) Wait(now time.Time) time.Duration {
	if t.failed.IsZero() || !t.well.IsZero() {
		return 0
	}
	return max(t.wait-now.Sub(t.failed), 0)
}
