// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/relay"
)

var (
	_ role.Instance   = (*Relay)(nil)
	_ role.Reloader   = (*Relay)(nil)
	_ role.PeerLister = (*Relay)(nil)
)

// Relay is one Teredo relay or host-specific relay: a TUN device with routes to
// the Teredo prefixes, and a UDP socket.
type Relay struct {
	name   string
	log    *slog.Logger
	engine *relay.Relay
	loop   Loop[*packet.Batch]
	ready  chan struct{}

	mu         sync.Mutex // guards what follows
	cfg        config.Relay
	local      local
	host       *port.Host // open while running
	tun        *port.TUN
	conn       *port.UDP
	forwarding bool // of the kernel, when the relay started
	down       bool // the device was set down
}

// local is what a relay needs to know of its host's addresses.
type local struct {
	own, broadcasts []netip.Addr // IPv4
	global          netip.Addr   // IPv6, for errors; not valid when there is none
	port            uint16
}

// NewRelay makes the relay that cfg describes, without touching the host.
func NewRelay(cfg config.Relay, log *slog.Logger) (*Relay, error) {
	engine, err := relay.New(relayEngineConfig(&cfg, &local{}), time.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	r := &Relay{name: cfg.Name, log: log, engine: engine, ready: make(chan struct{}), cfg: cfg}
	r.loop.Engine = engine
	r.loop.NewOutput = func() *packet.Batch { return new(packet.Batch) }
	r.loop.Ordered = true
	return r, nil
}

// relayEngineConfig translates the configuration for the engine.
func relayEngineConfig(cfg *config.Relay, at *local) relay.Config {
	c := relay.Config{
		Host:     cfg.Mode == config.ModeHost,
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
func (r *Relay) Role() string { return config.RoleRelay }

// Ready implements [role.Instance].
func (r *Relay) Ready() <-chan struct{} { return r.ready }

// Run implements [role.Instance]. It opens the ports in the network namespace of
// the calling thread.
func (r *Relay) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	changes, err := port.Watch(ctx)
	if err != nil {
		return err
	}
	// Addresses may have changed before the watch began.
	if err := r.look(); err != nil {
		return err
	}
	group.Go(func() error { return r.loop.ReadUDP(r.conn, r.fromUDP) })
	group.Go(func() error { return r.loop.ReadTun(r.tun, r.engine.HandleIP) })
	group.Go(func() error { r.loop.RunTimer(ctx); return nil })
	group.Go(func() error { return r.follow(changes) })
	defer context.AfterFunc(ctx, r.closePorts)()
	r.announce()
	close(r.ready)
	return group.Wait()
}

func (r *Relay) fromUDP(m *port.Message, now time.Time, out *packet.Batch) {
	r.engine.HandleUDP(m.From, m.Payload, now, out)
}

// open opens the ports, then sets the routes, so that no packet comes before it
// can be handled.
func (r *Relay) open() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	router := r.cfg.Mode == config.ModeRelay
	r.forwarding = kernelForwards()
	var err error
	if r.host, err = port.OpenHost(); err != nil {
		return err
	}
	if r.conn, err = port.ListenUDP4(port.UDPConfig{Addr: r.cfg.Bind}); err != nil {
		return err
	}
	r.local.port = r.conn.LocalAddr().Port()
	r.loop.SetSocket(relay.Socket, r.conn)
	tun := port.TUNConfig{Name: r.cfg.Interface, MTU: r.cfg.MTU, Forwarding: router, Offload: true}
	if r.tun, err = port.OpenTUN(tun); err != nil {
		return err
	}
	r.loop.IP = r.tun
	if err := r.host.SetUp(r.tun.Name()); err != nil {
		return err
	}
	return r.setRoutes()
}

// setRoutes sets the routes to the Teredo prefixes; r.mu is held.
func (r *Relay) setRoutes() error {
	if !r.cfg.Route {
		return nil
	}
	for _, route := range relayRoutes(&r.cfg, r.tun.Name()) {
		if err := r.host.AddRoute(route); err != nil {
			return relayRouteTaken(err)
		}
	}
	return nil
}

// kernelForwards tells whether this host routes IPv6, in the network namespace
// of the calling thread. A kernel that does not say is taken to do it.
func kernelForwards() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/forwarding")
	return err != nil || strings.TrimSpace(string(text)) != "0"
}

// follow tells the engine about addresses that change, and sets the routes again
// when the device was down, until the watch ends.
func (r *Relay) follow(changes <-chan port.Change) error {
	for c := range changes {
		if c.Kind == port.LinkChanged || c.Kind == port.Overrun {
			r.followDevice(c)
		}
		if c.Kind != port.AddressChanged && c.Kind != port.Overrun {
			continue
		}
		if err := r.look(); err != nil {
			r.log.Warn("the host's addresses changed but cannot be read; the old ones stay in use", "error", err)
		}
	}
	return nil
}

// followDevice sets the routes again, which the kernel drops when a device is
// set down; somebody may have done that and undone it before the change was
// heard of.
func (r *Relay) followDevice(c port.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.host == nil {
		return // closed meanwhile
	}
	index, up, err := r.host.Link(r.tun.Name())
	if err != nil || c.Kind == port.LinkChanged && c.Link != index {
		return // the end of a device is for those who read it
	}
	was := r.down
	r.down = !up
	switch {
	case !up && !was:
		r.log.Warn("the device is down, so the relay gets no packets: run ip link set up", "interface", r.tun.Name())
	case up:
		if err := r.setRoutes(); err != nil {
			r.log.Warn("the device changed and its routes cannot be set again", "interface", r.tun.Name(), "error", err)
		} else if was {
			r.log.Info("the device is up again", "interface", r.tun.Name())
		}
	}
}

