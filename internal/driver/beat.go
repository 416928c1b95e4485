// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"sync"
	"time"
)

// beatInterval is how often the programs are told that the daemon lives.
const beatInterval = time.Second

// hangs is for how long Run may be at work on one thing before it is taken to hang. What a
// look takes grows with the host's devices and rules, and may be longer than the linger.
const hangs = 30 * time.Second

// beat lets programs that forward go on.
func (f *Driver) beat() {
	if f.forward != nil {
		f.forward.Beat(f.linger())
	}
}

// keepBeating beats beside the calling goroutine until the result is called. The follower keeps
// next hops in step meanwhile.
func (f *Driver) keepBeating() (stop func()) {
	if f.forward == nil {
		return func() {}
	}
	f.stir()
	f.beat()
	end := make(chan struct{})
	var beater sync.WaitGroup
	beater.Go(func() {
		ticker := time.NewTicker(beatInterval)
		defer ticker.Stop()
		for {
			select {
			case <-end:
				return
			case now := <-ticker.C:
				if f.alive(now) {
					f.beat()
				}
			}
		}
	})
	return func() {
		close(end)
		beater.Wait()
	}
}

// stir notes that the goroutine of Run does not hang. It locks.
func (f *Driver) stir() {
	f.mu.Lock()
	f.awake = time.Now()
	f.mu.Unlock()
}

// alive reports whether programs may go on: all that keeps them right is at work. It locks.
func (f *Driver) alive(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed == nil && now.Sub(f.awake) < hangs
}
