// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"sync"
	"time"
)

// timer wakes one goroutine at a time that others may move. Setting the time it
// has already costs no more than a comparison, since that happens per batch. The
// zero value waits for a time to be set.
type timer struct {
	mu    sync.Mutex
	due   time.Time     // zero is never
	sleep time.Time     // until when the sleeper sleeps; zero: until it is woken
	wake  chan struct{} // made by the first user
}

// set moves the time; zero is never. It reports whether rouse must follow, which wakes a
// thread and so is no part of the way of a packet.
func (t *timer) set(due time.Time) (sooner bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if due.Equal(t.due) {
		return false
	}
	t.due = due
	// At a later time than it sleeps until the sleeper looks again by itself.
	return !due.IsZero() && (t.sleep.IsZero() || due.Before(t.sleep))
}

// rouse has the sleeper look at the time.
func (t *timer) rouse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case t.channel() <- struct{}{}:
	default:
	}
}

// wait returns true when the time has come, false when ctx is done. A time that
// has come is taken: the next wait needs a new one.
func (t *timer) wait(ctx context.Context) bool {
	t.mu.Lock()
	wake := t.channel()
	t.mu.Unlock()
	for {
		alarm, due := t.alarm()
		if due {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-wake:
		case <-alarm:
		}
	}
}

// alarm returns a channel that fires at the time, or nil for never; due tells
// that the time has come, and takes it.
func (t *timer) alarm() (alarm <-chan time.Time, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sleep = t.due
	if t.due.IsZero() {
		return nil, false
	}
	d := time.Until(t.due)
	if d > 0 {
		return time.After(d), false
	}
	t.due, t.sleep = time.Time{}, time.Time{}
	return nil, true
}

// channel returns the wake-up channel; t.mu is held.
func (t *timer) channel() chan struct{} {
	if t.wake == nil {
		t.wake = make(chan struct{}, 1)
	}
	return t.wake
}
