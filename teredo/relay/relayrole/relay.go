// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/peer"
	"github.com/isthmus-net/isthmus/teredo/relay"
	"github.com/isthmus-net/isthmus/teredo/tunnel"
)

var (
	_ role.Instance          = (*Relay)(nil)
	_ role.Changer[Settings] = (*Relay)(nil)
	_ role.PeerLister        = (*Relay)(nil)
	_ role.Tracer            = (*Relay)(nil)
)

// Relay is one Teredo relay or host-specific relay: a TUN device with routes to
// the Teredo prefixes, and a UDP socket.
type Relay struct {
	name   string
	log    *slog.Logger
	engine *relay.Relay
	loop   loop.Loop[*packet.Batch]
	ready  chan struct{}
	self   tunnel.SelfCheck

	fast       *fast
	freeMemory func() error // of the table of peers, while running
	store      peerStore    // nil: nothing outlives the process
	file       *peersFile   // the store, if it is a file
	spare      *peersFile   // whose peers are in the tables of the fast path by now

	lastRestore time.Duration // see host.DeviceConfig

	mu         sync.Mutex // guards what follows
	cfg        Settings
	local      local
	host       *port.Host   // open while running
	device     *host.Device // with a queue for each worker
	conns      []*port.UDP  // of one address, likewise
	forwarding bool         // of the kernel, when the relay started
}

// local is what a relay needs to know of its host's addresses.
type local struct {
	own, broadcasts []netip.Addr // IPv4
	global          netip.Addr   // IPv6, for errors; not valid when there is none
	port            uint16
}

