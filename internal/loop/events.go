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

	once    sync.Once
	waiting chan E
	running atomic.Bool // somebody writes what waits
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
	if !l.running.Load() {
		l.Write(&e)
		return
	}
	select {
	case l.channel() <- e:
	default:
		l.lost.Add(1)
	}
}

// Run writes until ctx is done and nothing waits any more. Before, no packet waits for the
// log, and events are written at once.
func (l *EventLog[E]) Run(ctx context.Context) {
	l.running.Store(true)
	for {
		select {
		case e := <-l.channel():
			l.Write(&e)
		case <-ctx.Done():
			for {
				select {
				case e := <-l.channel():
					l.Write(&e)
				default:
					return
				}
			}
		}
	}
}
