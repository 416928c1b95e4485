// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/translate/dns64"
)

// resolver answers questions by the cache or by the upstreams, and asks these only once
// for what several clients want at one time.
type resolver struct {
	counters *counters

	mu      sync.Mutex // guards what follows
	cache   *dns64.Cache
	waiting map[dns64.Ask]*flight
	servers *upstreams
}

// flight is a question that upstreams have not answered yet.
type flight struct {
	done   chan struct{}
	result dns64.Result // once done is closed
}

// cached answers by the cache alone.
func (r *resolver) cached(a dns64.Ask) (dns64.Result, bool) {
	r.mu.Lock()
	result, ok := r.cache.Get(a, time.Now())
	r.mu.Unlock()
	if ok {
		r.counters.hits.Add(1)
	}
	return result, ok
}

// ask answers by the upstreams.
func (r *resolver) ask(ctx context.Context, a dns64.Ask) dns64.Result {
	r.mu.Lock()
	if f := r.waiting[a]; f != nil {
		r.mu.Unlock()
		r.counters.merged.Add(1)
		select {
		case <-f.done:
		case <-ctx.Done():
			return dns64.Result{}
		}
		return f.copy()
	}
	f := &flight{done: make(chan struct{})}
	r.waiting[a] = f
	servers := r.servers
	r.mu.Unlock()

	r.counters.misses.Add(1)
	f.result = servers.ask(ctx, a)
	r.mu.Lock()
	delete(r.waiting, a)
	if ctx.Err() == nil && servers == r.servers {
		r.cache.Put(a, f.result, time.Now())
	}
	r.mu.Unlock()
	close(f.done)
	return f.copy()
}

// copy returns the result for one of those who wait: each makes an answer of it.
func (f *flight) copy() dns64.Result {
	result := f.result
	if result.Msg != nil {
		result.Msg = result.Msg.Copy()
	}
	return result
}
