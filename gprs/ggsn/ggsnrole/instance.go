// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
)

var (
	_ role.Changer[Settings] = (*GGSN)(nil)
	_ role.Tracer            = (*GGSN)(nil)
	_ role.Announced         = (*GGSN)(nil)
)

// GGSN is one gateway node: sockets towards SGSNs, and a TUN device for each network.
type GGSN struct {
	name   string
	log    *slog.Logger
	loop   loop.Loop[*ggsn.Output]
	ready  chan struct{}
	events eventLog
	self   host.SelfCheck[struct{}]
	fast   *fast

	addresses   host.Addresses              // towards SGSNs
	engine      atomic.Pointer[ggsn.Engine] // nil before it is made
	lastRestore time.Duration               // see host.DeviceConfig

	// Changed with g.mu held.
	radius   atomic.Pointer[authorizer] // nil: no server was asked yet
	accounts atomic.Pointer[accountant] // nil: no server was told yet
	dynamic  atomic.Pointer[dynamic]    // nil: no server may end or change sessions

	mu       sync.Mutex // guards what follows, and the order of changes
	cfg      Settings
	own      map[string]own // by VRF; empty is none
	noNodes  []netip.Addr   // see findNoNodes
	host     *port.Host     // to look at; open while running
	here     port.Namespace // likewise
	sockets  sockets
	names    []string          // of the devices, by the numbers of networks
	vrfs     []string          // likewise; empty: none
	networks []*network        // likewise
	leaving  []pool            // no longer named, but contexts have addresses of it
	taken    []pool            // the same of an earlier process, and led elsewhere: its contexts end
	who      *ggsn.Subscribers // by cfg
	servers  radiusServers     // by cfg
	tasks    *tasks            // nil before it runs
	charges  *charger          // nil: nothing is written
	saved    *kept.Saved
	adopted  int             // contexts of an earlier process
	draining bool            // contexts are refused
	told     []string        // of blocked, in the log
	full     map[string]bool // pools, likewise
	alarms   map[string]bool // likewise
}

// New makes the node that cfg describes, without touching the host.
func New(cfg Settings, log *slog.Logger) (*GGSN, error) {
	who, err := readSubscribers(cfg.SubscribersFile)
	if err != nil {
		return nil, err
	}
	if err := fits(&cfg, who); err != nil {
		return nil, err
	}
	to, err := cfg.readServers()
	if err != nil {
		return nil, err
	}
	g := &GGSN{name: cfg.Name, log: log, ready: make(chan struct{}), cfg: cfg, who: who, servers: to, names: cfg.interfaces()}
	g.fast = newFast(&cfg, g.traffic, log)
	g.warnOf(who)
	g.charges = newCharger(&cfg, log)
	if g.vrfs = cfg.vrfs(g.names); len(g.names) > maxNetworks {
		return nil, errors.New("there are too many interfaces: let access points share some")
	}
	g.addresses.Without = "SGSNs do not reach it"
	g.events.log, g.events.Write = log, g.events.write
	g.events.contexts.Store(cfg.ContextLog)
	g.loop.NewOutput = func() *ggsn.Output { return new(ggsn.Output) }
	g.loop.Settled = g.settled
	g.loop.EachDropped = func(f func(reason string, n uint64)) {
		s := g.engine.Load().Stats()
		eachDropped(&s, f)
	}
	return g, nil
}

// settled hands over what the engine tells, and what it asks.
func (g *GGSN) settled(out *ggsn.Output) {
	g.events.add(out.Events)
	if a := g.radius.Load(); a != nil {
		a.asks.add(out.Asks)
	}
	if a := g.accounts.Load(); a != nil {
		a.add(out.Events)
	}
	if g.charges != nil {
		g.charges.add(out.Records)
	}
}

// Name implements [role.Instance].
func (g *GGSN) Name() string { return g.name }

// Role implements [role.Instance].
func (g *GGSN) Role() string { return name }

// Ready implements [role.Instance].
func (g *GGSN) Ready() <-chan struct{} { return g.ready }

