// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/timerqueue"
)

// Config of a [Host].
type Config struct {
	// LowPort and HighPort bound the ports of media, both ends included; 0: the kernel's.
	LowPort, HighPort uint16
}

// Host is where calls have their media: it has a clock for each core, and each clock one
// timer for all of its calls.
type Host struct {
	config Config
	clocks []*clock
	next   atomic.Uint32
	done   sync.WaitGroup
}

// NewHost starts the clocks.
func NewHost(c Config) *Host {
	h := &Host{config: c}
	for range runtime.GOMAXPROCS(0) {
		k := &clock{wake: make(chan struct{}, 1), stop: make(chan struct{})}
		h.clocks = append(h.clocks, k)
		h.done.Go(k.run)
	}
	return h
}

// Close stops the clocks. Calls are to be closed before.
func (h *Host) Close() {
	for _, k := range h.clocks {
		close(k.stop)
	}
	h.done.Wait()
}

// clock ticks calls when they are due.
type clock struct {
	mu    sync.Mutex
	queue timerqueue.Queue[*turn]
	wake  chan struct{}
	stop  chan struct{}
}

// turn is when a call is ticked.
type turn struct {
	timerqueue.Node
	call *Call
}

// schedule has a call ticked at a time; zero is never.
func (k *clock) schedule(c *Call, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := k.queue.Next()
	k.queue.Set(&c.turn, at)
	if next := k.queue.Next(); !next.IsZero() && (first.IsZero() || next.Before(first)) {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// due takes the next call that is due, or says how long it is until then.
func (k *clock) due(now time.Time) (*Call, time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t, ok := k.queue.Due(now); ok {
		return t.call, 0
	}
	if next := k.queue.Next(); !next.IsZero() {
		return nil, next.Sub(now)
	}
	return nil, time.Hour
}

func (k *clock) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		c, wait := k.due(now)
		if c != nil {
			c.tick(now)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.stop:
			return
		}
	}
}
