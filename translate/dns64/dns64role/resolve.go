// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/translate/dns64"
)

// resolver answers questions by the cache or by the upstreams, and asks these only once
// for what several clients want at one time.
type resolver struct {
	counters   *counters
	background func(func()) // runs what Run waits for

	mu      sync.Mutex // guards what follows
	cache   *dns64.Cache
	waiting map[dns64.Ask]*flight
	servers *upstreams
}

// flight is a question that upstreams have not answered yet. It goes on while anybody
// waits, whoever asked first.
type flight struct {
	begun   time.Time
	done    chan struct{}
	result  dns64.Result // once done is closed
	cancel  context.CancelFunc
	waiters int        // guarded by the resolver's mutex, as what follows
	client  netip.Addr // that asked; not valid: several
}

// cached answers by the cache alone.
func (r *resolver) cached(a dns64.Ask, client netip.Addr) (dns64.Result, bool) {
	r.mu.Lock()
	result, ok := r.cache.Get(a, client, time.Now())
	r.mu.Unlock()
	if ok {
		r.counters.hits.Add(1)
	}
	return result, ok
}

// join waits for a question with those who asked it already, or asks it, unless it has been answered since it was
// looked for in the cache.
func (r *resolver) join(a dns64.Ask, client netip.Addr) *flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.waiting[a]; f != nil {
		r.counters.merged.Add(1)
		f.waiters++
		if f.client != client {
			f.client = netip.Addr{}
		}
		return f
	}
	if result, ok := r.cache.Get(a, client, time.Now()); ok {
		r.counters.hits.Add(1)
		return landed(result)
	}
	r.counters.misses.Add(1)
	ctx, cancel := context.WithCancel(context.Background())
	f := &flight{begun: time.Now(), done: make(chan struct{}), cancel: cancel, waiters: 1, client: client}
	r.waiting[a] = f
	servers := r.servers
	r.background(func() { r.fly(ctx, a, f, servers) })
	return f
}

// landed is the flight of a question that has been answered.
func landed(result dns64.Result) *flight {
	f := &flight{begun: time.Now(), done: make(chan struct{}), result: result, cancel: func() {}, waiters: 1}
	close(f.done)
	return f
}

// fly asks the upstreams.
func (r *resolver) fly(ctx context.Context, a dns64.Ask, f *flight, servers *upstreams) {
	result := servers.ask(ctx, a)
	r.mu.Lock()
	defer r.mu.Unlock()
	f.result = r.cache.Fit(a, result)
	if r.waiting[a] == f { // else no one waited any more, or there are other upstreams now
		delete(r.waiting, a)
		r.cache.Put(a, f.client, f.result, time.Now())
	}
	close(f.done)
}

// part ends the wait of one for a question.
func (r *resolver) part(a dns64.Ask, f *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.waiters--; f.waiters > 0 {
		return
	}
	f.cancel()
	if r.waiting[a] == f {
		delete(r.waiting, a)
	}
}

// copy returns the result for one of those who wait: each makes an answer of it.
func (f *flight) copy() dns64.Result {
	result := f.result
	if result.Msg != nil {
		result.Msg = result.Msg.Copy()
	}
	return result
}
