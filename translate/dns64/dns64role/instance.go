// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/dns64"
)

var _ role.Changer[Settings] = (*Instance)(nil)

// Instance is one DNS64. It changes nothing on the host.
type Instance struct {
	name     string
	log      *slog.Logger
	ready    chan struct{}
	counters counters
	policy   atomic.Pointer[dns64.Policy]
	resolver resolver
	rates    rates
	idle     atomic.Int64   // how long a connection may be silent, in nanoseconds
	streams  fair           // connections over TCP
	queries  fair           // those for which upstreams are asked
	pending  sync.WaitGroup // goroutines beside the loops

	mu      sync.Mutex // guards what follows
	cfg     Settings
	running context.Context    // of Run, until it ends
	probing context.CancelFunc // ends the probes of the present upstreams
}

// New makes the DNS64 that cfg describes, without touching the host.
func New(cfg Settings, log *slog.Logger) (*Instance, error) {
	policy, err := newPolicy(&cfg)
	if err != nil {
		return nil, err
	}
	limit, err := dns64.NewRates(rate(&cfg), rand.Reader)
	if err != nil {
		return nil, err
	}
	i := &Instance{name: cfg.Name, log: log, ready: make(chan struct{}), cfg: cfg}
	i.rates.rates = limit
	i.queries.places, i.streams.places = newPlaces(cfg.MaxQueries), newPlaces(cfg.MaxConnections)
	i.resolver = resolver{
		counters: &i.counters, background: i.background, cache: dns64.NewCache(limits(&cfg)), waiting: map[dns64.Ask]*flight{},
		servers: newUpstreams(&cfg, log),
	}
	i.policy.Store(policy)
	i.idle.Store(int64(cfg.IdleTimeout))
	return i, nil
}

func newPolicy(cfg *Settings) (*dns64.Policy, error) {
	return dns64.New(dns64.Settings{
		Prefixes: cfg.Prefixes, Ranges: cfg.Ranges, Exclude: cfg.Exclude, Clients: cfg.Clients, NoSynthesis: cfg.NoSynthesisFor,
		PTRName: cfg.PTRName, MaxUDP: cfg.UDPSize, ClientLength: cfg.ClientLength,
	})
}

func rate(cfg *Settings) ratelimit.Limit {
	return ratelimit.PerSecond(cfg.RatePerClient, cfg.Burst)
}

func limits(cfg *Settings) dns64.Limits {
	return dns64.Limits{
		Entries: cfg.CacheEntries, Bytes: cfg.CacheBytes,
		MaxTTL: cfg.CacheMaxTTL, MaxNegativeTTL: cfg.CacheNegativeTTL,
	}
}

// Name implements [role.Instance].
func (i *Instance) Name() string { return i.name }

// Role implements [role.Instance].
func (i *Instance) Role() string { return name }

// Ready implements [role.Instance].
func (i *Instance) Ready() <-chan struct{} { return i.ready }

// Run implements [role.Instance].
func (i *Instance) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	i.mu.Lock()
	listen := slices.Clone(i.cfg.Listen)
	i.running = ctx
	i.mu.Unlock()
	defer i.pending.Wait()
	defer i.stop()
	sockets, err := open(listen)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, sockets.close)()
	defer sockets.close()
	i.probe()
	for _, s := range sockets {
		i.serve(ctx, group, s)
	}
	i.log.Info("answering", "listen", listen)
	close(i.ready)
	return group.Wait()
}

// probe watches the present upstreams, in place of former ones.
func (i *Instance) probe() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running == nil {
		return
	}
	if i.probing != nil {
		i.probing()
	}
	ctx, cancel := context.WithCancel(i.running)
	i.probing = cancel
	i.resolver.mu.Lock()
	servers := i.resolver.servers
	i.resolver.mu.Unlock()
	i.pending.Go(func() { servers.probe(ctx) })
}

func (i *Instance) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.probing != nil {
		i.probing()
	}
	i.running = nil
}

