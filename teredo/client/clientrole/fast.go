// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach"
	"github.com/isthmus-net/isthmus/fastpath/bypass"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

const (
	// fastEndpoints bounds the peers on the fast path, of all clients of a device: 64
	// bytes and an element of a kernel hash each, and only for those that there are.
	fastEndpoints = 1 << 16
	// fastLook is how often the fast path is asked whether there was traffic, while
	// there may be.
	fastLook = 250 * time.Millisecond
	// fastPause is how long after its first address a client begins to load programs.
	fastPause = time.Second
	// fastReport is how often the times of each peer are given to the engine. The
	// engine counts on a second.
	fastReport = 900 * time.Millisecond
)

// fastPath carries data of proved peers in the kernel, for the clients of one TUN
// device. The engines say which peers those are; this puts them, with the way to
// each, into the tables of the programs, and reports back what was carried.
//
// Its mutex is taken below those of the engines: whoever holds it calls no engine.
type fastPath struct {
	cfg Settings
	log *slog.Logger
	// sent, if set, is told which peers the host has sent to of late.
	sent func(peer *[16]byte, at time.Time)

	wake      chan struct{}
	replaced  chan struct{} // the device was made again
	addressed chan struct{} // closed by address, when the host has the first address
	address   func()
	kernel    *port.Host  // of the goroutine of run
	traced    atomic.Bool // somebody sees the packets

	mu         sync.Mutex // guards what follows, and all members
	host       *teredobpf.Host
	attachment *attach.Attachment
	devices    map[int]string   // that the programs are attached to, by index
	why        string           // the engine alone carries
	skipped    []bypass.Finding // what packets do not meet
	members    []*fastMember
	numbers    uint32
	stale      bool // devices may have come or gone
}

func newFastPath(cfg Settings, log *slog.Logger) *fastPath {
	f := &fastPath{
		cfg: cfg, log: log, why: "starting",
		wake: make(chan struct{}, 1), replaced: make(chan struct{}, 1), addressed: make(chan struct{}),
	}
	f.address = sync.OnceFunc(func() { close(f.addressed) })
	if cfg.FastPath == fastpath.ModeOff {
		f.why = `fast_path = "off"`
	}
	return f
}

// nudge has the goroutine of run look around.
func (f *fastPath) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// deviceReplaced has the goroutine of run begin again.
func (f *fastPath) deviceReplaced() {
	select {
	case f.replaced <- struct{}{}:
	default:
	}
}

// run loads and attaches the programs in a namespace, and serves them until ctx is
// done. Only where the operator insists on the fast path its absence is an error.
func (f *fastPath) run(ctx context.Context, ns port.Namespace, tun *port.TUN) error {
	defer ns.Close()
	if f.cfg.FastPath == fastpath.ModeOff {
		return nil
	}
	if f.cfg.FastPath == fastpath.ModeAuto && !f.pause(ctx) {
		return nil
	}
	done := make(chan error)
	go func() { done <- f.inside(ctx, ns, tun) }()
	return <-done
}

// pause waits with what needs CPU, until the client has an address, without which there
// is nothing to carry, and the first packets of those who waited for one are through.
func (f *fastPath) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-f.addressed:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(fastPause):
		return true
	}
}

// inside is run on a thread of its own.
func (f *fastPath) inside(ctx context.Context, ns port.Namespace, tun *port.TUN) error {
	if err := ns.Enter(); err != nil {
		return f.refuse(err)
	}
	kernel, err := port.OpenHost()
	if err != nil {
		return f.refuse(err)
	}
	f.kernel = kernel
	defer kernel.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch
	rules, err := bypass.Watch(ctx, bypass.Query{Prefixes: f.cfg.Prefixes})
	if err != nil {
		return f.refuse(err)
	}
	for {
		if err := f.open(tun); err == nil {
			again := f.serve(ctx, tun, rules)
			f.close()
			if again {
				continue
			}
		} else if ctx.Err() != nil {
			return nil // the device has gone before
		} else if _, _, absent := kernel.Link(tun.Name()); absent != nil {
			select { // it is about to be made again
			case <-ctx.Done():
				return nil
			case <-f.replaced:
			}
			continue
		} else if refused := f.refuse(err); refused != nil || !errors.As(err, new(skipError)) {
			return refused
		}
		// What packets would not meet may go as it came.
		select {
		case <-ctx.Done():
			return nil
		case <-f.replaced:
		case <-rules:
		}
	}
}

