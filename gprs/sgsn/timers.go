// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"time"

	"github.com/isthmus-net/isthmus/internal/timerqueue"
)

// timer calls fire once when it is due.
type timer struct {
	timerqueue.Node
	fire func(now time.Time, out *Output)
}

// Tick does what is due.
func (e *Engine) Tick(now time.Time, out *Output) {
	for t, ok := e.timers.Due(now); ok; t, ok = e.timers.Due(now) {
		t.fire(now, out)
	}
	e.load.fill(e, now, out)
}

// Next is when Tick has something to do; zero is never.
func (e *Engine) Next() time.Time { return e.timers.Next() }
