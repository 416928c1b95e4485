// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

var (
	_ role.Changer[Settings] = (*NAT64)(nil)
	_ role.Tracer            = (*NAT64)(nil)
)

// NAT64 is one stateful translator: a TUN device with routes to its pools.
type NAT64 struct {
	name   string
	log    *slog.Logger
	loop   loop.Loop[*nat64.Out]
	ready  chan struct{}
	device *gateway.Device
	events eventLog
	fast   *fast

	engine  atomic.Pointer[nat64.Engine] // nil before the state is open
	path    translate.Path               // guarded by the loop
	adopted int                          // sessions of an earlier process

	mu          sync.Mutex // guards what follows, and the order of changes
	cfg         Settings
	own         gateway.Own
	hosts       []netip.Addr   // this host's IPv4 addresses
	local       []netip.Prefix // the same with loopback, broadcast and local routes
	leaving     leaving        // no longer named, but sessions have it
	memory      *memory
	advertisers *advertisers // of pool6; nil before they are started
	ftp         *ftpGateway  // nil before it is open
}

// New makes the translator that cfg describes, without touching the host.
func New(cfg Settings, log *slog.Logger) (*NAT64, error) {
	if _, err := engineSettings(&cfg, gateway.Own{}, nil); err != nil {
		return nil, err
	}
	if err := sizesOf(&cfg).Check(); err != nil {
		return nil, err
	}
	n := &NAT64{name: cfg.Name, log: log, ready: make(chan struct{}), device: gateway.NewDevice(log), cfg: cfg}
	n.events.log, n.events.Write = log, n.events.write
	n.fast = newFast(&cfg, log)
	n.fast.engine = n.stats
	n.loop.NewOutput = func() *nat64.Out { return new(nat64.Out) }
	n.loop.EachDropped = n.eachDropped
	n.loop.Settled = n.settled
	return n, nil
}

// Name implements [role.Instance].
func (n *NAT64) Name() string { return n.name }

// Role implements [role.Instance].
func (n *NAT64) Role() string { return name }

// Ready implements [role.Instance].
func (n *NAT64) Ready() <-chan struct{} { return n.ready }

// Run implements [role.Instance]. It opens the device in the network namespace of the
// calling thread.
func (n *NAT64) Run(ctx context.Context) (err error) {
	serves := false
	defer func() {
		failed := err != nil && !serves
		err = errors.Join(err, n.close(n.leaves(ctx) || failed && n.fast.Inherited()))
	}()
	if err := n.openFast(); err != nil {
		return err
	}
	if err := n.open(); err != nil {
		return err
	}
	ftp, err := n.openFTP()
	if err != nil {
		return err
	}
	defer ftp.close()
	group, ctx, end := host.Group(ctx)
	defer end()
	if err := host.Follow(ctx, group, n.changed); err != nil {
		return err
	}
	// Addresses may have changed before the watch began.
	if err := n.look(); err != nil {
		return err
	}
	if err := n.advertise(ctx); err != nil {
		return err
	}
	defer n.advertisers.close()
	if err := n.device.Keep(ctx, group); err != nil {
		return err
	}
	for _, tun := range n.device.Queues() {
		group.Go(func() error {
			return n.loop.ReadTunQuick(tun, loop.Ports{IP: tun}, loop.Quick[[]byte, *nat64.Out]{}, n.handle)
		})
	}
	group.Go(func() error { n.loop.RunTimer(ctx); return nil })
	group.Go(func() error { n.letGoByAndBy(ctx); return nil })
	group.Go(func() error { n.events.Run(ctx); return nil })
	defer context.AfterFunc(ctx, func() {
		ftp.close() // while its last words can still leave
		n.device.End(n.leaves(ctx))
	})()
	n.fast.Start(ctx)
	n.announce()
	serves = true
	close(n.ready)
	n.fast.Run(ctx)
	return group.Wait()
}

// handle gives a packet of either family to the engine.
func (n *NAT64) handle(ip []byte, now time.Time, out *nat64.Out) {
	e := n.engine.Load()
	if n.device.Turn(ip, &out.Batch) {
		return
	}
	if len(ip) > 0 && ip[0]>>4 == 6 {
		e.HandleIPv6(ip, n.path, now, out)
	} else {
		e.HandleIPv4(ip, n.path, now, out)
	}
}

// do runs f with the engine to itself; false: there is none yet.
func (n *NAT64) do(f func(e *nat64.Engine, now time.Time, out *nat64.Out)) bool {
	e := n.engine.Load()
	if e != nil {
		n.loop.Do(func(now time.Time, out *nat64.Out) { f(e, now, out) })
	}
	return e != nil
}

// open opens the device and the state, then sets the routes, so that no packet comes
// before it can be handled.
func (n *NAT64) open() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.device.Open(&n.cfg.Translation, n.fast.Keeps(), n.fast.DeviceReplaced); err != nil {
		return err
	}
	err := n.fast.Use(n.device.Host(), n.device.Queues()[0])
	if err != nil {
		return err
	}
	if n.hosts, err = n.device.Addresses4(); err != nil {
		return err
	}
	if n.local, err = n.device.Local4(); err != nil {
		return err
	}
	if n.own, err = n.device.LookOwn(); err != nil {
		return err
	}
	if err := errors.Join(n.device.Apart(n.cfg.Pool6), n.steerable(&n.cfg), n.portsApart(ownRanges(n.cfg.Pool4, n.hosts))); err != nil {
		return err
	}
	if err := n.openState(); err != nil {
		return err
	}
	n.loop.IP = n.device.Queues()[0]
	return n.lead()
}