// Run implements [role.Instance]. It opens sockets and devices in the network namespace of
// the calling thread.
func (g *GGSN) Run(ctx context.Context) (err error) {
	serves := false
	defer func() {
		err = errors.Join(err, g.close(role.Leaving(ctx) && g.cfg.KeepState, serves))
	}()
	g.fast.Open(false)
	if err := g.open(); err != nil {
		return err
	}
	group, ctx, end := host.Group(ctx)
	defer end()
	if err := host.Follow(ctx, group, g.changed); err != nil {
		return err
	}
	if err := g.look(); err != nil { // addresses may have changed before the watch began
		return err
	}
	if err := g.addresses.Watch(ctx, group, g.cfg.addresses(), g.log); err != nil {
		return err
	}
	for _, n := range g.networks {
		if err := n.device.Keep(ctx, group); err != nil {
			return err
		}
	}
	if err := g.begin(); err != nil {
		return err
	}
	serves = true
	g.runServers(&tasks{ctx, group})
	g.work(group)
	g.endContextsOf(g.taken)
	group.Go(func() error { g.loop.RunTimer(ctx); return nil })
	group.Go(func() error { g.letGoByAndBy(ctx); return nil })
	group.Go(func() error { g.events.Run(ctx); return nil })
	group.Go(func() error { g.tellByAndBy(ctx); return nil })
	defer context.AfterFunc(ctx, func() { g.endPorts(role.Leaving(ctx)) })()
	g.fast.Start(ctx)
	g.announce()
	close(g.ready)
	g.fast.Run(ctx)
	return group.Wait()
}

// open opens sockets, devices and the engine with its contexts, then sets the routes, so
// that no packet comes before it can be handled. Nothing is sent yet.
func (g *GGSN) open() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	if g.here, err = port.CurrentNamespace(); err != nil {
		return err
	}
	if g.host, err = port.OpenHost(); err != nil {
		g.here.Close()
		return err
	}
	workers := loop.Workers(g.cfg.Workers)
	if g.sockets, err = openSockets(g.cfg.addresses(), workers); err != nil {
		return err
	}
	for i, name := range g.names {
		n, err := openNetwork(&g.cfg, name, g.vrfs[i], workers, g.lastRestore, g.log)
		if n != nil {
			g.networks = append(g.networks, n)
		}
		if err != nil {
			return err
		}
		g.loop.SetDevice(i, n.device.Queues[0])
	}
	for n, conn := range g.sockets.of(0) {
		g.loop.SetSocket(n, conn)
	}
	if g.own, err = g.lookOwn(); err != nil {
		return err
	}
	if g.noNodes, err = findNoNodes(g.host); err != nil {
		return err
	}
	if err = g.setServers(&g.cfg, &g.servers); err != nil {
		return err
	}
	if g.charges != nil {
		if err := g.charges.open(); err != nil {
			return fmt.Errorf("charging records cannot be written: %w: name another charging_file", err)
		}
	}
	if err := g.openState(); err != nil {
		return err
	}
	g.openFast()
	if _, err = g.lead(&g.cfg); err != nil { // all is closed
		return err
	}
	g.taken = g.leadLeaving()
	return nil
}

// work runs the loops: of each socket one, and of each device's queues.
func (g *GGSN) work(group *errgroup.Group) {
	none := loop.Quick[*port.Message, *ggsn.Output]{}
	g.sockets.each(func(n ggsn.Socket, w int, conn *port.UDP) {
		group.Go(func() error { return g.loop.ReadUDPQuick(conn, g.ports(w), none, g.fromUDP(n)) })
	})
	for i, n := range g.networks {
		for w, tun := range n.device.Queues {
			group.Go(func() error {
				return g.loop.ReadTunQuick(tun, g.ports(w), loop.Quick[[]byte, *ggsn.Output]{}, g.fromTun(i))
			})
		}
	}
}

// ports are where the output of one worker's loops goes.
func (g *GGSN) ports(w int) loop.Ports {
	p := loop.Ports{Sockets: g.sockets.of(w)}
	for _, n := range g.networks {
		p.Devices = append(p.Devices, n.device.Queues[w])
	}
	return p
}

func (g *GGSN) fromUDP(n ggsn.Socket) func(*port.Message, time.Time, *ggsn.Output) {
	return func(m *port.Message, now time.Time, out *ggsn.Output) {
		g.engine.Load().HandleUDP(n, m.From, m.Class, m.Payload, now, out)
	}
}

func (g *GGSN) fromTun(i int) func([]byte, time.Time, *ggsn.Output) {
	return func(ip []byte, now time.Time, out *ggsn.Output) {
		if e := g.self.Expected(); e != nil && e.Back(ip) {
			out.SendIP(ip)
			out.VRF = append(out.VRF, uint8(i))
			return
		}
		g.engine.Load().HandleIP(uint8(i), ip, now, out)
	}
}