// New makes the relay that cfg describes, without touching the host.
func New(cfg Settings, log *slog.Logger) (*Relay, error) {
	c := engineConfig(&cfg, &local{})
	c.Memory = make([]byte, peer.BucketBytes) // until Run
	c.Epoch = port.MonotonicEpoch()
	engine, err := relay.New(c, time.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	r := &Relay{name: cfg.Name, log: log, engine: engine, ready: make(chan struct{}), cfg: cfg, fast: newFast(&cfg, log)}
	r.fast.engine = r.sent
	r.loop.Engine = engine
	r.loop.NewOutput = func() *packet.Batch { return new(packet.Batch) }
	r.loop.EachDropped = r.eachDropped
	r.loop.Ordered = true
	r.loop.Sent = engine.Publish
	return r, nil
}

// engineConfig translates the configuration for the engine.
func engineConfig(cfg *Settings, at *local) relay.Config {
	c := relay.Config{
		Host:     cfg.Mode == ModeHost,
		Prefixes: cfg.Prefixes, Serve: cfg.Serve,
		Address: cfg.Address, Own: at.own, Port: at.port,
		MTU: cfg.MTU, MaxPeers: cfg.MaxPeers, PeerTimeout: cfg.PeerTimeout,
		QueuePackets: cfg.QueuePackets, QueueBytes: cfg.QueueBytes, QueueTotalBytes: cfg.QueueTotalBytes,
		BubbleRate: cfg.BubbleRate, ICMPRate: cfg.ICMPRate,
		BehindNAT: cfg.BehindNAT, EchoThroughServer: cfg.EchoThroughServer,
		CarryClients: cfg.CarryClients, CarryRate: cfg.CarryRate, CarryClientRate: cfg.CarryClientRate,
	}
	c.Global.Allow, c.Global.Broadcasts = cfg.AllowPrivate, at.broadcasts
	if !c.Address.IsValid() {
		c.Address = at.global
	}
	return c
}

// Name implements [role.Instance].
func (r *Relay) Name() string { return r.name }

// Role implements [role.Instance].
func (r *Relay) Role() string { return name }

// Ready implements [role.Instance].
func (r *Relay) Ready() <-chan struct{} { return r.ready }

// Run implements [role.Instance]. It opens the ports in the network namespace of
// the calling thread.
func (r *Relay) Run(ctx context.Context) (err error) {
	serves := false
	defer func() {
		failed := err != nil && !serves
		err = errors.Join(err, r.close(r.leaves(ctx) || failed && r.fast.Inherited()))
	}()
	r.fast.open()
	if err := r.open(); err != nil {
		return err
	}
	group, ctx, end := host.Group(ctx)
	defer end()
	if err := host.Follow(ctx, group, r.changed); err != nil {
		return err
	}
	// Addresses may have changed before the watch began.
	if err := r.look(); err != nil {
		return err
	}
	if err := r.device.Keep(ctx, group); err != nil {
		return err
	}
	r.review()
	for w := range r.conns {
		r.work(group, w)
	}
	group.Go(func() error { r.loop.RunTimer(ctx); return nil })
	group.Go(func() error { return r.sayAlive(ctx) })
	group.Go(func() error { r.watchSleep(ctx); return nil })
	defer context.AfterFunc(ctx, func() { r.endPorts(ctx) })()
	r.fast.Start(ctx)
	r.dropSpare()
	r.announce()
	serves = true
	close(r.ready)
	r.fast.Run(ctx)
	return group.Wait()
}

// sent is what the engine has sent to clients, and to IPv6.
func (r *Relay) sent() (n [2]uint64) {
	r.loop.Do(func(time.Time, *packet.Batch) {
		s := r.engine.Stats()
		n = [2]uint64{s.ToUDP, s.ToIPv6}
	})
	return n
}

// work runs the two loops of one worker. What the engine has to send for all, by
// timer or on a change, goes by the ports of the first.
func (r *Relay) work(group *errgroup.Group, w int) {
	conn, tun := r.conns[w], r.device.Queues[w]
	ports := loop.Ports{Sockets: []port.UDPConn{relay.Socket: conn}, IP: tun}
	var up, down *relay.Lane
	r.loop.Do(func(time.Time, *packet.Batch) { up, down = r.engine.NewLane(), r.engine.NewLane() })
	fromUDP := loop.Quick[*port.Message, *packet.Batch]{Done: up.Done, Handle: func(m *port.Message, now time.Time, out *packet.Batch) bool {
		return up.HandleUDP(m.From, m.Payload, now, out)
	}}
	fromTun := loop.Quick[[]byte, *packet.Batch]{Done: down.Done, Handle: down.HandleIP}
	group.Go(func() error { return r.loop.ReadUDPQuick(conn, ports, fromUDP, r.fromUDP) })
	group.Go(func() error { return r.loop.ReadTunQuick(tun, ports, fromTun, r.fromTun) })
}

func (r *Relay) fromUDP(m *port.Message, now time.Time, out *packet.Batch) {
	if !r.self.FromUDP(relay.Socket, m.From, m.Payload, out) {
		r.engine.HandleUDP(m.From, m.Payload, now, out)
	}
}

func (r *Relay) fromTun(ip []byte, now time.Time, out *packet.Batch) {
	if !r.self.FromTUN(relay.Socket, ip, out) {
		r.engine.HandleIP(ip, now, out)
	}
}

// open opens the ports, then sets the routes, so that no packet comes before it
// can be handled.
func (r *Relay) open() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	router := r.cfg.Mode == ModeRelay
	r.forwarding = kernelForwards()
	var err error
	if r.host, err = port.OpenHost(); err != nil {
		return err
	}
	if r.local.own, r.local.broadcasts, err = r.addresses(); err != nil {
		return err
	}
	n := loop.Workers(r.cfg.Workers)
	if r.conns, err = port.ListenUDPGroup(port.UDPConfig{Addr: r.cfg.Bind}, n); err != nil {
		return err
	}
	r.local.port = r.conns[0].LocalAddr().Port()
	r.loop.SetSocket(relay.Socket, r.conns[0])
	if err := r.takeMemory(); err != nil {
		return err
	}
	tun := port.TUNConfig{Name: r.cfg.Interface, MTU: r.cfg.MTU, Forwarding: router, Offload: true, Persistent: r.fast.Keeps(), Lasting: true}
	device := host.DeviceConfig{TUN: tun, Queues: n, Without: "the relay gets no packets", Reopened: r.fast.DeviceReplaced, LastRestore: r.lastRestore}
	if r.device, err = host.OpenDevice(r.host, device, r.log); err != nil {
		return err
	}
	r.fast.merge = func(on bool) {
		for _, conn := range r.conns {
			conn.Merge(on)
		}
	}
	takes := r.host.Takes
	r.fast.takes = func(cfg *Settings) bool { return takes(cfg.Bind.Addr()) }
	first := r.device.Queues[0]
	if err := r.fast.Use(r.host, first); err != nil {
		return err
	}
	r.loop.IP = first
	for _, route := range routes(&r.cfg, first.Name()) {
		if err := r.device.Route(route, r.cfg.Route); err != nil {
			return routeTaken(err)
		}
	}
	return nil
}

// kernelForwards reports whether this host routes IPv6, in the network namespace
// of the calling thread. A kernel that does not say is taken to do it.
func kernelForwards() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/forwarding")
	return err != nil || strings.TrimSpace(string(text)) != "0"
}

