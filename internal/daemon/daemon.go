// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package daemon runs the instances of a configuration as one process. It starts
// and stops them together, tells the service manager, answers on the control
// socket and on the metrics endpoint, and reads the configuration again on
// request. It composes and nothing else: what an instance does is in its run
// package.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/announce"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/metrics"
	"github.com/isthmus-net/isthmus/internal/role"
)

// stopTimeout is how long answers under way on the control socket and the
// metrics endpoint may take once the daemon stops.
const stopTimeout = 2 * time.Second

// Options is what a daemon is made of.
type Options struct {
	// Version is told to those who ask.
	Version string
	// Roles have parsed the configuration.
	Roles role.List
	// Config is the checked configuration, and Path the file from which it came;
	// empty if it came from none.
	Config *config.Config
	Path   string
	// Load reads the configuration again. Nil: there is nothing to reload.
	Load func() (*config.Config, error)
	// Instances are those of Config, not yet running.
	Instances []role.Instance
	// Log receives a line for each change of state, none for packets.
	Log *slog.Logger
	// Level is the level of Log, which a reload may change. May be nil.
	Level *slog.LevelVar
	// Notify tells the service manager; usually Notify of this package.
	Notify func(state string) error
	// Hangup asks for a reload at each value.
	Hangup <-chan os.Signal
}

// Daemon is a set of instances that live and die together.
type Daemon struct {
	Options
	started   time.Time
	announcer *announce.Announcer // nil if nothing is announced
	addresses addresses

	ready  atomic.Bool    // all instances serve
	reload sync.Mutex     // one reload at a time; guards made and now
	made   config.Config  // with what all began
	now    *config.Config // what is in effect
}

// New returns a daemon that is not running yet.
func New(options Options) *Daemon {
	d := &Daemon{
		Options: options, started: time.Now(), made: *options.Config, now: options.Config,
		announcer: announce.New(options.Config.Announce, owner(options.Path), options.Instances, options.Log),
	}
	d.addresses.follow(options.Instances)
	return d
}

// Run works until ctx is done or an instance fails, and returns when all
// instances have undone what they changed. The error is nil after an orderly
// stop.
func (d *Daemon) Run(ctx context.Context) error {
	if len(d.Instances) == 0 {
		return errors.New("the configuration has no instance, so " + NothingToRun(d.Roles))
	}
	group, ctx := errgroup.WithContext(ctx)
	if err := d.endpoints(ctx, group); err != nil {
		return err
	}
	announce.RemoveLeft(d.announcer, owner(d.Path), d.Log)
	serving := d.announce(ctx, group)
	var earlier <-chan struct{}
	for _, instance := range d.Instances {
		ctx := role.InTurn(serving, earlier)
		group.Go(func() error { return runOne(ctx, instance) })
		if d.Roles.TakesSeats(instance.Role()) {
			earlier = instance.Ready()
		}
	}
	group.Go(func() error { return d.supervise(ctx) })
	return group.Wait()
}

// NothingToRun says of a configuration without instances what to add.
func NothingToRun(roles role.List) string {
	return fmt.Sprintf("there is nothing to run: add one of the sections %s (isthmus init prints examples)", strings.Join(config.InstanceSections(roles.Sections()), ", "))
}

// runOne runs one instance and says whose error it was.
func runOne(ctx context.Context, instance role.Instance) error {
	err := instance.Run(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", instance.Role(), instance.Name(), err)
	case ctx.Err() == nil:
		return fmt.Errorf("%s %s stopped without being told to and without saying why: please report this", instance.Role(), instance.Name())
	}
	return nil
}

// supervise reports readiness, answers hang-ups and reports the end.
func (d *Daemon) supervise(ctx context.Context) error {
	if !d.waitReady(ctx) {
		d.notify(d.stopping(ctx))
		return nil
	}
	d.Log.Info("all instances are running", "instances", len(d.Instances))
	d.ready.Store(true)
	d.notify(stateReady)
	for {
		select {
		case <-ctx.Done():
			d.Log.Info("stopping")
			d.notify(d.stopping(ctx))
			return nil
		case <-d.Hangup:
			// Reload has logged what came of it.
			_, _ = d.Reload()
		}
	}
}

// waitReady returns true once all instances serve, false if ctx ends before.
func (d *Daemon) waitReady(ctx context.Context) bool {
	for _, instance := range d.Instances {
		select {
		case <-instance.Ready():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (d *Daemon) notify(state string) {
	if d.Notify == nil {
		return
	}
	if err := d.Notify(state); err != nil {
		d.Log.Warn("cannot tell the service manager", "state", state, "error", err)
	}
}

// endpoints opens the control socket and the metrics endpoint, before any
// instance changes the machine.
func (d *Daemon) endpoints(ctx context.Context, group *errgroup.Group) error {
	var opened []net.Listener
	open := func(listener net.Listener, err error) error {
		if err != nil {
			for _, other := range opened {
				_ = other.Close()
			}
			return err
		}
		opened = append(opened, listener)
		return nil
	}
	settings := d.Config
	if c := settings.Control; c.Socket != "" {
		if err := open(control.Listen(c.Socket, c.Mode, c.Group)); err != nil {
			return err
		}
	}
	if at := settings.Metrics.Listen; at.IsValid() {
		if err := open(listenMetrics(at)); err != nil {
			return err
		}
	}
	for _, listener := range opened {
		group.Go(func() error { // whoever asks waits until it is made; the instances do not
			server := control.NewServer(d)
			if listener.Addr().Network() != "unix" {
				server = metrics.NewServer(d.Version, d.metered())
			}
			return serve(ctx, listener, server)
		})
	}
	return nil
}
