// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"os"
	"sync"
	"time"
)

// signal wakes one of those who wait for something. Who has been woken, and leaves something for others, sends it
// again.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// deadline is that of the readers or the writers of an association. The zero value is none.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	past  chan struct{} // closed when the time has come; nil before the first is set
	set   uint64        // counts changes, so that a timer that was late to be stopped ends nothing
}

// at sets the time; zero is none.
func (d *deadline) at(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.past == nil || isClosed(d.past) {
		d.past = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		close(d.past)
		return
	}
	mine := d.set
	d.timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.set == mine {
			close(d.past)
		}
	})
}

// wait returns what is closed when the time has come.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.past == nil {
		d.past = make(chan struct{})
	}
	return d.past
}

// err is the error of a deadline that is past.
func (d *deadline) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.past != nil && isClosed(d.past) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