// advertise starts to tell hosts of pool6 where the configuration wants it.
func (n *NAT64) advertise(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var err error
	n.advertisers, err = startAdvertisers(ctx, &n.cfg, n.log)
	return err
}

// openFast loads the fast path, also for the program alone that leads packets for
// addresses of this host to the engine: those of the pool, and those that kept sessions may
// still have. Sessions that a process before this one has left in its tables go on there
// though no program carries them.
func (n *NAT64) openFast() error {
	host, err := port.OpenHost()
	if err != nil {
		return err
	}
	defer host.Close()
	hosts, err := gateway.HostAddresses(host, n.cfg.Interface)
	if err == nil {
		n.fast.Open(len(ownInPool(&n.cfg, hosts)) > 0 || n.cfg.KeepState && n.fast.Left() || slices.ContainsFunc(notedOwn(&n.cfg), func(r nat64.Range) bool {
			return slices.Contains(hosts, r.Prefix.Addr())
		}))
	}
	return err
}

// openState makes the engine over its memory, and gives it the static bindings; n.mu is
// held.
func (n *NAT64) openState() error {
	settings, err := engineSettings(&n.cfg, n.own, n.hosts)
	if err != nil {
		return err
	}
	sizes := sizesOf(&n.cfg)
	if n.memory, err = n.takeMemory(sizes); err != nil {
		return err
	}
	table, adopted, err := openTable(sizes, n.memory)
	if err != nil {
		return err
	}
	if n.memory.other {
		n.log.Warn("what was kept of sessions is of another version, has other sizes or is damaged: it is replaced, and its sessions end")
	}
	n.events.blocks.Store(n.cfg.BlockLog)
	var before note
	if adopted && n.memory.note != nil {
		before = parseNote(n.memory.note())
	}
	e, err := n.newEngine(settings, table, adopted, before.prefixes)
	if err != nil {
		return err
	}
	n.loop.Engine = e
	if adopted {
		n.adopted = e.Sizes().Sessions
	}
	if n.adopted > 0 {
		n.log.Info("sessions of an earlier process go on", "sessions", n.adopted)
	}
	n.loop.Do(func(now time.Time, out *nat64.Out) { err = setStatics(e, staticsOf(&n.cfg), now, out) })
	if err != nil {
		return err
	}
	e.SetClosed(n.closed(&n.cfg))
	n.path = pathOf(&n.cfg, n.own)
	n.engine.Store(e)
	if adopted {
		n.takeUp(before.own)
	}
	n.tell(e, &settings, &n.cfg)
	return nil
}

func pathOf(cfg *Settings, at gateway.Own) translate.Path {
	return translate.Path{MTU4: cfg.IPv4MTU, MTU6: cfg.IPv6MTU, Link4: at.MTU4, Link6: at.MTU6}
}

// reconfigure gives the engine settings; n.mu is held.
func (n *NAT64) reconfigure(s nat64.Settings, cfg *Settings) error {
	err := errors.New("the translator is not running, so it cannot take new settings: restart it")
	n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) {
		if err = e.Reconfigure(s); err == nil {
			e.SetClosed(n.closed(cfg))
			n.tell(e, &s, cfg)
			n.path = pathOf(cfg, n.own)
			n.events.blocks.Store(cfg.BlockLog)
		}
	})
	return err
}

// stats are the engine's counters.
func (n *NAT64) stats() (s nat64.Stats) {
	n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) { s = e.Stats() })
	return s
}

// leaves reports whether what carries sessions is kept for a successor.
func (n *NAT64) leaves(ctx context.Context) bool { return role.Leaving(ctx) && n.fast.Keeps() }

// close takes the fast path, the routes and the device away, then the memory, when no
// packet comes any more; or keeps what carries sessions for a successor.
func (n *NAT64) close(leave bool) error {
	if !leave {
		n.fast.Detach("")
	}
	err := n.device.Close(leave)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.engine.Store(nil)
	// Whoever had the engine before holds the loop as long as it is in use.
	n.loop.Idle()
	if leave {
		err = errors.Join(err, n.fast.Leave())
	} else {
		err = errors.Join(err, n.saveState(), n.fast.Close())
	}
	if n.memory != nil {
		err = errors.Join(err, n.memory.free())
		n.memory = nil
	}
	return err
}

// announce logs how the translator serves, once.
func (n *NAT64) announce() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log.Info("serving", "interface", n.device.Name(), "pool6", n.cfg.Pool6, "pool4", n.cfg.Pool4, "clients", n.cfg.Clients, "workers", len(n.device.Queues()))
	passage := n.passage()
	passage.Advise(n.log)
	settings, err := engineSettings(&n.cfg, n.own, n.hosts)
	if err != nil {
		return
	}
	for _, sentence := range slices.Concat(settings.Advice(), adviseFit(&n.cfg, n.hosts)) {
		n.log.Warn(sentence)
	}
	gateway.WarnOwn(n.log, &settings.Translate)
}
