// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/retry"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/pref64/discovery"
)

// advertisers tell hosts of pool6, one for each interface that the configuration names.
type advertisers struct {
	log       *slog.Logger
	ctx       context.Context
	namespace port.Namespace

	mu      sync.Mutex // guards what follows
	running map[string]*advertiser
}

// advertiser is the one of an interface.
type advertiser struct {
	announcer *discovery.Announcer
	cancel    context.CancelCauseFunc
	ended     chan struct{}
	linked    chan struct{} // holds one: links have changed
}

// An advertiser whose interface is not there tries again after so long.
const (
	firstAdvertiser = time.Second
	lastAdvertiser  = 30 * time.Second
)

// startAdvertisers starts what the configuration wants, in the network namespace of the
// calling thread. They end with ctx, for its cause, and close waits for them.
func startAdvertisers(ctx context.Context, cfg *Settings, log *slog.Logger) (*advertisers, error) {
	namespace, err := port.CurrentNamespace()
	if err != nil {
		return nil, err
	}
	a := &advertisers{log: log, ctx: ctx, namespace: namespace, running: map[string]*advertiser{}}
	return a, a.apply(cfg)
}

// apply brings them in step with a configuration.
func (a *advertisers) apply(cfg *Settings) error {
	if a == nil {
		return nil // the translator does not run
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, one := range a.running {
		if !slices.Contains(cfg.AnnouncePREF64, name) {
			one.cancel(nil)
			<-one.ended
			delete(a.running, name)
		}
	}
	for _, name := range cfg.AnnouncePREF64 {
		if err := a.start(name, cfg.Pool6); err != nil {
			return err
		}
	}
	return nil
}

// start starts an advertiser, or tells the one that runs of the prefixes; a.mu is held.
func (a *advertisers) start(name string, prefixes []netip.Prefix) error {
	settings := discovery.AnnounceSettings{Interface: name, Prefixes: prefixes}
	if one := a.running[name]; one != nil {
		return one.announcer.Set(settings)
	}
	announcer, err := discovery.NewAnnouncer(settings, a.log)
	if err != nil {
		return err
	}
	one := &advertiser{announcer: announcer, ended: make(chan struct{}), linked: make(chan struct{}, 1)}
	var ctx context.Context
	ctx, one.cancel = context.WithCancelCause(a.ctx)
	a.running[name] = one
	go func() {
		defer close(one.ended)
		if err := a.namespace.Enter(); err != nil {
			a.log.Warn("the prefix is not advertised", "interface", name, "error", err)
			return
		}
		one.run(ctx, name, a.log)
	}()
	return nil
}

// run advertises until ctx is done, and waits for an interface that is not there.
func (one *advertiser) run(ctx context.Context, name string, log *slog.Logger) {
	trouble := retry.Trouble{First: firstAdvertiser, Last: lastAdvertiser}
	for ctx.Err() == nil {
		trouble.Works(time.Now()) // until it returns
		err := one.announcer.Run(ctx)
		if err == nil {
			return
		}
		now := time.Now()
		if trouble.Failed(err.Error(), now) {
			log.Warn("the prefix is not advertised until this is mended", "interface", name, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-one.linked:
			trouble.Changed()
			sleep(ctx, trouble.Wait(time.Now()))
		case <-time.After(trouble.Wait(now)):
		}
	}
}

// sleep waits, but not beyond the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// linksChanged has those try soon that wait for their interface.
func (a *advertisers) linksChanged() {
	if a == nil {
		return // the translator does not run
	}
	if !a.mu.TryLock() {
		return // they are just being changed
	}
	defer a.mu.Unlock()
	for _, one := range a.running {
		select {
		case one.linked <- struct{}{}:
		default: // it knows
		}
	}
}

// close waits until all have ended, which the end of their context asks for.
func (a *advertisers) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.running {
		one.cancel(context.Cause(a.ctx))
		<-one.ended
	}
	a.namespace.Close()
}

// collect reports what they have done.
func (a *advertisers) collect(emit func(role.Metric)) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.running {
		one.announcer.Collect(emit)
	}
}
