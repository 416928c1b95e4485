// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package clatrole is the CLAT that runs: it waits for an uplink and for the prefix of a
// NAT64, gives the host an IPv4 address and a default route, and takes them away when
// either goes. What becomes of packets is decided in translate/clat.
package clatrole

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/retry"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

var _ role.Instance = (*CLAT)(nil)

// CLAT is one instance.
type CLAT struct {
	cfg   Settings
	log   *slog.Logger
	ready chan struct{}
	host  *port.Host
	// fallback are name servers to ask behind those of routers, where the configuration names none.
	fallback func() []netip.AddrPort

	mu      sync.Mutex // guards what follows
	waiting string     // for what; empty while it translates
	problem string     // why it is tried again; empty: it need not be
	narrow  string     // a link without a network of 64 bits
	blind   string     // why no prefix can be looked for; empty: it is, or need not be
	native  bool
	set     pref64.Set
	current *session // nil: none
	ending  *session // is being stopped, and counts until it is among the past
	mtu     int      // of IPv4, while there is a session that serves
	past    totals   // of sessions that have ended

	trouble retry.Trouble // of the main loop alone
	tried   conditions    // likewise
	held    held          // likewise
}

// conditions are what it may hang on whether the host can be set up.
type conditions struct {
	at       port.Uplink6
	prefixes []netip.Prefix
}

// New makes the CLAT that cfg describes, without touching the host.
func New(cfg Settings, log *slog.Logger) (*CLAT, error) {
	return &CLAT{cfg: cfg, log: log, ready: make(chan struct{}), fallback: hostResolvers, waiting: starting, set: pref64.Set{Prefixes: cfg.Prefixes}, trouble: retry.Trouble{First: firstTry, Last: lastTry}}, nil
}

// Name implements [role.Instance].
func (c *CLAT) Name() string { return c.cfg.Name }

// Role implements [role.Instance].
func (c *CLAT) Role() string { return name }

// Ready implements [role.Instance]. An instance that still waits is ready: a host may
// start before its network.
func (c *CLAT) Ready() <-chan struct{} { return c.ready }

// What an instance waits for, in words of the status.
const (
	starting   = "starting"
	waitUplink = "waiting_for_ipv6"
	waitSubnet = "waiting_for_network"
	waitPrefix = "waiting_for_prefix"
	waitClaim  = "claiming_address"
	retrying   = "retrying"
)

// settle is how long changes are collected: an address and its routes come in a burst.
const settle = 20 * time.Millisecond

// again is how long an instance that has no session waits for a change.
const again = 5 * time.Second

// An instance that failed to set itself up tries again after so long.
const (
	firstTry = time.Second
	lastTry  = time.Minute
)

