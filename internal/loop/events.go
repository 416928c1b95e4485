// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"sync"
	"sync/atomic"
)

// maxEvents bounds what waits to be written: a log that is slow must not stop packets.
const maxEvents = 8192

// EventLog writes an engine's events, apart from the loops.
type EventLog[E any] struct {
	// Write writes one.
	Write func(*E)

	mu      sync.Mutex // guards running: what was added while it was true is written by Run
	running bool
	once    sync.Once
	waiting chan E
	lost    atomic.Uint64
}

func (l *EventLog[E]) channel() chan E {
	l.once.Do(func() { l.waiting = make(chan E, maxEvents) })
	return l.waiting
}

// Lost is how many found no room.
func (l *EventLog[E]) Lost() uint64 { return l.lost.Load() }

// Add takes an event; what finds no room is counted.
func (l *EventLog[E]) Add(e E) {
	if !l.leave(e) {
		l.Write(&e)
	}
}

// leave leaves an event to Run, if that runs.
func (l *EventLog[E]) leave(e E) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running {
		return false
	}
	select {
	case l.channel() <- e:
	default:
		l.lost.Add(1)
	}
	return true
}

// Run writes until ctx is done and nothing waits any more. Meanwhile no packet waits for the log.
// Before and after, as long as loops still end, events are written at once.
func (l *EventLog[E]) Run(ctx context.Context) {
	l.mu.Lock()
	l.running = true
	l.mu.Unlock()
	for ctx.Err() == nil {
		select {
		case e := <-l.channel():
			l.Write(&e)
		case <-ctx.Done():
		}
	}
	l.writeWaiting() // most of it while packets go on
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
	l.writeWaiting()
}

// writeWaiting writes what waits when it is called.
func (l *EventLog[E]) writeWaiting() {
	for range len(l.channel()) {
		e := <-l.channel()
		l.Write(&e)
	}
}