// changed tells the fast path and the engine of a change on the host.
func (r *Relay) changed(c port.Change) {
	if c.Kind == port.LinkChanged || c.Kind == port.Overrun {
		r.fast.LinksChanged()
	}
	if c.Kind != port.AddressChanged && c.Kind != port.Overrun {
		return
	}
	if err := r.look(); err != nil {
		r.log.Warn("the host's addresses changed but cannot be read; the old ones stay in use", "error", err)
	}
}

// watchSleep tells the engine when the host wakes, until ctx is done.
func (r *Relay) watchSleep(ctx context.Context) {
	sleeps, err := port.WatchSleep(ctx)
	if err != nil {
		r.log.Warn("a sleep of this host will not be noticed: clients heard before are taken for reachable for half a minute", "error", err)
		return
	}
	for s := range sleeps {
		r.awake(s)
	}
}

// awake is called when the host has slept.
func (r *Relay) awake(s port.Sleep) {
	r.log.Info("awake again", "slept", s.Slept)
	r.loop.Do(func(now time.Time, _ *packet.Batch) { r.engine.Resumed(s.Slept, now) })
}

// look reads the host's addresses and gives them to the engine.
func (r *Relay) look() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.host == nil {
		return nil // closed meanwhile
	}
	now := local{port: r.local.port}
	var err error
	if now.own, now.broadcasts, err = r.addresses(); err != nil {
		return err
	}
	if now.global, err = r.host.GlobalIPv6(r.device.Name(), r.cfg.Prefixes...); err != nil {
		return err
	}
	before := r.endpoint()
	r.local = now
	r.noteEndpoint()
	if !sameEndpoint(before, r.endpoint()) {
		r.log.Info("peers are forgotten, for an address has gone by which clients knew this host")
		r.loop.Do(func(time.Time, *packet.Batch) { r.engine.Forget() })
	}
	return r.reconfigure(&r.cfg)
}

// reconfigure gives the engine a configuration; r.mu is held.
func (r *Relay) reconfigure(cfg *Settings) (err error) {
	r.loop.Do(func(time.Time, *packet.Batch) {
		err = r.engine.Reconfigure(engineConfig(cfg, &r.local))
	})
	if err == nil {
		r.fast.configure(cfg, &r.local)
	}
	return err
}

// leaves reports whether what carries established peers is kept for a successor.
func (r *Relay) leaves(ctx context.Context) bool { return role.Leaving(ctx) && r.fast.Keeps() }

// endPorts closes the ports at the end of ctx. When a successor is to come, the engine
// goes on for a moment with what the fast path has left to it.
func (r *Relay) endPorts(ctx context.Context) {
	r.device.EndLater(r.leaves(ctx))
	r.closeSockets()
}

// closePorts makes the loops end. The device goes, unless it is left to a successor.
func (r *Relay) closePorts(leave bool) {
	r.mu.Lock()
	device := r.device
	r.mu.Unlock()
	device.End(leave)
	r.closeSockets()
}

func (r *Relay) closeSockets() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		_ = conn.Close()
	}
}

// close takes the fast path and the routes away, then the ports; or, if leaving,
// keeps what carries established peers for a successor.
func (r *Relay) close(leave bool) error {
	r.mu.Lock()
	kernel := r.host
	r.host = nil
	r.mu.Unlock()
	if leave {
		if kernel != nil {
			kernel.Abandon()
		}
		r.closePorts(true)
		_, err := r.giveMemory()
		return errors.Join(err, r.fast.Leave())
	}
	r.fast.Detach("")
	var err error
	if kernel != nil {
		err = kernel.Close()
	}
	r.closePorts(false)
	peers, memoryErr := r.giveMemory()
	return errors.Join(err, memoryErr, r.savePeers(peers), r.fast.Close())
}

// announce logs how the relay serves, once.
func (r *Relay) announce() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Info("serving", "mode", string(r.cfg.Mode), "listen", r.conns[0].LocalAddr(), "interface", r.device.Name(), "prefixes", r.cfg.Prefixes, "workers", len(r.conns))
	if r.cfg.Mode == ModeRelay && !r.forwarding {
		r.log.Warn("this host does not forward IPv6, so the relay reaches the host alone: run sysctl -w net.ipv6.conf.all.forwarding=1")
	}
	if !r.address().IsValid() {
		r.log.Warn("this host has no global IPv6 address, so the relay sends no ICMPv6 errors: set address, or give the host one")
	}
}

// address is the source of ICMPv6 errors; r.mu is held.
func (r *Relay) address() netip.Addr {
	if r.cfg.Address.IsValid() {
		return r.cfg.Address
	}
	return r.local.global
}
