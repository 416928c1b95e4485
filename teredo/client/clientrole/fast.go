// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
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
	*driver.Driver
	cfg Settings
	log *slog.Logger
	// sent, if set, is told which peers the host has sent to of late.
	sent func(peer *[16]byte, at time.Time)

	addressed chan struct{} // closed by address, when the host has the first address
	address   func()

	// Of the goroutine of run.
	kernel *port.Host
	tun    *port.TUN
	host   *teredobpf.Host // there while it carries

	mu      sync.Mutex // guards what follows, and all members
	carries bool       // packets of members
	members []*fastMember
	numbers uint32
}

func newFastPath(cfg Settings, log *slog.Logger) *fastPath {
	f := &fastPath{cfg: cfg, log: log, addressed: make(chan struct{})}
	f.address = sync.OnceFunc(func() { close(f.addressed) })
	f.Driver = driver.New(driver.Role{
		Name: cfg.Name, Packets: "packets of the fast path", Ephemeral: "its tables end with the process",
		Load: f.load, Carried: func(path string) { f.carry(path != driver.EnginePath) }, Round: f.round,
	}, driver.Config{Mode: cfg.FastPath, Host: true, Prefixes: cfg.Prefixes}, log)
	why := "starting"
	if cfg.FastPath == fastpath.ModeOff {
		why = `fast_path = "off"`
	}
	f.Note(func(v *driver.Status) { v.Why = why })
	return f
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
func (f *fastPath) inside(ctx context.Context, ns port.Namespace, tun *port.TUN) (err error) {
	if err := ns.Enter(); err != nil {
		return f.refuse(err)
	}
	if f.kernel, err = port.OpenHost(); err != nil {
		return f.refuse(err)
	}
	defer f.kernel.Close()
	f.tun = tun
	f.Open(false)
	defer f.close()
	if err := f.Use(f.kernel, tun); err != nil {
		return f.refuse(err)
	}
	f.Start(ctx)
	if _, _, absent := f.kernel.Link(tun.Name()); absent == nil && ctx.Err() == nil {
		if err := f.insisted(); err != nil {
			return err
		}
	} // else it is about to be made again
	f.Run(ctx)
	return nil
}

// load loads the programs.
func (f *fastPath) load(*pinned.Folder, probe.Features) (driver.Table, error) {
	host, err := teredobpf.LoadHost(teredobpf.HostConfig{
		Endpoints: fastEndpoints, Tunnel: f.tun.Index(), MTU: teredo.MTU,
		Send: client.FastSend, Receive: client.FastReceive, Contact: client.FastContact,
	})
	if err != nil {
		return nil, err
	}
	f.host = host
	return host, nil
}

// insisted is the error of a fast path that is not there although the operator insists
// on it.
func (f *fastPath) insisted() error {
	if s := f.Status(); f.cfg.FastPath == fastpath.ModeTC && s.Path == driver.EnginePath {
		return fmt.Errorf(`fast_path = "tc" is not possible: %s`, s.Why)
	}
	return nil
}

// refuse does without the fast path.
func (f *fastPath) refuse(why error) error {
	f.Refuse(why)
	return f.insisted()
}

// carry has the programs carry for all members, or leaves everything to the engines.
func (f *fastPath) carry(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if on == f.carries {
		return
	}
	for _, m := range f.members {
		m.end()
		m.removeAll()
	}
	f.carries = on
	for _, m := range f.members {
		m.begin()
	}
}

// round finds the ways to peers that are new, and tells the engines of the traffic. A
// host that does not use its address is not woken for it.
func (f *fastPath) round() time.Duration {
	f.mu.Lock()
	members := slices.Clone(f.members)
	f.mu.Unlock()
	wait := time.Duration(0)
	for _, m := range members {
		m.resolve()
		if m.look() {
			wait = fastLook
		}
	}
	return wait
}

// close detaches and forgets all.
func (f *fastPath) close() {
	if err := f.Close(); err != nil {
		f.log.Warn("the fast path cannot be taken away", "error", err)
	}
	f.Note(func(v *driver.Status) { v.Path, v.Why, v.Devices = driver.EnginePath, cmp.Or(v.Why, "stopped"), nil })
}

// startFast begins with the fast path, in the network namespace of the calling
// thread. It takes some time to load, which no one waits for.
func (d *device) startFast(ctx context.Context, group *errgroup.Group) {
	ns, err := port.CurrentNamespace()
	if err != nil {
		group.Go(func() error { return d.fast.refuse(err) })
		return
	}
	group.Go(func() error { return d.fast.run(ctx, ns, d.tun.Queues[0]) })
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
