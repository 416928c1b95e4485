// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
)

var (
	_ role.Instance   = (*Client)(nil)
	_ role.Reloader   = (*Client)(nil)
	_ role.PeerLister = (*Client)(nil)
)

// Client is one Teredo client: a UDP socket, a TUN device that has the Teredo
// address, and a default route by it while there is one.
type Client struct {
	name   string
	log    *slog.Logger
	engine *client.Client
	loop   Loop[*client.Out]
	ready  chan struct{}
	events *eventQueue
	device lateTun
	// sockets are those of random ports.
	sockets *randomSockets
	// Its link belongs to the looking mutex.
	discovery discoverySocket
	lookup    func(ctx context.Context, name string) ([]netip.Addr, error)

	mu       sync.Mutex // guards what follows
	cfg      config.Client
	resolved map[string][]netip.Addr // addresses of servers given by name
	changed  chan struct{}           // cfg has other servers than before

	// While running; set by open.
	host *port.Host
	conn *port.UDP
	tun  *port.TUN

	ports   *portMapping // nil: none wanted
	looking sync.Mutex   // guards network
	network networkState
	given   netip.Addr // address that the device is to have; the event loop's own

	relinked chan struct{} // the device changed: for the event loop
	down     atomic.Bool   // the device was set down
}

// NewClient makes the client that cfg describes, without touching the host.
func NewClient(cfg config.Client, log *slog.Logger) (*Client, error) {
	engine, err := client.New(clientEngineConfig(&cfg))
	if err != nil {
		return nil, err
	}
	c := &Client{
		name: cfg.Name, log: log, engine: engine, cfg: cfg,
		ready: make(chan struct{}), events: newEventQueue(), changed: make(chan struct{}, 1), relinked: make(chan struct{}, 1),
		sockets: newRandomSockets(),
		lookup:  lookupIPv4, resolved: map[string][]netip.Addr{},
	}
	c.loop.Engine = engine
	c.loop.IP = &c.device
	c.loop.NewOutput = func() *client.Out { return new(client.Out) }
	c.loop.Settled = func(out *client.Out) {
		c.events.push(out.Events)
		c.changeSockets(out.Sockets)
	}
	// A packet of the stack must not overtake those that wait for a peer.
	c.loop.Ordered = true
	if cfg.PortMapping != config.PortMappingNone {
		c.ports = newPortMapping(c)
	}
	return c, nil
}

// legacyPrefix was the service prefix before 2001::/32 was assigned. Listed
// beside others it means: accept old servers that still announce it.
var legacyPrefix = netip.MustParsePrefix("3ffe:831f::/32")

// clientEngineConfig translates the configuration for the engine.
func clientEngineConfig(cfg *config.Client) client.Config {
	c := client.Config{
		Rand: rand.Reader, Prefixes: cfg.Prefixes,
		Timeout: cfg.QualificationTimeout, Attempts: cfg.QualificationAttempts, Refresh: cfg.RefreshInterval,
		RefreshSearch: cfg.RefreshSearch, LocalDiscovery: cfg.LocalDiscovery,
		Fallback: cfg.Fallback, AllowPrivate: cfg.AllowPrivate, MaxPeers: cfg.MaxPeers,
		QueuePackets: cfg.QueuePackets, QueueBytes: cfg.QueueBytes, QueueTotalBytes: cfg.QueueTotalBytes,
	}
	c.NoHairpin, c.Alternates, c.NoLoadReduction, c.OpeningTTL = !cfg.Hairpin, cfg.HairpinAllow, !cfg.LoadReduction, cfg.OpeningTTL
	if c.RandomPorts = cfg.RandomPorts; cfg.RandomPorts == 0 {
		c.RandomPorts = -1
	}
	if cfg.Unsolicited == config.UnsolicitedEstablished {
		c.Inbound = client.Established
	}
	if i := slices.Index(cfg.Prefixes, legacyPrefix); i >= 0 && len(cfg.Prefixes) > 1 {
		c.LegacyPrefix = true
		c.Prefixes = slices.Delete(slices.Clone(cfg.Prefixes), i, i+1)
	}
	return c
}

// Name implements [role.Instance].
func (c *Client) Name() string { return c.name }

// Role implements [role.Instance].
func (c *Client) Role() string { return config.RoleClient }

// Ready implements [role.Instance].
func (c *Client) Ready() <-chan struct{} { return c.ready }

// Run implements [role.Instance]. It works in the network namespace of the
// calling thread. The first solicitation leaves before the device is made, since
// that takes longer than the answer.
func (c *Client) Run(ctx context.Context) (err error) {
	c.announce()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch when nothing else begins
	group, ctx := errgroup.WithContext(ctx)
	changes, err := port.Watch(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if e := c.close(); err == nil {
			err = e
		}
	}()
	if err := c.openSocket(); err != nil {
		return err
	}
	c.sockets.group = group
	if err := c.startEngine(); err != nil {
		return err
	}
	// One for each of the two reads that block. On a machine with two the
	// goroutine that sets the address would else wait for them.
	defer addProcessors(2)()
	group.Go(func() error {
		return c.loop.ReadUDP(c.conn, func(m *port.Message, now time.Time, out *client.Out) {
			c.engine.HandleUDP(m.From, m.Payload, now, out)
		})
	})
	group.Go(func() error { c.ports.keep(ctx); return nil })
	if c.discovery.conn != nil {
		group.Go(c.readDiscovery)
	}
	// From here on the group has to end before Run does, also on an error.
	defer context.AfterFunc(ctx, c.endReads)()
	if err := c.openDevice(ctx); err != nil {
		group.Go(func() error { return err })
	} else {
		group.Go(func() error { return c.loop.ReadTun(c.tun, c.engine.HandleIP) })
		group.Go(func() error { c.loop.RunTimer(ctx); return nil })
		group.Go(func() error { return c.applyEvents(ctx) })
		group.Go(func() error { return c.watchNetwork(ctx, changes) })
		group.Go(func() error {
			c.ports.await(ctx)
			c.resolveServers(ctx)
			return nil
		})
		close(c.ready)
	}
	c.sockets.serve(ctx)
	c.sockets.close()
	return group.Wait()
}

