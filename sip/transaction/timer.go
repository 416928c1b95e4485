// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"time"

	"github.com/isthmus-net/isthmus/internal/timerqueue"
)

// Timer calls Fire once when it is due. It lies in what it is about, and must not be copied.
type Timer struct {
	timerqueue.Node
	Fire func(now time.Time, out *Output)
}

// SetTimer has a timer, of the layer or of its user, fire at a time instead of the one that it had;
// at the zero time it never does.
func (l *Layer) SetTimer(t *Timer, at time.Time) { l.timers.Set(t, at) }

// StopTimer has a timer not fire.
func (l *Layer) StopTimer(t *Timer) { l.timers.Stop(t) }

// Tick does what is due.
func (l *Layer) Tick(now time.Time, out *Output) {
	for t, ok := l.timers.Due(now); ok; t, ok = l.timers.Due(now) {
		t.Fire(now, out)
	}
}

// Next is when something is due; zero: never.
func (l *Layer) Next() time.Time { return l.timers.Next() }

// times are those of a transaction: when something is repeated, and when it ends. Zero is never.
type times struct {
	timer         Timer
	repeat, limit time.Time
	interval      time.Duration
}

// schedule sets the timer of a transaction by its times.
func (l *Layer) schedule(t *times) {
	if !t.repeat.IsZero() && (t.limit.IsZero() || t.repeat.Before(t.limit)) {
		l.SetTimer(&t.timer, t.repeat)
	} else {
		l.SetTimer(&t.timer, t.limit)
	}
}

// over reports whether the end has come.
func (t *times) over(now time.Time) bool { return !t.limit.IsZero() && !t.limit.After(now) }

// again doubles the interval of repetitions up to a bound; 0 is none.
func (t *times) again(now time.Time, most time.Duration) {
	t.interval *= 2
	if most > 0 {
		t.interval = min(t.interval, most)
	}
	t.repeat = now.Add(t.interval)
}