// Run implements [role.Instance]. It works in the network namespace of the process.
func (c *CLAT) Run(ctx context.Context) (err error) {
	if c.host, err = port.OpenHost(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.host.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, err := port.Watch(ctx)
	if err != nil {
		return err
	}
	f := &finder{cfg: &c.cfg, log: c.log, fallback: c.fallback}
	defer f.stop()
	defer func() { err = errors.Join(err, c.stop()) }()
	served := false
	var ended <-chan struct{}
	for {
		now := time.Now()
		if ended, err = c.follow(ctx, f, now); err != nil {
			if !served {
				return err
			}
			c.failed(err, now)
		}
		if !served {
			served = true
			close(c.ready)
		}
		if more, err := c.await(ctx, changes, f.sets, ended); !more {
			return err
		}
	}
}

// follow looks where the uplink is, has the prefix looked for there, and brings the session to
// what is found.
func (c *CLAT) follow(ctx context.Context, f *finder, now time.Time) (ended <-chan struct{}, err error) {
	at, err := c.host.Uplink6(c.cfg.Uplink, c.cfg.Interface, c.tried.at.Subnet)
	if err != nil {
		c.enter(starting)
		return nil, err
	}
	if err := c.find(ctx, f, at, now); err != nil {
		c.failed(err, now)
	}
	return c.reconcile(ctx, at, now)
}

// await waits for something that may change what is to be done; more is false at the
// end of the instance.
func (c *CLAT) await(ctx context.Context, changes <-chan port.Change, sets <-chan pref64.Set, ended <-chan struct{}) (more bool, err error) {
	var due <-chan time.Time
	if wait := c.trouble.Wait(time.Now()); wait > 0 {
		due = time.After(wait)
	} else if ended == nil {
		due = time.After(again)
	}
	select {
	case <-ctx.Done():
		return false, nil
	case _, ok := <-changes:
		if !ok {
			if ctx.Err() != nil {
				return false, nil
			}
			return false, host.ErrWatchEnded
		}
		collect(ctx, changes)
	case set, ok := <-sets:
		if ok {
			c.take(set)
		}
	case <-ended:
	case <-due:
	}
	return true, nil
}

// failed notes why the host is not set up, and tells of it once. What is tried makes
// changes itself, which must not have it tried at once.
func (c *CLAT) failed(err error, now time.Time) {
	c.mu.Lock()
	c.problem = err.Error()
	c.mu.Unlock()
	if c.trouble.Failed(err.Error(), now) {
		c.log.Warn("the translator could not be set up; it is tried again", "error", err, "in", c.trouble.Wait(now))
	}
}

// find has the prefix looked for on the uplink.
func (c *CLAT) find(ctx context.Context, f *finder, at port.Uplink6, now time.Time) error {
	restarted, err := f.follow(ctx, at, c.trouble.Wait(now) == 0)
	if restarted {
		c.sought(err)
		c.take(pref64.Set{}) // what was found elsewhere says nothing of this network
	}
	return err
}

// sought notes why no prefix can be looked for; nil: it is looked for.
func (c *CLAT) sought(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blind = ""; err != nil {
		c.blind = err.Error()
	}
}

// may reports whether the host may be set up now: after a failure only when it is time,
// or the network is another.
func (c *CLAT) may(at port.Uplink6, prefixes []netip.Prefix, now time.Time) bool {
	if !sameUplink(c.tried.at, at) || !slices.Equal(c.tried.prefixes, prefixes) {
		c.trouble.Changed()
		c.tried = conditions{at, prefixes}
	}
	return c.trouble.Wait(now) == 0
}

// take keeps what was found.
func (c *CLAT) take(set pref64.Set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set = set
}

// collect takes the changes that come within the time they need to settle.
func collect(ctx context.Context, changes <-chan port.Change) {
	timer := time.NewTimer(settle)
	defer timer.Stop()
	for {
		select {
		case _, ok := <-changes:
			if !ok {
				return
			}
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// reconcile brings the session to what the network is now. The channel tells when
// the session has ended or its claim was decided; it is nil without a session.
func (c *CLAT) reconcile(ctx context.Context, at port.Uplink6, now time.Time) (ended <-chan struct{}, err error) {
	c.mu.Lock()
	s, prefixes := c.current, slices.Clone(c.set.Prefixes)
	c.narrow = at.Narrow
	c.mu.Unlock()
	if s != nil && s.over() {
		c.failed(s.failure(), now)
	}
	may := c.may(at, prefixes, now)
	w := way{prefixes: prefixes}
	if s != nil && (!s.serves(at) || s.over() || len(prefixes) == 0) {
		c.held = s.leaves()
		if err := c.stop(); err != nil {
			return nil, err
		}
		s = nil
	}
	switch {
	case at.Narrow != "":
		c.wait(waitSubnet)
		return nil, nil
	case at.Name == "":
		c.wait(waitUplink)
		return nil, nil
	case len(prefixes) == 0:
		c.wait(waitPrefix)
		return nil, nil
	case s == nil:
		if c.enter(starting); !may {
			return nil, nil
		}
	}
	if w.mtu, err = c.host.PathMTU6(prefixes[0].Addr(), at.Index); err != nil {
		w.mtu = at.MTU
	}
	switch {
	case s == nil:
		if s, err = newSession(&c.cfg, c.host, at, w, c.held.on(at), c.log); err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.current, c.waiting, c.problem = s, waitClaim, ""
		c.mu.Unlock()
		if err := s.start(ctx, c.host); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	default:
		if err := s.use(w); err != nil {
			return s.news, err
		}
	}
	if !may {
		return s.news, nil
	}
	return s.news, c.lead(s, now)
}

// lead gives the host its address and route once the claim is won, and takes the route
// away while the host has IPv4 of its own.
func (c *CLAT) lead(s *session, now time.Time) error {
	if !s.owned() {
		return nil
	}
	native := false
	if c.cfg.Native == NativeAside {
		var err error
		if native, err = c.host.NativeIPv4(c.cfg.Interface); err != nil {
			return err
		}
	}
	changed, err := s.lead(c.host, !native)
	if err != nil {
		return err
	}
	c.trouble.Works(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mtu = s.mtu4()
	if c.waiting, c.problem = "", ""; !changed && native == c.native {
		return nil
	}
	if c.native = native; native {
		c.log.Info("this host has a default route of IPv4, so the translator steps aside", "interface", c.cfg.Interface)
	} else {
		about := []any{"interface", c.cfg.Interface, "uplink", s.at.Name, "address", s.address, "prefixes", c.set.Prefixes}
		if len(c.cfg.Prefixes) == 0 {
			about = append(about, "source", c.set.Source)
		}
		c.log.Info("serving", about...)
	}
	return nil
}

// wait says for what the instance waits, once.
func (c *CLAT) wait(what string) {
	if c.enter(what) {
		c.log.Info("waiting", "for", what)
	}
}

// enter notes for what the instance waits, and reports whether that is news.
func (c *CLAT) enter(what string) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news = c.waiting != what
	c.waiting = what
	return news
}

// stop ends the session and keeps its counters.
func (c *CLAT) stop() error {
	c.mu.Lock()
	s := c.current
	c.current, c.ending, c.native = nil, s, false
	if s != nil {
		c.waiting = starting
	}
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	err := s.stop(c.host)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past.add(s.totals())
	c.ending = nil
	return err
}

// defaultRoute is all of IPv4.
var defaultRoute = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
