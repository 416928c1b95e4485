// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/bypass"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// fast is the fast path of one relay: programs in the kernel that carry the packets
// of established peers, and the tables that they share with the engine. Without it
// the engine carries all packets, so what goes wrong here costs speed and nothing
// else. One goroutine, on a thread in the relay's network namespace, opens, runs
// and closes it; the methods that lock may be called by all.
type fast struct {
	log      *slog.Logger
	features fastpath.Features
	table    *fastpath.Teredo // nil: the engine is alone
	pins     *fastpath.Pins   // nil: nothing outlives the process
	kept     bool             // it does
	peerSeed peer.Seed
	told     fastpath.Settings // what the programs know
	tunnel   tunnelDevice
	follower *fastpath.Follower
	followed chan struct{} // closed at the end of the follower
	unfollow context.CancelFunc
	warned   string // what was logged last, so that it is logged once
	skips    string // likewise
	host     *port.Host
	// merge says whether the kernel may merge datagrams for the relay's sockets,
	// which it does before tc sees them.
	merge func(on bool)

	woken  chan struct{}   // something that follows has changed
	rules  <-chan struct{} // what redirected packets would not meet may have changed
	traced atomic.Bool     // somebody sees the packets

	mu         sync.Mutex // guards what follows
	cfg        config.Relay
	local      local
	moved      bool                 // links have changed since they were looked at
	failed     error                // why it must end
	attachment *fastpath.Attachment // nil: packets go to the engine
	attachedAs fastpath.AttachConfig
	view       FastPath
	last       []fastpath.Counter // when the tables were given back
	meter      meter
}

// tunnelDevice is the relay's own device.
type tunnelDevice struct {
	name  string
	index int
}

// newFast makes the fast path of a relay, without touching the host.
func newFast(cfg *config.Relay, log *slog.Logger) *fast {
	return &fast{log: log, cfg: *cfg, merge: func(bool) {}, woken: make(chan struct{}, 1), view: FastPath{Path: enginePath}}
}

// open loads the fast path that the configuration asks for, or finds out why there
// is none.
func (f *fast) open() {
	cfg := f.cfg
	switch {
	case cfg.FastPath == config.FastPathOff:
		f.view.Why = "it is switched off in the configuration"
	default:
		f.load(&cfg)
	}
	if f.table == nil {
		if err := discardPins(cfg.Name); err != nil {
			f.log.Warn("what an earlier process has left of its fast path cannot be removed", "error", err)
		}
	}
}

// load loads programs and tables, or takes over those that are pinned.
func (f *fast) load(cfg *config.Relay) {
	f.features = fastpath.Probe()
	if !f.features.Programs || !f.features.MappedArrays {
		f.refuse(errors.New(strings.Join(f.features.Missing, " ")))
		return
	}
	if err := f.mayLoad(); err != nil {
		f.refuse(err)
		return
	}
	pins, err := fastpath.OpenPins(pinName(cfg.Name))
	if err == nil {
		f.pins = pins
	} else {
		f.view.NotKept = err.Error()
	}
	tables := fastpath.TeredoConfig{
		Name: cfg.Name, Buckets: peer.HotBytes(cfg.MaxPeers) / peer.BucketBytes,
		Foreign: peer.ForeignLimit(cfg.MaxPeers), Shape: shapeOf(cfg), Pins: f.pins,
	}
	f.table, err = fastpath.LoadTeredo(tables)
	if err != nil && f.pins != nil {
		// What cannot be kept may still be had.
		f.view.NotKept = err.Error()
		f.dropPins()
		tables.Pins = nil
		f.table, err = fastpath.LoadTeredo(tables)
	}
	if err != nil {
		f.refuse(err)
		return
	}
	f.kept = f.pins != nil
	if f.table.Adopted() {
		f.peerSeed = f.table.Settings().Seed
		return
	}
	if f.peerSeed, err = peer.NewSeed(rand.Reader); err != nil {
		f.refuse(err)
		f.kept = false
		_ = f.close()
	}
}

// mayLoad tells what right the process lacks to load programs that handle packets as
// ours do. The verifier's own words would be of pointers.
func (f *fast) mayLoad() error {
	for _, c := range f.features.Capabilities {
		if c == "CAP_PERFMON" || c == "CAP_SYS_ADMIN" {
			return nil
		}
	}
	return errors.New("the process may not load programs of this kind: give it CAP_PERFMON beside CAP_BPF")
}

// refuse notes why the engine is alone, and says so where somebody asked for more.
func (f *fast) refuse(err error) {
	f.view.Why = err.Error()
	if f.cfg.FastPath == config.FastPathAuto {
		f.log.Info("the engine carries all packets", "why", f.view.Why)
	} else {
		f.log.Warn("the fast path cannot be had, so the engine carries all packets", "why", f.view.Why)
	}
}

// dropPins removes what is pinned.
func (f *fast) dropPins() {
	if f.pins != nil {
		_ = f.pins.Remove()
		f.pins = nil
	}
}

// loaded tells whether programs and tables are there, be they attached or not. It
// locks.
func (f *fast) loaded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table != nil
}

// keeps tells whether the fast path outlives the process.
func (f *fast) keeps() bool { return f.kept }

// use tells of the relay's own device, by which the programs ask for routes.
func (f *fast) use(host *port.Host, tun *port.TUN) error {
	f.host, f.tunnel = host, tunnelDevice{tun.Name(), tun.Index()}
	if f.table == nil {
		return nil
	}
	return host.ForwardIPv4(tun.Name())
}

// start attaches the fast path, now that the engine serves.
func (f *fast) start(ctx context.Context) {
	if f.table == nil {
		return
	}
	follower, err := fastpath.NewFollower(f.table)
	if err == nil {
		f.rules, err = bypass.Watch(ctx, bypass.Query{Prefixes: f.cfg.Prefixes})
	}
	if err != nil {
		f.fail(err)
		f.settle()
		return
	}
	f.follower = follower
	ctx, f.unfollow = context.WithCancel(ctx)
	f.followed = make(chan struct{})
	go func() {
		defer close(f.followed)
		if err := follower.Run(ctx); err != nil && ctx.Err() == nil {
			f.fail(fmt.Errorf("routes can no longer be followed: %w", err))
		}
	}()
	f.applySettings()
	f.table.Beat(f.linger())
	f.settle()
}

// stopFollowing ends the follower.
func (f *fast) stopFollowing() {
	if f.follower != nil {
		f.unfollow()
		<-f.followed
		f.follower = nil
	}
}

// linger is how long the programs may go on alone.
func (f *fast) linger() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cfg.FastPathLinger
}

// beat is how often the programs are told that the daemon lives.
const beat = time.Second

// run keeps the fast path in step with configuration and host until ctx ends;
// engine tells what the engine has sent to clients and to IPv6.
func (f *fast) run(ctx context.Context, engine func() [2]uint64) {
	if f.table == nil {
		return
	}
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.woken:
			f.applySettings()
			f.settle()
		case _, open := <-f.rules:
			if !open {
				f.rules = nil // ctx has ended
				continue
			}
			f.settle()
		case now := <-ticker.C:
			f.table.Beat(f.linger())
			f.measure(now, engine())
		}
	}
}