// do runs f with the engine to itself; false: there is none.
func (g *GGSN) do(f func(e *ggsn.Engine, now time.Time, out *ggsn.Output)) bool {
	e := g.engine.Load()
	if e != nil {
		g.loop.Do(func(now time.Time, out *ggsn.Output) { f(e, now, out) })
	}
	return e != nil
}

// endPorts makes the loops end.
func (g *GGSN) endPorts(leaving bool) {
	g.mu.Lock()
	g.closeServers()
	networks, sockets, keep := slices.Clone(g.networks), g.sockets, g.cfg.KeepState
	g.mu.Unlock()
	for _, n := range networks {
		n.device.EndLater(leaving && keep)
	}
	sockets.close()
}

// close ends what open has opened. What is kept of contexts is written when no packet comes
// any more, unless the node never began to serve: then it is what it was.
func (g *GGSN) close(leave, served bool) (err error) {
	g.fast.Detach("")
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.networks {
		err = errors.Join(err, n.close(leave))
	}
	g.sockets.close()
	g.closeServers()
	g.unshare()
	err = errors.Join(err, g.closeState(served), g.charges.close(), g.fast.Close())
	if a := g.accounts.Load(); a != nil {
		err = errors.Join(err, a.spool.Close())
	}
	if g.host != nil {
		g.host.Abandon()
		g.here.Close()
		g.host = nil
	}
	return err
}

// changed follows one change of the host.
func (g *GGSN) changed(c port.Change) {
	g.fast.hostChanged(c)
	if c.Kind != port.AddressChanged && c.Kind != port.Overrun {
		return
	}
	if err := g.look(); err != nil {
		g.log.Warn("the host's addresses changed but cannot be used; the old ones stay in use", "error", err)
	}
}

// look reads the host's addresses and gives them to the engine.
func (g *GGSN) look() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.host == nil {
		return nil // closed meanwhile
	}
	at, err := g.lookOwn()
	if err != nil {
		return err
	}
	noNodes, err := findNoNodes(g.host)
	if err != nil || maps.Equal(at, g.own) && slices.Equal(noNodes, g.noNodes) {
		return err
	}
	g.own, g.noNodes = at, noNodes
	return g.reconfigure(&g.cfg, g.who)
}

// lookOwn finds addresses for ICMP errors, in a VRF those of it if there are any; g.mu is held.
func (g *GGSN) lookOwn() (at map[string]own, err error) {
	v4, err := g.host.GlobalIPv4(g.cfg.Interface)
	v6, err6 := g.host.GlobalIPv6(g.cfg.Interface)
	at = map[string]own{"": {v4, v6}}
	for i, vrf := range g.vrfs {
		if vrf == "" {
			continue
		}
		in := own{v4, v6}
		// One that has gone has none; its device tells of that.
		if v4, v6, err := g.host.GlobalOfVRF(vrf, g.names[i]); err == nil {
			in = own{either(v4, in.v4), either(v6, in.v6)}
		}
		at[vrf] = in
	}
	return at, errors.Join(err, err6)
}

// either is the first address if it is one.
func either(a, b netip.Addr) netip.Addr {
	if a.IsValid() {
		return a
	}
	return b
}

// announce logs how the node serves, once.
func (g *GGSN) announce() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var pools []netip.Prefix
	for _, p := range g.cfg.allPools() {
		pools = append(pools, p.prefix)
	}
	g.log.Info("serving", "addresses", g.cfg.addresses(), "peers", g.cfg.Peers, "interfaces", g.names, "pools", pools, "contexts", g.adopted)
	g.tellBlocked()
	for _, sentence := range g.cfg.exposed() {
		g.log.Warn(sentence)
	}
}

// Trace implements [role.Tracer]. Passwords of terminals are not shown.
func (g *GGSN) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	return g.fast.Trace(ctx, sampling, emit, func(ctx context.Context, emit func(*trace.Sample)) error {
		return g.loop.Trace(ctx, g.name, sampling, func(s *trace.Sample) {
			if s.Hook == "udp" {
				gtp.HidePassword(s.Data) // a copy of the datagram
			}
			emit(s)
		})
	})
}
