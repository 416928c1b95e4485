// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package announce makes the prefixes of instances known to routers while the
// instances work, by BGP or by routes for a routing daemon of the host. It knows
// no role: an instance says which prefixes lead to it and checks itself.
//
// When to announce is decided in package health; who is told, by a Speaker.
package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/announce/bgp"
	"github.com/isthmus-net/isthmus/internal/announce/health"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Speaker tells routers. Its methods may be called at any time but after Close.
type Speaker interface {
	// Announce makes prefixes known; those that are known stay so.
	Announce(prefixes ...netip.Prefix) error
	// Withdraw takes prefixes back, and returns when routers have been told.
	Withdraw(prefixes ...netip.Prefix) error
	// AddPeers is called once, when what is ready at the start has been announced.
	AddPeers() error
	// Reconfigure takes what can change while prefixes are announced.
	Reconfigure(config.Announce) error
	// Neighbors are the routers that are told, if it knows them.
	Neighbors() []role.Neighbor
	// Close takes back what is announced, or leaves it to a successor.
	Close(leave bool) error
}

var (
	_ Speaker = (*bgp.Speaker)(nil)
	_ Speaker = (*signs)(nil)
)

// firstChecks bounds the wait for the first check of each instance before routers
// are met: an instance that does not start must not keep the others unknown.
const firstChecks = 5 * time.Second

// Announcer announces the prefixes of all instances that ask for it.
type Announcer struct {
	log     *slog.Logger
	open    func(config.Announce, *slog.Logger) (Speaker, error)
	ping    func(ctx context.Context, to netip.Addr) error
	members []*member

	mu      sync.Mutex // guards what follows, and the machines of members
	cfg     config.Announce
	speaker Speaker // while Run runs
	ended   bool    // nothing is announced any more
}

// member is one instance that is announced.
type member struct {
	instance role.Announced
	log      *slog.Logger
	prefixes []netip.Prefix
	machine  health.Machine
	checked  chan struct{} // closed after the first check
	once     sync.Once
	wake     chan struct{} // the machine may have another time for Next
}

// New returns an announcer of those instances that have something to announce;
// nil if none has. Nothing is announced before Run.
func New(cfg config.Announce, instances []role.Instance, log *slog.Logger) *Announcer {
	a := &Announcer{log: log, cfg: cfg, open: open, ping: ping}
	for _, instance := range instances {
		announced, ok := instance.(role.Announced)
		if !ok {
			continue
		}
		prefixes := announced.AnnouncedPrefixes()
		if len(prefixes) == 0 {
			continue
		}
		a.members = append(a.members, &member{
			instance: announced, prefixes: prefixes,
			log:     log.With("role", instance.Role(), "instance", instance.Name()),
			machine: health.Machine{Config: patience(cfg)},
			checked: make(chan struct{}), wake: make(chan struct{}, 1),
		})
	}
	if len(a.members) == 0 || cfg.Method == config.AnnounceNone {
		return nil
	}
	return a
}

func patience(cfg config.Announce) health.Config {
	return health.Config{Fall: cfg.Fall, Rise: cfg.Rise, HoldDown: cfg.HoldDown}
}

// open opens the speaker that the configuration names.
func open(cfg config.Announce, log *slog.Logger) (Speaker, error) {
	if cfg.Method == config.AnnounceRoute {
		return openSigns(cfg, log)
	}
	return bgp.Open(cfg, log)
}

// Run announces until ctx is done. Then it withdraws everything and returns after
// the drain time, during which the instances should go on; or at once, with all
// left in place, if [role.Leaving] tells of a successor.
func (a *Announcer) Run(ctx context.Context) error {
	a.mu.Lock()
	cfg := a.cfg
	speaker, err := a.open(cfg, a.log)
	a.speaker = speaker
	a.mu.Unlock()
	if err != nil {
		return err
	}
	group, working := errgroup.WithContext(ctx)
	for _, m := range a.members {
		group.Go(func() error { return a.follow(working, m) })
	}
	group.Go(func() error { return a.addPeers(working) })
	return errors.Join(group.Wait(), a.end(role.Leaving(ctx)))
}

// addPeers begins to talk to routers when each instance has had its first check.
func (a *Announcer) addPeers(ctx context.Context) error {
	late := time.NewTimer(firstChecks)
	defer late.Stop()
	for _, m := range a.members {
		select {
		case <-ctx.Done():
			return nil
		case <-late.C:
			late.Reset(0) // no more waiting for the others either
		case <-m.checked:
		}
	}
	return a.speaker.AddPeers()
}

// end withdraws everything, waits for what is on its way, and closes.
func (a *Announcer) end(leaving bool) error {
	a.mu.Lock()
	a.ended = true
	drain := a.cfg.DrainTime
	var known []netip.Prefix
	for _, m := range a.members {
		if m.machine.Announced() {
			known = append(known, m.prefixes...)
		}
	}
	a.mu.Unlock()
	if leaving {
		return a.speaker.Close(true)
	}
	var err error
	if len(known) > 0 {
		err = a.speaker.Withdraw(known...)
		a.log.Info("withdrew all prefixes, and serves on for what is under way", "prefixes", known, "time", drain)
		time.Sleep(drain)
	}
	return errors.Join(err, a.speaker.Close(false))
}

