// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

var (
	_ role.Instance          = (*Handover)(nil)
	_ role.Changer[Settings] = (*Handover)(nil)
	_ role.PeerLister        = (*Handover)(nil)
	_ role.AddressSource     = (*Handover)(nil)
)

// Handover is a Teredo client that works by several interfaces at once. Each path
// is a whole [Client] with a socket bound to its interface, kept qualified; all
// share one tunnel. The address of one path is preferred, so a move to another
// changes a preference, and what still comes by the old path is accepted.
type Handover struct {
	name  string
	log   *slog.Logger
	ready chan struct{}
	tun   *device
	hook  *hook
	host  *port.Host
	peers recent
	fresh chan struct{} // the host sends to a new destination
	// owners tells the readers of the tunnel whose a packet is.
	owners atomic.Pointer[[]owner]

	mu     sync.Mutex // guards what follows
	cfg    Settings
	paths  []*path
	active int // index into paths, -1 is none
}

// NewHandover makes the client that cfg describes, without touching the host.
func NewHandover(cfg Settings, log *slog.Logger) (*Handover, error) {
	h := &Handover{
		name: cfg.Name, log: log, cfg: cfg, ready: make(chan struct{}), active: -1,
		tun:   newDevice(cfg, log),
		hook:  newHook(cfg.OnChange, cfg.OnChangeTimeout, log),
		fresh: make(chan struct{}, 1),
	}
	h.tun.onChange(h.hook.push)
	h.tun.fast.sent = h.noteDestination
	h.owners.Store(new([]owner))
	for _, name := range cfg.Interfaces {
		h.paths = append(h.paths, &path{iface: name})
	}
	// What makes a client impossible shows now and not when its interface comes.
	if _, err := h.newClient(h.paths[0]); err != nil {
		return nil, err
	}
	return h, nil
}

// ofPath are the settings of the client of a path. The sockets of predicted ports are opened
// by the goroutine of Client.Run, which a path does not have.
func (h *Handover) ofPath(s Settings) Settings {
	s.RandomPorts = 0
	return s
}

// newClient makes the client of a path.
func (h *Handover) newClient(p *path) (*Client, error) {
	c, err := NewClient(h.ofPath(h.cfg), h.log.With("via", p.iface))
	if err != nil {
		return nil, err
	}
	c.via, c.dev = p.iface, h.tun
	c.joinFast(h.tun.fast)
	c.loop.IP = h.tun
	c.above = h.handle
	return c, nil
}

// Name implements [role.Instance].
func (h *Handover) Name() string { return h.name }

// Role implements [role.Instance].
func (h *Handover) Role() string { return name }

// Ready implements [role.Instance].
func (h *Handover) Ready() <-chan struct{} { return h.ready }

// OnAddressChange implements [role.AddressSource].
func (h *Handover) OnAddressChange(f func(event.AddressChange)) { h.tun.onChange(f) }

// Run implements [role.Instance]. It opens everything in the network namespace of
// the calling thread, also what belongs to an interface that comes later.
func (h *Handover) Run(ctx context.Context) (err error) {
	announce(&h.cfg, h.log)
	// A path would take a faulty key for a fault of its interface.
	h.mu.Lock()
	_, err = h.cfg.credential()
	h.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	group, ctx, end := host.Group(ctx)
	defer end()
	changes, err := port.Watch(ctx)
	if err != nil {
		return err
	}
	if h.host, err = port.OpenHost(); err != nil {
		return err
	}
	if err := h.tun.open(ctx); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, h.tun.endReads)()
	if err := h.tun.keep(ctx, group); err != nil {
		return err
	}
	group.Go(h.readTun)
	group.Go(func() error { h.hook.run(ctx); return nil })
	group.Go(func() error { h.keepWarm(ctx); return nil })
	h.tun.startFast(ctx, group)
	err = h.follow(ctx, changes, func() { close(h.ready) })
	group.Go(func() error { return err }) // ends the others
	return group.Wait()
}

// follow keeps the paths in step with the interfaces, until ctx is done.
func (h *Handover) follow(ctx context.Context, changes <-chan port.Change, started func()) error {
	if err := h.lookAround(ctx); err != nil {
		return err
	}
	started()
	for {
		select {
		case change, ok := <-changes:
			if !ok && ctx.Err() == nil {
				return host.ErrWatchEnded
			}
			if !ok {
				return nil
			}
			// A carrier that goes cannot wait for what else changes.
			if change.Kind != port.LinkChanged {
				host.Settle(ctx, changes, func(port.Change) {})
			}
		case <-h.again():
		}
		// At the end the tunnel may go before what was seen last is done.
		if err := h.lookAround(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// close ends the paths and gives everything back.
func (h *Handover) close() error {
	h.mu.Lock()
	var ended []chan struct{}
	for _, p := range h.paths {
		if p.client != nil {
			p.stop()
			ended = append(ended, p.ended)
		}
	}
	h.mu.Unlock()
	for _, e := range ended {
		<-e
	}
	err := h.tun.close()
	if h.host != nil {
		err = errors.Join(err, h.host.Close())
	}
	return err
}