// announce says, before anything is opened, what the host lets itself in for.
func (c *Client) announce() {
	if c.cfg.Unsolicited == config.UnsolicitedAllow {
		c.log.Warn(`Teredo makes this host reachable from the whole IPv6 Internet: unsolicited = "allow" lets every peer in; filter on the device or write "established" if that is not meant`,
			"interface", c.cfg.Interface)
		return
	}
	c.log.Info(`only peers that this host has sent to may send to it: unsolicited = "established"`, "interface", c.cfg.Interface)
}

// openSocket opens what the first solicitation needs.
func (c *Client) openSocket() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bind := c.cfg.Bind
	if !bind.IsValid() {
		bind = netip.IPv4Unspecified()
	}
	if c.host, err = port.OpenHost(); err != nil {
		return err
	}
	if c.conn, err = port.ListenUDP4(port.UDPConfig{Addr: netip.AddrPortFrom(bind, c.cfg.Port)}); err != nil {
		return err
	}
	c.loop.SetSocket(0, c.conn)
	return c.openDiscovery()
}

// startEngine starts the engine with what is known of the network.
func (c *Client) startEngine() error {
	c.mu.Lock()
	cfg := c.cfg
	c.mu.Unlock()
	if err := c.setCredential(&cfg); err != nil {
		return err
	}
	servers := c.servers()
	if len(servers) > 0 {
		c.log.Info("asking for an address", "server", servers[0].Primary)
	} else {
		c.log.Info("looking the server up, to ask it for an address")
	}
	c.loop.Do(func(now time.Time, out *client.Out) { c.engine.Start(now, out) })
	c.lookAround()
	if c.ports != nil {
		return nil // the servers follow when the gateway has answered
	}
	c.loop.Do(func(now time.Time, out *client.Out) { c.engine.SetServers(servers, now, out) })
	return nil
}

// setCredential gives the engine the client's key, with the secret that is in its
// file now.
func (c *Client) setCredential(cfg *config.Client) error {
	credential, err := cfg.Credential()
	if err != nil {
		return err
	}
	c.loop.Do(func(now time.Time, out *client.Out) { err = c.engine.SetCredential(credential, now, out) })
	return err
}

// openDevice makes the TUN device.
func (c *Client) openDevice(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	tun, err := port.OpenTUN(port.TUNConfig{Name: c.cfg.Interface, MTU: teredo.MTU})
	if err != nil {
		return err
	}
	c.tun = tun
	c.device.set(tun)
	if ctx.Err() != nil {
		// The end came before, and found no device to close.
		return tun.Close()
	}
	return c.host.SetUp(tun.Name())
}

// endReads makes the loops that read return.
func (c *Client) endReads() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.Close()
	c.closeDiscovery()
	if c.tun != nil {
		_ = c.tun.Close()
	}
}

// close gives back what is open, addresses and routes included.
func (c *Client) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loop.Do(func(_ time.Time, out *client.Out) { c.engine.Stop(out) })
	var err error
	if c.host != nil {
		err = c.host.Close()
	}
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.closeDiscovery()
	if c.tun != nil {
		_ = c.tun.Close()
	}
	return err
}

// Reload implements [role.Reloader]. Servers and key can change while the client
// runs; the rest waits for a restart.
func (c *Client) Reload(next *config.Config) (needsRestart []string, err error) {
	want, ok := next.Client(c.name)
	if !ok {
		return nil, nil
	}
	if err := c.setCredential(&want); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.cfg.Servers, c.cfg.Secondary = want.Servers, want.Secondary
	c.cfg.KeyID, c.cfg.KeySecret, c.cfg.KeySecretFile, c.cfg.KeyAlgorithm = want.KeyID, want.KeySecret, want.KeySecretFile, want.KeyAlgorithm
	needsRestart = config.Diff(c.cfg, want)
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
	return needsRestart, nil
}

// lateTun is the device, once there is one. What the engine would deliver before
// is lost, but it cannot deliver before its address is known to anybody.
type lateTun struct {
	mu  sync.RWMutex
	tun *port.TUN
}

func (l *lateTun) set(t *port.TUN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tun = t
}

// WriteBatch implements [port.IPWriter].
func (l *lateTun) WriteBatch(pkts [][]byte) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.tun == nil {
		return fmt.Errorf("the device is not open yet: %w", port.ErrClosed)
	}
	return l.tun.WriteBatch(pkts)
}