// follow checks one instance until ctx is done.
func (a *Announcer) follow(ctx context.Context, m *member) error {
	select {
	case <-ctx.Done():
		return nil
	case <-m.instance.Ready():
	}
	results := make(chan string)
	go a.checks(ctx, m, results)
	for {
		var due <-chan time.Time
		if next := a.next(m); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		var err error
		select {
		case <-ctx.Done():
			return nil
		case problem := <-results:
			err = a.change(m, func(now time.Time) bool { return m.machine.Check(problem, now) })
			m.once.Do(func() { close(m.checked) })
		case <-due:
			err = a.change(m, m.machine.Tick)
		case <-m.wake:
		}
		if err != nil {
			return err
		}
	}
}

func (a *Announcer) next(m *member) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return m.machine.Next()
}

// checks reports one result after the other until ctx is done.
func (a *Announcer) checks(ctx context.Context, m *member, results chan<- string) {
	for {
		a.mu.Lock()
		cfg := a.cfg
		a.mu.Unlock()
		again := time.After(cfg.CheckInterval)
		problem := ""
		if err := a.check(ctx, cfg, m.instance); err != nil {
			problem = err.Error()
		}
		if ctx.Err() != nil {
			return // the check was broken off, and its result means nothing
		}
		select {
		case <-ctx.Done():
			return
		case results <- problem:
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
	}
}

// check looks at the instance, then whether one of the hosts answers that stand
// for the rest of the network.
func (a *Announcer) check(ctx context.Context, cfg config.Announce, instance role.Announced) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.CheckTimeout)
	defer cancel()
	if err := instance.CheckSelf(ctx); err != nil {
		return err
	}
	if len(cfg.Check) == 0 {
		return nil
	}
	answers := make(chan error, len(cfg.Check))
	for _, host := range cfg.Check {
		go func() { answers <- a.ping(ctx, host) }()
	}
	var problems []error
	for range cfg.Check {
		err := <-answers
		if err == nil {
			return nil
		}
		problems = append(problems, err)
	}
	if len(problems) > 1 {
		return fmt.Errorf("none of the hosts to check answers: %w", problems[0])
	}
	return problems[0]
}

// change applies one event to the machine of a member, and tells routers what
// follows from it.
func (a *Announcer) change(m *member, apply func(now time.Time) bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := m.machine.Announced()
	if a.ended || !apply(time.Now()) {
		return nil
	}
	state, _, problem := m.machine.State()
	is := m.machine.Announced()
	switch {
	case is && !was:
		m.prefixes = m.instance.AnnouncedPrefixes() // it may serve more than it was started for
		m.log.Info("announcing", "prefixes", m.prefixes)
		return a.speaker.Announce(m.prefixes...)
	case was && !is:
		m.log.Warn("withdrawing", "prefixes", m.prefixes, "state", state, "problem", problem)
		return a.speaker.Withdraw(m.prefixes...)
	}
	return nil
}

// Drain withdraws the prefixes of the instance of that name, or of all if it is
// empty, and keeps them so until it is called with false. It returns the names of
// those concerned, none if there is no such instance.
func (a *Announcer) Drain(instance string, on bool) (names []string, err error) {
	for _, m := range a.members {
		if instance != "" && m.instance.Name() != instance {
			continue
		}
		names = append(names, m.instance.Name())
		err = errors.Join(err, a.change(m, func(now time.Time) bool { return m.machine.Drain(on, now) }))
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
	return names, err
}

// Announcement tells the state of an instance; ok is false for one that is not
// announced by its configuration.
func (a *Announcer) Announcement(instance string) (s role.Announcement, ok bool) {
	i := slices.IndexFunc(a.members, func(m *member) bool { return m.instance.Name() == instance })
	if i < 0 {
		return s, false
	}
	m := a.members[i]
	a.mu.Lock()
	defer a.mu.Unlock()
	state, since, problem := m.machine.State()
	s = role.Announcement{State: state.String(), Since: since, Problem: problem, Prefixes: slices.Clone(m.prefixes)}
	if a.ended {
		s.State = "stopped"
	}
	return s, true
}

// Neighbors are the routers that are told, if they are known.
func (a *Announcer) Neighbors() []role.Neighbor {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.speaker == nil || a.ended {
		return nil
	}
	return a.speaker.Neighbors()
}

// Reload takes a new section, and returns the keys that wait for a restart.
func (a *Announcer) Reload(next config.Announce) (needsRestart []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	live, needsRestart := config.Reload(a.cfg, next)
	if a.speaker != nil && !a.ended {
		if err := a.speaker.Reconfigure(live); err != nil {
			return nil, err
		}
	}
	a.cfg = live
	for _, m := range a.members {
		m.machine.Config = patience(live)
	}
	return needsRestart, nil
}
