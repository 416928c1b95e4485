// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package announce makes the prefixes of instances known to routers while the
// instances work, by BGP or by routes for a routing daemon of the host. It knows
// no role: an instance says which prefixes lead to it and checks itself.
//
// When to announce is decided in package health; who is told, by a Speaker.
package announce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/announce/bgp"
	"github.com/isthmus-net/isthmus/internal/announce/health"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/retry"
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

	mu      sync.Mutex // guards what follows, and in members what changes
	cfg     config.Announce
	speaker Speaker // while Run runs
	told    map[netip.Prefix]told
	ended   bool // nothing is announced any more
}

// told is what the speaker knows of a prefix.
type told struct {
	of   *member
	done bool // what it was last asked for; if not, the prefix may be announced or not
}

// failedAgain is how long announcing must have worked for the same failure to be logged again.
const failedAgain = time.Minute

// member is one instance that is announced.
type member struct {
	instance role.Announced
	log      *slog.Logger
	prefixes []netip.Prefix
	machine  health.Machine
	failure  error // of the speaker, which is asked again with the next check
	trouble  retry.Trouble
	reported bool          // the failure is in the log
	checked  chan struct{} // closed after the first check
	once     sync.Once
	wake     chan struct{} // the machine may have another time for Next
}

// New returns an announcer of those instances that have something to announce;
// nil if none has. An instance whose list is empty, not nil, may have something
// later. Nothing is announced before Run.
func New(cfg config.Announce, instances []role.Instance, log *slog.Logger) *Announcer {
	a := &Announcer{log: log, cfg: cfg, open: open, ping: ping, told: map[netip.Prefix]told{}}
	for _, instance := range instances {
		announced, ok := instance.(role.Announced)
		if !ok {
			continue
		}
		prefixes := announced.AnnouncedPrefixes()
		if prefixes == nil {
			continue
		}
		a.members = append(a.members, &member{
			instance: announced, prefixes: prefixes,
			log:     log.With("role", instance.Role(), "instance", instance.Name()),
			machine: health.Machine{Config: patience(cfg)}, trouble: retry.Trouble{Last: failedAgain},
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
	if err := a.begin(); err != nil {
		return err
	}
	group, working := errgroup.WithContext(ctx)
	for _, m := range a.members {
		group.Go(func() error { a.follow(working, m); return nil })
	}
	group.Go(func() error { return a.addPeers(working) })
	return errors.Join(group.Wait(), a.end(role.Leaving(ctx)))
}

// begin opens the speaker.
func (a *Announcer) begin() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	speaker, err := a.open(a.cfg, a.log)
	if err == nil { // with an error it may be a nil pointer, which an interface does not show
		a.speaker = speaker
	}
	return err
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
	known := slices.SortedFunc(maps.Keys(a.told), netip.Prefix.Compare)
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
func (a *Announcer) follow(ctx context.Context, m *member) {
	select {
	case <-ctx.Done():
		return
	case <-m.instance.Ready():
	}
	results := make(chan string)
	go a.checks(ctx, m, results)
	for {
		var due <-chan time.Time
		if next := a.next(m); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		// A failure of the speaker is in the log and in the status.
		select {
		case <-ctx.Done():
			return
		case problem := <-results:
			_ = a.change(m, func(now time.Time) { m.machine.Check(problem, now) })
			m.once.Do(func() { close(m.checked) })
		case <-due:
			_ = a.change(m, func(now time.Time) { m.machine.Tick(now) })
		case <-m.wake:
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
// follows from it. The error is what they could not be told of the member.
func (a *Announcer) change(m *member, apply func(now time.Time)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return nil
	}
	m.readPrefixes()
	was := m.machine.Announced()
	apply(time.Now())
	state, _, problem := m.machine.State()
	switch is := m.machine.Announced(); {
	case is && !was:
		m.log.Info("announcing", "prefixes", m.prefixes)
	case was && !is:
		m.log.Warn("withdrawing", "prefixes", m.prefixes, "state", state, "problem", problem)
	}
	a.tell()
	return m.failure
}

// readPrefixes asks the instance for its prefixes, which a reload changes, and the end of
// what it still serves. a.mu is held.
func (m *member) readPrefixes() {
	before := m.prefixes
	m.prefixes = m.instance.AnnouncedPrefixes()
	if m.machine.Announced() && !slices.Equal(before, m.prefixes) {
		m.log.Info("announcing other prefixes", "prefixes", m.prefixes, "before", before)
	}
}

// tell has routers know the prefixes of announced members and no others. What fails is
// tried again at the next call, and each check is followed by one. a.mu is held.
func (a *Announcer) tell() {
	if a.speaker == nil {
		return
	}
	want := map[netip.Prefix]*member{}
	var add, drop []netip.Prefix
	for _, m := range a.members {
		if !m.machine.Announced() {
			continue
		}
		for _, p := range m.prefixes {
			if want[p] == nil && !a.told[p].done {
				add = append(add, p)
			}
			want[p] = m
		}
	}
	for p := range a.told {
		if want[p] == nil {
			drop = append(drop, p)
		}
	}
	slices.SortFunc(drop, netip.Prefix.Compare)
	failed := map[*member]error{}
	ask(a.speaker.Announce, add, func(p netip.Prefix, err error) {
		a.told[p] = told{want[p], err == nil}
		failed[want[p]] = cmp.Or(failed[want[p]], err)
	})
	ask(a.speaker.Withdraw, drop, func(p netip.Prefix, err error) {
		of := a.told[p].of
		failed[of] = cmp.Or(failed[of], err)
		if delete(a.told, p); err != nil {
			a.told[p] = told{of, false}
		}
	})
	for _, m := range a.members {
		m.note(failed[m], time.Now())
	}
}

// ask asks the speaker for prefixes, for each by itself if not all succeed together.
func ask(what func(...netip.Prefix) error, prefixes []netip.Prefix, done func(netip.Prefix, error)) {
	if len(prefixes) == 0 {
		return
	}
	together := what(prefixes...)
	for _, p := range prefixes {
		err := together
		if err != nil && len(prefixes) > 1 {
			err = what(p)
		}
		done(p, err)
	}
}

// note keeps what has become of announcing a member; a.mu is held.
func (m *member) note(failure error, now time.Time) {
	switch {
	case failure != nil:
		if m.trouble.Failed(failure.Error(), now) {
			m.log.Warn("announcing fails, and is tried again with each check", "error", failure)
			m.reported = true
		}
	case m.failure != nil:
		m.trouble.Works(now)
		if m.reported {
			m.log.Info("announcing works again")
			m.reported = false
		}
	}
	m.failure = failure
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
		err = errors.Join(err, a.change(m, func(now time.Time) { m.machine.Drain(on, now) }))
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
	switch {
	case a.ended:
		s.State = "stopped"
	case m.failure != nil:
		if state == health.Announced {
			s.State = "announce_failed"
		}
		s.Problem = strings.TrimPrefix(problem+"; "+m.failure.Error(), "; ")
	case state == health.Announced && len(m.prefixes) == 0:
		s.State = "nothing_to_announce"
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

// Reload takes a new section, and what the instances have to announce by now. It returns
// the keys that wait for a restart.
func (a *Announcer) Reload(next config.Announce) (needsRestart []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	live, needsRestart := config.Reload(a.cfg, next)
	if a.speaker != nil && !a.ended {
		err = a.speaker.Reconfigure(live)
	}
	if err == nil {
		a.cfg = live
	}
	for _, m := range a.members {
		m.machine.Config = patience(a.cfg)
		m.readPrefixes() // the instances have been reloaded before
	}
	if !a.ended {
		a.tell()
	}
	return needsRestart, err
}