// refuse does without the fast path. Where the operator insists on it, that is an
// error.
func (f *fastPath) refuse(why error) error {
	if f.cfg.FastPath == fastpath.ModeTC {
		return fmt.Errorf(`fast_path = "tc" is not possible: %w`, why)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why != why.Error() {
		f.why = why.Error()
		f.log.Info("the engine carries all packets", "why", why)
	}
	return nil
}

// open loads and attaches the programs.
func (f *fastPath) open(tun *port.TUN) error {
	if err := f.audit(tun); err != nil {
		return err
	}
	host, err := teredobpf.LoadHost(teredobpf.HostConfig{
		Endpoints: fastEndpoints, Tunnel: tun.Index(), MTU: teredo.MTU,
		Send: client.FastSend, Receive: client.FastReceive, Contact: client.FastContact,
	})
	if err != nil {
		return err
	}
	attachment, err := attach.Attach(host.Programs(), f.attachConfig(tun))
	if err != nil {
		return errors.Join(err, host.Close())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.host, f.attachment, f.why = host, attachment, ""
	f.listDevices(tun.Index())
	for _, m := range f.members {
		m.begin()
	}
	return nil
}

// attachConfig says what is attached where.
func (f *fastPath) attachConfig(tun *port.TUN) attach.Config {
	return attach.Config{
		Name: f.cfg.Name, Mode: fastpath.ModeTC, Exclude: []int{tun.Index()}, Host: true, Tunnel: tun.Index(),
	}
}

// skipError is something that packets would not meet.
type skipError struct{ error }

// audit looks for what packets would no longer meet. Where the operator has not
// insisted, they go on meeting it, and that is the error.
func (f *fastPath) audit(tun *port.TUN) error {
	plan, err := attach.Plan(f.attachConfig(tun))
	if err != nil {
		return err
	}
	q := bypass.Query{Tunnel: tun.Name(), Prefixes: f.cfg.Prefixes, Host: true}
	q.Devices, _ = driver.Planned(plan)
	if f.host != nil { // which only this goroutine changes
		q.Own = attach.ProgramIDs(f.host.Programs(), nil)
	}
	found, unsure := bypass.Find(q)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(found, f.skipped) && f.cfg.FastPath == fastpath.ModeTC {
		for _, finding := range found {
			f.log.Warn("packets do not meet what others of this host would, as fast_path demands", "skipped", finding.What)
		}
	}
	f.skipped = found
	switch {
	case f.cfg.FastPath != fastpath.ModeAuto:
		return nil
	case len(found) > 0:
		return skipError{errors.New(found[0].What + ", which packets of the fast path would not meet. " + found[0].Remedy)}
	case unsure != nil:
		return skipError{fmt.Errorf("what packets of the fast path would not meet cannot be told: %w", unsure)}
	}
	return nil
}

// listDevices remembers where the programs are; f.mu is held.
func (f *fastPath) listDevices(tun int) {
	f.devices = map[int]string{}
	for _, r := range f.attachment.Report() {
		if r.Hook != attach.HookNone && r.Index != tun {
			f.devices[r.Index] = r.Device
		}
	}
}

// serve does what is due until ctx is done, or until there is something that packets
// would not meet; or until the device is another, and all begins again.
func (f *fastPath) serve(ctx context.Context, tun *port.TUN, rules <-chan struct{}) (again bool) {
	look := time.NewTicker(fastLook)
	defer look.Stop()
	for looking := true; ; {
		// A host that does not use its address is not woken for it.
		if idle := f.idle(); idle == looking {
			if looking = !idle; looking {
				look.Reset(fastLook)
			} else {
				look.Stop()
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-f.replaced:
			return true // what was attached to it went with it
		case <-f.wake:
			f.follow(tun)
		case <-look.C:
			for _, m := range f.list() {
				m.look()
			}
		case <-rules:
			if err := f.audit(tun); err != nil && ctx.Err() == nil {
				_ = f.refuse(err) // beginning anew tells of what is worse
				return false
			}
		}
	}
}

// follow keeps in step with devices, and finds the ways to peers that are new.
func (f *fastPath) follow(tun *port.TUN) {
	f.mu.Lock()
	stale := f.stale
	f.stale = false
	f.mu.Unlock()
	if stale {
		if _, err := f.attachment.Sync(); err != nil {
			f.log.Warn("the fast path cannot follow the network devices", "error", err)
		}
		f.mu.Lock()
		f.listDevices(tun.Index())
		f.mu.Unlock()
	}
	for _, m := range f.list() {
		m.resolve()
	}
}

// idle tells that there are no peers on the fast path.
func (f *fastPath) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !slices.ContainsFunc(f.members, func(m *fastMember) bool { return len(m.peers) > 0 })
}

func (f *fastPath) list() []*fastMember {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.members)
}

// close detaches and forgets all.
func (f *fastPath) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := errors.Join(f.attachment.Close(), f.host.Close()); err != nil {
		f.log.Warn("the fast path cannot be taken away", "error", err)
	}
	f.host, f.attachment = nil, nil
	if f.why == "" {
		f.why = "stopped"
	}
}

// startFast begins with the fast path, in the network namespace of the calling
// thread. It takes some time to load, which nobody waits for.
func (d *device) startFast(ctx context.Context, group *errgroup.Group) {
	ns, err := port.CurrentNamespace()
	if err != nil {
		group.Go(func() error { return d.fast.refuse(err) })
		return
	}
	group.Go(func() error { return d.fast.run(ctx, ns, d.tun) })
}

// joinFast makes the client a member of a fast path, and of no other.
func (c *Client) joinFast(f *fastPath) {
	if c.fast != nil {
		c.fast.leave()
	}
	c.fast = f.join(c)
	c.loop.Engine = &fastEngine{c.engine, c.fast}
}

// join adds a client.
func (f *fastPath) join(c *Client) *fastMember {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.numbers++
	m := &fastMember{fast: f, c: c, number: f.numbers, peers: map[[16]byte]client.FastChange{}, ways: map[netip.Addr]fastWay{}}
	f.members = append(f.members, m)
	return m
}