// look reads the host's addresses and gives them to the engine.
func (r *Relay) look() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.host == nil {
		return nil // closed meanwhile
	}
	addrs, err := r.host.IPv4()
	if err != nil {
		return err
	}
	now := local{port: r.local.port}
	for _, a := range addrs {
		now.own = append(now.own, a.Prefix.Addr())
		if a.Broadcast.IsValid() {
			now.broadcasts = append(now.broadcasts, a.Broadcast)
		}
	}
	if now.global, err = r.host.GlobalIPv6(r.tun.Name(), r.cfg.Prefixes...); err != nil {
		return err
	}
	r.local = now
	return r.reconfigure(&r.cfg)
}

// reconfigure gives the engine a configuration; r.mu is held.
func (r *Relay) reconfigure(cfg *config.Relay) (err error) {
	r.loop.Do(func(time.Time, *packet.Batch) {
		err = r.engine.Reconfigure(relayEngineConfig(cfg, &r.local))
	})
	return err
}

// closePorts makes the loops end.
func (r *Relay) closePorts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.Close()
	}
	if r.tun != nil {
		_ = r.tun.Close()
	}
}

// close takes the routes away, then the ports.
func (r *Relay) close() error {
	r.mu.Lock()
	host := r.host
	r.host = nil
	r.mu.Unlock()
	var err error
	if host != nil {
		err = host.Close()
	}
	r.closePorts()
	return err
}

// announce logs how the relay serves, once.
func (r *Relay) announce() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Info("serving", "mode", string(r.cfg.Mode), "listen", r.conn.LocalAddr(), "interface", r.tun.Name(), "prefixes", r.cfg.Prefixes)
	if r.cfg.Mode == config.ModeRelay && !r.forwarding {
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

// RelayStatus is the status of a relay.
type RelayStatus struct {
	// State is starting, serving, or device_down while somebody has set the
	// device down.
	State string `json:"state"`
	// Mode is relay or host.
	Mode config.Mode `json:"mode"`
	// Listen is the UDP socket, once it is open.
	Listen netip.AddrPort `json:"listen,omitzero"`
	// Interface is the TUN device.
	Interface string `json:"interface"`
	// Prefixes are the Teredo prefixes that it reaches.
	Prefixes []netip.Prefix `json:"prefixes"`
	// Serve are the ranges that clients may send to.
	Serve []netip.Prefix `json:"serve"`
	// Address is the source of ICMPv6 errors, if there is one.
	Address netip.Addr `json:"address,omitzero"`
	// Forwarding tells whether the kernel forwarded IPv6 when the relay started.
	Forwarding bool `json:"forwarding"`
	// Peers are all clients in the table, Trusted those with a proved mapping.
	Peers   int `json:"peers"`
	Trusted int `json:"trusted_peers"`
	// QueuedBytes wait for clients that have not answered yet.
	QueuedBytes int `json:"queued_bytes"`
	// CarryClients tells whether the relay carries between clients, and Bound
	// how many are bound to it for that.
	CarryClients bool `json:"carry_clients"`
	Bound        int  `json:"bound"`
}

// Status implements [role.Instance]; it returns a [RelayStatus].
func (r *Relay) Status() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := RelayStatus{
		State: r.state(), Mode: r.cfg.Mode, Interface: r.cfg.Interface, Address: r.address(), Forwarding: r.forwarding,
		Prefixes: slices.Clone(r.cfg.Prefixes), Serve: slices.Clone(r.cfg.Serve),
	}
	if r.conn != nil {
		st.Listen = r.conn.LocalAddr()
	}
	sizes := r.sizes()
	st.Peers, st.Trusted, st.QueuedBytes = sizes.Peers, sizes.Trusted, sizes.QueuedBytes
	st.CarryClients, st.Bound = r.cfg.CarryClients, sizes.Bound
	return st
}

// state is the word for RelayStatus.State; r.mu is held.
func (r *Relay) state() string {
	switch {
	case r.host == nil:
		return "starting"
	case r.down:
		return "device_down"
	}
	return "serving"
}

func (r *Relay) sizes() (s relay.Sizes) {
	r.loop.Do(func(time.Time, *packet.Batch) { s = r.engine.Sizes() })
	return s
}

// Peers implements [role.PeerLister].
func (r *Relay) Peers(limit int) (peers []role.Peer, total int) {
	var list []relay.Peer
	r.loop.Do(func(time.Time, *packet.Batch) {
		list, total = r.engine.Peers(limit), r.engine.Sizes().Peers
	})
	for _, p := range list {
		peers = append(peers, role.Peer{
			Address: p.Address, Mapped: p.Mapped, Trusted: p.Trusted,
			LastReceived: p.Received, LastSent: p.Sent, Queued: p.Queued,
		})
	}
	return peers, total
}

// Reload implements [role.Reloader]. Live are the keys that concern neither the
// ports nor the size of the table.
func (r *Relay) Reload(next *config.Config) (needsRestart []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, ok := next.Relay(r.name)
	if !ok {
		return nil, nil
	}
	if r.host == nil {
		return nil, errors.New("the relay is not running, so it cannot take new settings: restart it")
	}
	live := want
	live.Mode, live.Bind, live.Prefixes = r.cfg.Mode, r.cfg.Bind, r.cfg.Prefixes
	live.Interface, live.MTU, live.Route = r.cfg.Interface, r.cfg.MTU, r.cfg.Route
	live.MaxPeers = r.cfg.MaxPeers
	if err := r.reconfigure(&live); err != nil {
		return nil, err
	}
	r.cfg = live
	return config.Diff(live, want), nil
}
