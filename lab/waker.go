// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

// Choices of the waker, in nanoseconds.
const (
	// wakeEarly is how long before a departure a thread asks to wake at least, and maxEarly at
	// most: what is later than that was kept waiting by others, and will be again.
	wakeEarly = 60_000
	maxEarly  = 500_000
	// forgetting is the share of what was learnt that each wake takes away.
	forgetting = 16
	// spinShare of its time may a thread spin beyond wakeEarly, so that a line with many
	// packets leaves the processor to its ends; what it has not used lasts for maxCredit.
	spinShare = 8
	maxCredit = 8 * maxEarly
)

// waker says how long before a departure a thread asks to wake; it spins for what is left
// then. A processor that has slept takes a while to run it, in a virtual machine some tenths
// of a millisecond, so it learns from how late it woke.
type waker struct {
	late   int64 // about the latest of the last wakes
	credit int64 // for which it may spin
	at     int64 // when that was reckoned
}

// early is how long before the next departure it asks to wake.
func (w *waker) early(now int64) int64 {
	w.credit = min(w.credit+(now-w.at)/spinShare, maxCredit)
	w.at = now
	return max(wakeEarly, min(w.late, w.credit))
}

// woke notes how late it woke.
func (w *waker) woke(late int64) {
	w.late = min(max(late, w.late-w.late/forgetting), maxEarly)
}

// spun notes how long it has spun.
func (w *waker) spun(long int64) { w.credit = max(w.credit-long, 0) }
