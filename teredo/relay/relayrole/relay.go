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

	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/upkeep"
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

	lastRestore time.Duration // see upkeep.Device.Last

	mu         sync.Mutex // guards what follows
	cfg        Settings
	local      local
	host       *port.Host  // open while running
	tuns       []*port.TUN // queues of one device, one for each worker
	conns      []*port.UDP // of one address, likewise
	forwarding bool        // of the kernel, when the relay started
	keeper     *upkeep.Keeper
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch when nothing else begins
	group, ctx := errgroup.WithContext(ctx)
	changes, err := port.Watch(ctx)
	if err != nil {
		return err
	}
	// Addresses may have changed before the watch began.
	if err := r.look(); err != nil {
		return err
	}
	if err := r.keep(ctx, group); err != nil {
		return err
	}
	r.review()
	for w := range r.conns {
		r.work(group, w)
	}
	group.Go(func() error { r.loop.RunTimer(ctx); return nil })
	group.Go(func() error { return r.follow(ctx, changes) })
	group.Go(func() error { return r.sayAlive(ctx) })
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
	conn, tun := r.conns[w], r.tuns[w]
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
	if r.conns, err = port.ListenUDP4Group(port.UDPConfig{Addr: r.cfg.Bind}, n); err != nil {
		return err
	}
	r.local.port = r.conns[0].LocalAddr().Port()
	r.loop.SetSocket(relay.Socket, r.conns[0])
	if err := r.takeMemory(); err != nil {
		return err
	}
	tun := port.TUNConfig{Name: r.cfg.Interface, MTU: r.cfg.MTU, Forwarding: router, Offload: true, Persistent: r.fast.Keeps(), Lasting: true}
	if r.tuns, err = port.OpenTUNQueues(tun, n); err != nil {
		return err
	}
	r.fast.merge = func(on bool) {
		for _, conn := range r.conns {
			conn.Merge(on)
		}
	}
	host := r.host
	r.fast.takes = func(cfg *Settings) bool { return host.Takes(cfg.Bind.Addr()) }
	if err := r.fast.Use(r.host, r.tuns[0]); err != nil {
		return err
	}
	r.loop.IP = r.tuns[0]
	if err := r.host.SetUp(r.tuns[0].Name()); err != nil {
		return err
	}
	return r.setRoutes()
}

// keep keeps the device, and the routes to it, as they are to be until ctx is done.
func (r *Relay) keep(ctx context.Context, group *errgroup.Group) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	host, tuns := r.host, r.tuns
	r.keeper = upkeep.New(host, upkeep.Device{
		Name: tuns[0].Name(), Index: tuns[0].Index(), Without: "the relay gets no packets", Back: r.fast.DeviceReplaced, Last: r.lastRestore,
		Reopen: func() error {
			if err := port.ReopenTUN(tuns); err != nil {
				return err
			}
			return host.SetUp(tuns[0].Name())
		},
	}, r.log)
	return r.keeper.Start(ctx, group)
}

// setRoutes sets the routes to the Teredo prefixes, or expects them where others are to set
// them; r.mu is held.
func (r *Relay) setRoutes() error {
	for _, route := range routes(&r.cfg, r.tuns[0].Name()) {
		set := r.setRoute
		if !r.cfg.Route {
			set = r.host.Expect
		}
		if err := set(route); err != nil {
			return routeTaken(err)
		}
	}
	return nil
}

// setRoute sets a route. A device that an earlier process has left makes room, when
// the configuration has had another name for it; r.mu is held.
func (r *Relay) setRoute(route port.Route) error {
	err := r.host.AddRoute(route)
	taken := new(port.RouteTakenError)
	if !errors.As(err, &taken) {
		return err
	}
	if removed, _ := r.host.RemoveTUN(taken.Link); !removed {
		return err // it is somebody's
	}
	r.log.Info("a device that an earlier process has left is removed", "interface", taken.Link)
	return r.host.AddRoute(route)
}

// kernelForwards tells whether this host routes IPv6, in the network namespace
// of the calling thread. A kernel that does not say is taken to do it.
func kernelForwards() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/forwarding")
	return err != nil || strings.TrimSpace(string(text)) != "0"
}

// follow tells the engine about addresses that change, until the watch ends.
func (r *Relay) follow(ctx context.Context, changes <-chan port.Change) error {
	for c := range changes {
		if c.Kind == port.LinkChanged || c.Kind == port.Overrun {
			r.fast.LinksChanged()
		}
		if c.Kind != port.AddressChanged && c.Kind != port.Overrun {
			continue
		}
		if err := r.look(); err != nil {
			r.log.Warn("the host's addresses changed but cannot be read; the old ones stay in use", "error", err)
		}
	}
	if ctx.Err() == nil {
		return tunnel.ErrWatchEnded
	}
	return nil
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
	if now.global, err = r.host.GlobalIPv6(r.tuns[0].Name(), r.cfg.Prefixes...); err != nil {
		return err
	}
	r.local = now
	r.noteEndpoint()
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

// leaves tells whether what carries established peers is kept for a successor.
func (r *Relay) leaves(ctx context.Context) bool { return role.Leaving(ctx) && r.fast.Keeps() }

// lastPackets is how long the engine goes on when a successor is to come: packets
// that the fast path has left to it, of peers that have just become trusted, lie in
// its device's queue.
const lastPackets = 20 * time.Millisecond

// endPorts closes the ports at the end of ctx.
func (r *Relay) endPorts(ctx context.Context) {
	leave := r.leaves(ctx)
	if leave {
		time.Sleep(lastPackets)
	}
	r.closePorts(leave)
}

// closePorts makes the loops end. The device goes, unless it is left to a successor.
func (r *Relay) closePorts(leave bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !leave && len(r.tuns) > 0 {
		if err := r.tuns[0].Discard(); err != nil && !errors.Is(err, port.ErrClosed) {
			r.log.Warn("the device stays behind", "error", err)
		}
	}
	for _, conn := range r.conns {
		_ = conn.Close()
	}
	for _, tun := range r.tuns {
		_ = tun.Close()
	}
}

// close takes the fast path and the routes away, then the ports; or, if leaving,
// keeps what carries established peers for a successor.
func (r *Relay) close(leave bool) error {
	r.mu.Lock()
	host := r.host
	r.host = nil
	r.mu.Unlock()
	if leave {
		if host != nil {
			host.Abandon()
		}
		r.closePorts(true)
		_, err := r.giveMemory()
		return errors.Join(err, r.fast.Leave())
	}
	r.fast.Detach("")
	var err error
	if host != nil {
		err = host.Close()
	}
	r.closePorts(false)
	peers, memoryErr := r.giveMemory()
	return errors.Join(err, memoryErr, r.savePeers(peers), r.fast.Close())
}

// announce logs how the relay serves, once.
func (r *Relay) announce() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Info("serving", "mode", string(r.cfg.Mode), "listen", r.conns[0].LocalAddr(), "interface", r.tuns[0].Name(), "prefixes", r.cfg.Prefixes, "workers", len(r.conns))
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
