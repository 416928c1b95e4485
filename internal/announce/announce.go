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
	"log/slog"
	"maps"
	"net/netip"
	"slices"
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
	// Heard reports whether routers are there to be told, as far as it knows, and since when that is so; zero: from the
	// beginning. It does not wait: each look at an instance asks for it.
	Heard() (some bool, since time.Time)
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
// nil if none has. Owner is the configuration file, empty if there is none. An instance whose list is empty, not nil, may have something
// later. Nothing is announced before Run.
func New(cfg config.Announce, owner string, instances []role.Instance, log *slog.Logger) *Announcer {
	open := func(cfg config.Announce, log *slog.Logger) (Speaker, error) { return open(cfg, owner, log) }
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
func open(cfg config.Announce, owner string, log *slog.Logger) (Speaker, error) {
	if cfg.Method == config.AnnounceRoute {
		return openSigns(cfg, owner, log)
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
