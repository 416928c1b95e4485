// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package driver keeps the fast path of one instance in step with its configuration
// and its host: it attaches programs and takes them away, follows routes, devices and
// firewall rules, says each second that the daemon lives, and shows what the programs
// do. What the programs are, and what they are told, is the role's: see [Role].
package driver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/fastpath/bypass"
	"github.com/isthmus-net/isthmus/fastpath/follow"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Table is a set of programs with their tables.
type Table interface {
	Programs() fastpath.Programs
	// Trace has them sample packets for the reader of Samples.
	Trace(every, perSecond int)
	Samples() (*ringbuf.Reader, error)
	// Reason is the word of the reason of a sample.
	Reason(uint8) string
	// Counters are what the programs have counted.
	Counters() ([]fastpath.Counter, error)
	Close() error
}

// Forwarder is a table of programs that find the next hops of packets by what the driver
// follows for them, and that may go on alone. Those of others are told each way by the role.
type Forwarder interface {
	Table
	follow.Table
	// Beat lets the programs go on for so long.
	Beat(linger time.Duration)
	// Devices are those that programs may send by.
	Devices() []int
	SetDevice(fastpath.Device) error
	RemoveDevice(index int)
	// Adopted reports whether a process before this one has left the tables.
	Adopted() bool
	Unpin() error
}

// Role is what a driver has to know of the role of its instance. Functions that are not
// marked otherwise are called by the goroutine that opens, runs and closes the driver.
type Role struct {
	// Name is the instance's.
	Name string
	// Packets is what the packets of its programs are called; empty: redirected packets.
	Packets string
	// Keeps is what lives on while the process restarts, such as "sessions"; empty: nothing.
	Keeps string
	// Ephemeral says why nothing outlives the process; empty: the fast path does.
	Ephemeral string
	// Load loads programs and tables, or takes over those in the pins; nil pins keep
	// nothing.
	Load func(pins *pinned.Folder, features probe.Features) (Table, error)
	// Apply tells the programs what has changed of configuration and host. One at a time
	// calls it, who may hold the locks under which the role calls [Driver.Configure].
	Apply func() error
	// Round does what is due at each look at configuration and host and after each
	// [Driver.Nudge], and returns when that is the next time; 0: not before one of these.
	Round func() time.Duration
	// AttachBlocked says why the programs must not be attached now; empty: they may.
	AttachBlocked func() string
	// Carried tells on what way packets go: xdp, tc or engine.
	Carried func(path string)
	// Steer is a further program at tc ingress of all devices, in any mode, if there is
	// one to be attached now.
	Steer func() *Steering
	// Measure returns what has passed so far, under the names that rates are shown by. A
	// [Forwarder] needs it.
	Measure func() map[string]uint64
}

// Steering is a program that is attached beside the others, whatever the mode is.
type Steering struct{ Programs fastpath.Programs }

// Config is what the configuration of an instance says of its fast path.
type Config struct {
	Mode    fastpath.Mode
	Devices []string
	Linger  time.Duration
	// Host reports that packets start and end on this host.
	Host bool
	// Forward4 reports that IPv4 packets are forwarded.
	Forward4 bool
	// Local4 reports that IPv4 datagrams start and end on this host, too.
	Local4 bool
	// Prefixes are what is carried, for the search for rules that would be passed by.
	Prefixes []netip.Prefix
}

// Driver is the fast path of one instance. Without it the engine carries all packets,
// so what goes wrong here costs speed and nothing else. One goroutine, on a thread in
// the instance's network namespace, opens, runs and closes it; the methods that lock may
// be called by all.
type Driver struct {
	role     Role
	log      *slog.Logger
	features probe.Features
	table    Table          // nil: the engine is alone
	forward  Forwarder      // the same, if it is one
	pins     *pinned.Folder // nil: nothing outlives the process
	kept     bool           // it does
	tunnel   tunnelDevice
	follower *follow.Follower
	followed chan struct{} // closed at the end of the follower
	unfollow context.CancelFunc
	told     map[topic]string  // what was logged last, so that it is logged once
	skips    string            // likewise
	slow     map[string]string // likewise, by device
	host     *port.Host
	// attachAll is [attach.Attach], unless a test sees what it is asked for.
	attachAll func(fastpath.Programs, attach.Config) (*attach.Attachment, error)
	refusal   refusal
	steering  *attach.Attachment // of Role.Steer
	steered   []string           // its devices as configured

	woken  chan struct{}   // something that follows has changed
	nudged chan struct{}   // a round is due
	rules  <-chan struct{} // what redirected packets would not meet may have changed
	traced atomic.Bool     // someone sees the packets

	applying sync.Mutex // one at a time calls Role.Apply, who does not hold mu
	applies  bool       // Role.Apply may be called

	mu         sync.Mutex // guards what follows
	cfg        Config
	moved      bool               // links have changed since they were looked at
	replaced   bool               // likewise the instance's own device
	failed     error              // why it must end
	awake      time.Time          // when the goroutine of Run was last seen to do nothing long
	attachment *attach.Attachment // nil: packets go to the engine
	attachedAs attach.Config
	view       Status
	last       []fastpath.Counter // when the tables were given back
	meter      meter
}