// handle answers one message, at once if no one needs to be asked. Otherwise it goes on
// in a goroutine of its own, which send then is called from.
func (i *Instance) handle(ctx context.Context, raw []byte, from netip.AddrPort, stream bool, send func([]byte), background func(func())) {
	policy := i.policy.Load()
	client, known := policy.Client(from.Addr())
	if reason := i.rates.admit(client, known); reason != dns64.ReasonNone {
		i.counters.drop(reason)
		return
	}
	query, reply, reason := policy.Admit(raw, from, stream)
	if reason != dns64.ReasonNone {
		i.counters.drop(reason)
		if reply != nil {
			i.answer(&query, answer{reply, nil}, send)
		}
		return
	}
	lookup := policy.Begin(&query)
	if i.advance(lookup, client) {
		i.conclude(&query, lookup, send)
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	place, reason := i.queries.enter(client, func(r dns64.Reason) { cancel(gaveWay(r)) })
	if place == nil {
		cancel(nil)
		i.counters.drop(reason)
		i.answer(&query, answer{query.Failure(), nil}, send)
		return
	}
	background(func() {
		asked := flights{resolver: &i.resolver, client: client, joined: map[dns64.Ask]*flight{}}
		i.finish(ctx, &asked, &query, lookup, send)
		i.background(func() {
			defer cancel(nil)
			defer i.queries.leave(place)
			asked.land(ctx)
		})
	})
}

// gaveWay ends a query whose place another one has taken, and is why.
type gaveWay dns64.Reason

func (gaveWay) Error() string { return "the place was needed for another query" }

// background runs what waits for an upstream, whose number handle bounds.
func (i *Instance) background(f func()) { i.pending.Go(f) }

// advance goes on by the cache alone, and reports whether that was enough.
func (i *Instance) advance(l *dns64.Lookup, client netip.Addr) bool {
	for {
		ask, more := l.Next()
		if !more {
			return true
		}
		result, ok := i.resolver.cached(ask, client)
		if !ok {
			return false
		}
		l.Take(result)
	}
}

// finish goes on by the upstreams.
func (i *Instance) finish(ctx context.Context, asked *flights, q *dns64.Query, l *dns64.Lookup, send func([]byte)) {
	for !i.advance(l, asked.client) {
		if asked.advance(ctx, l) {
			continue
		}
		if why, ok := context.Cause(ctx).(gaveWay); ok {
			i.counters.drop(dns64.Reason(why))
			i.answer(q, answer{q.Failure(), nil}, send)
		}
		return
	}
	i.conclude(q, l, send)
}

func (i *Instance) conclude(q *dns64.Query, l *dns64.Lookup, send func([]byte)) {
	m, explained, outcome := l.Response()
	i.counters.outcomes[outcome].Add(1)
	i.answer(q, answer{m, explained}, send)
}

// Prepare implements [role.Changer]. Clients' connections stay; the cache is kept unless
// the upstreams changed, whose word it is.
func (i *Instance) Prepare(want Settings) (role.Change, error) {
	policy, err := newPolicy(&want)
	if err != nil {
		return nil, err
	}
	return func() ([]string, error) {
		if i.apply(want, policy) {
			i.probe()
		}
		return nil, nil
	}, nil
}

// apply takes new settings, and reports whether they brought other upstreams.
func (i *Instance) apply(want Settings, policy *dns64.Policy) (others bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.cfg
	others = !slices.Equal(old.Upstreams, want.Upstreams) || !slices.Equal(old.Trusted, want.Trusted) ||
		old.UpstreamTimeout != want.UpstreamTimeout || old.QueryTimeout != want.QueryTimeout || old.MixedCase != want.MixedCase
	i.cfg = want
	i.policy.Store(policy)
	i.idle.Store(int64(want.IdleTimeout))
	i.queries.setLimit(want.MaxQueries)
	i.streams.setLimit(want.MaxConnections)
	i.rates.setLimit(rate(&want))
	i.resolver.mu.Lock()
	defer i.resolver.mu.Unlock()
	i.resolver.cache.SetLimits(limits(&want))
	if others {
		i.resolver.servers = newUpstreams(&want, i.log)
		i.resolver.cache.Clear()
		clear(i.resolver.waiting) // those who wait still hear what comes, and no one joins them
	}
	return others
}

// Status is the status of a DNS64.
type Status struct {
	// State is starting or answering.
	State string `json:"state"`
	// Listen are the sockets, UDP and TCP each.
	Listen []netip.AddrPort `json:"listen"`
	// Prefixes are what AAAA records are made with.
	Prefixes []netip.Prefix `json:"prefixes"`
	// Upstreams are those asked, in the operator's order.
	Upstreams []UpstreamStatus `json:"upstreams"`
	// CacheEntries and CacheBytes are what the cache holds.
	CacheEntries int `json:"cache_entries"`
	CacheBytes   int `json:"cache_bytes"`
	// Waiting are queries for which upstreams are asked.
	Waiting int `json:"waiting"`
	// Connections are those over TCP.
	Connections int `json:"connections"`
}

// Status implements [role.Instance]; it returns a [Status].
func (i *Instance) Status() any {
	i.mu.Lock()
	s := Status{State: "starting", Listen: slices.Clone(i.cfg.Listen), Prefixes: slices.Clone(i.cfg.Prefixes), Connections: i.streams.count()}
	i.mu.Unlock()
	if len(s.Prefixes) == 0 {
		s.Prefixes = []netip.Prefix{dns64.DefaultPrefix}
	}
	select {
	case <-i.ready:
		s.State = "answering"
	default:
	}
	r := &i.resolver
	r.mu.Lock()
	defer r.mu.Unlock()
	s.CacheEntries, s.CacheBytes, s.Waiting = r.cache.Len(), r.cache.Bytes(), i.queries.count()
	s.Upstreams = r.servers.status()
	return s
}

// Collect implements [role.Instance].
func (i *Instance) Collect(emit func(role.Metric)) {
	i.counters.collect(emit)
	r := &i.resolver
	r.mu.Lock()
	defer r.mu.Unlock()
	emit(role.Level("cache_entries", "Answers in the cache.", float64(r.cache.Len())))
	emit(role.Level("cache_bytes", "Memory that the cache takes.", float64(r.cache.Bytes())))
	emit(role.Level("waiting", "Queries for which upstreams are asked.", float64(i.queries.count())))
	emit(role.Level("connections", "Connections over TCP.", float64(i.streams.count())))
	r.servers.collect(emit)
}

// Examine reports whether the addresses can be listened on. Sockets are open for a
// moment.
func Examine(cfg Settings) error {
	var errs []error
	for n, at := range cfg.Listen {
		sockets, err := open([]netip.AddrPort{at})
		if err == nil {
			err = takenBy(cfg.Listen[:n], at)
			sockets.close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("dns64 %s: %w", cfg.Name, err))
		}
	}
	if err := asksItself(cfg); err != nil {
		errs = append(errs, fmt.Errorf("dns64 %s: %w", cfg.Name, err))
	}
	return errors.Join(errs...)
}
