// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediaio

import (
	"container/heap"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
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
	queue queue
	wake  chan struct{}
	stop  chan struct{}
}

// schedule has a call ticked at a time; zero is never.
func (k *clock) schedule(c *Call, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case at.IsZero() && c.place < 0:
	case at.IsZero():
		heap.Remove(&k.queue, c.place)
	case c.place < 0:
		c.at = at
		heap.Push(&k.queue, c)
	case !c.at.Equal(at):
		c.at = at
		heap.Fix(&k.queue, c.place)
	}
	if c.place == 0 {
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
	if len(k.queue) == 0 {
		return nil, time.Hour
	}
	c := k.queue[0]
	if wait := c.at.Sub(now); wait > 0 {
		return nil, wait
	}
	heap.Pop(&k.queue)
	return c, 0
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

// queue has the call that is due first in front.
type queue []*Call

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is for package heap.
func (q *queue) Push(x any) {
	c := x.(*Call)
	c.place = len(*q)
	*q = append(*q, c)
}

// Pop is for package heap.
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	c.place = -1
	return c
}