// tunnelDevice is the instance's own device.
type tunnelDevice struct {
	name  string
	index int
}

// New makes a driver, without touching the host.
func New(role Role, cfg Config, log *slog.Logger) *Driver {
	if role.AttachBlocked == nil {
		role.AttachBlocked = func() string { return "" }
	}
	if role.Carried == nil {
		role.Carried = func(string) {}
	}
	if role.Steer == nil {
		role.Steer = func() *Steering { return nil }
	}
	if role.Apply == nil {
		role.Apply = func() error { return nil }
	}
	if role.Round == nil {
		role.Round = func() time.Duration { return 0 }
	}
	role.Packets = cmp.Or(role.Packets, "redirected packets")
	return &Driver{
		role: role, log: log, cfg: cfg, told: make(map[topic]string), woken: make(chan struct{}, 1), nudged: make(chan struct{}, 1),
		attachAll: attach.Attach, view: Status{Path: EnginePath, Keeps: role.Keeps},
	}
}

// Features are what the kernel can do, after Open.
func (f *Driver) Features() probe.Features { return f.features }

// Loaded reports whether programs and tables are there, be they attached or not. It
// locks.
func (f *Driver) Loaded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table != nil
}

// Keeps reports whether the fast path outlives the process.
func (f *Driver) Keeps() bool { return f.kept }

// Inherited reports whether the fast path is that of a process before this one, and is kept.
// As long as this one does not serve, its end is no reason to take it away.
func (f *Driver) Inherited() bool { return f.kept && f.forward != nil && f.forward.Adopted() }

// Tunnel is the interface index of the instance's own device, after Use.
func (f *Driver) Tunnel() int { return f.tunnel.index }

// Use reports the instance's own device, by which the programs ask for routes.
func (f *Driver) Use(host *port.Host, tun *port.TUN) error {
	f.host, f.tunnel = host, tunnelDevice{tun.Name(), tun.Index()}
	if f.forward == nil {
		return nil
	}
	return host.ForwardIPv4(tun.Name())
}

// Start attaches the fast path, now that the engine serves, when it is the instance's turn.
func (f *Driver) Start(ctx context.Context) {
	if f.table == nil {
		return
	}
	role.AwaitTurn(ctx)
	f.mu.Lock()
	q := bypass.Query{Prefixes: f.cfg.Prefixes}
	f.mu.Unlock()
	var err error
	if f.rules, err = bypass.Watch(ctx, q); err == nil && f.forward != nil {
		err = f.follow(ctx)
	}
	if err != nil {
		f.Fail(err)
		f.settle()
		return
	}
	f.setApplies(true)
	f.apply()
	if f.forward != nil {
		f.measure(time.Now(), f.role.Measure())
	}
	defer f.keepBeating()()
	f.settle()
}

// follow keeps next hops in step with the kernel's routes.
func (f *Driver) follow(ctx context.Context) error {
	follower, err := follow.New(f.forward)
	if err != nil {
		return err
	}
	f.follower = follower
	ctx, f.unfollow = context.WithCancel(ctx)
	f.followed = make(chan struct{})
	go func() {
		defer close(f.followed)
		if err := follower.Run(ctx); err != nil && ctx.Err() == nil {
			f.Fail(fmt.Errorf("routes can no longer be followed: %w", err))
		}
	}()
	return nil
}

// setApplies says whether Role.Apply may be called.
func (f *Driver) setApplies(on bool) {
	f.applying.Lock()
	defer f.applying.Unlock()
	f.applies = on
}

// stopFollowing ends the follower.
func (f *Driver) stopFollowing() {
	if f.follower != nil {
		f.unfollow()
		<-f.followed
		f.follower = nil
	}
}

// linger is how long the programs may go on alone.
func (f *Driver) linger() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg.Linger
}

// Run keeps the fast path in step with configuration and host until ctx ends.
func (f *Driver) Run(ctx context.Context) {
	if f.table == nil {
		return
	}
	defer f.keepBeating()()
	var seconds <-chan time.Time // without them who does nothing is not woken
	if f.forward != nil {
		ticker := time.NewTicker(beatInterval)
		defer ticker.Stop()
		seconds = ticker.C
	}
	var due <-chan time.Time
	round := func() {
		if due = nil; ctx.Err() == nil {
			if wait := f.role.Round(); wait > 0 {
				due = time.After(wait)
			}
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.woken:
			f.settle()
			round()
		case <-f.nudged:
			select { // a round finds the devices as they are by now
			case <-f.woken:
				f.settle()
			default:
			}
			round()
		case <-due:
			round()
		case _, open := <-f.rules:
			if !open {
				f.rules = nil // ctx has ended
				continue
			}
			f.settle()
			round()
		case now := <-seconds:
			f.stir()
			if f.pins != nil {
				f.pins.Touch()
			}
			f.measure(now, f.role.Measure())
			if f.attachment != nil && f.attachment.Failing() {
				f.LinksChanged()
			}
		}
	}
}

// apply tells the programs what has changed, from Start on. It locks.
func (f *Driver) apply() {
	f.applying.Lock()
	defer f.applying.Unlock()
	if !f.applies {
		return
	}
	if err := f.role.Apply(); err != nil {
		f.Fail(fmt.Errorf("its programs refuse the settings: %w", err))
	}
}
