// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/retry"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/client"
)

var (
	_ role.Instance          = (*Client)(nil)
	_ role.Changer[Settings] = (*Client)(nil)
	_ role.PeerLister        = (*Client)(nil)
	_ role.Tracer            = (*Client)(nil)

	_ role.AddressSource = (*Client)(nil)
)

// Client is one Teredo client: a UDP socket, a TUN device that has the Teredo
// address, and a default route by it while there is one.
type Client struct {
	name   string
	log    *slog.Logger
	engine *client.Client
	loop   loop.Loop[*client.Out]
	ready  chan struct{}
	events *eventQueue
	dev    *device
	hook   *hook
	// sockets are those of random ports.
	sockets *randomSockets
	// Its link belongs to the looking mutex.
	discovery discoverySocket
	// via is the interface that the socket is bound to, "" if any; above is told
	// of events instead of the device, if not nil.
	via    string
	above  func(c *Client, e client.Event) error
	lookup func(ctx context.Context, name string) ([]netip.Addr, error)

	mu       sync.Mutex // guards what follows
	cfg      Settings
	resolved map[string][]netip.Addr // addresses of servers given by name
	changed  chan struct{}           // cfg has other servers than before

	// While running; set by open.
	host *port.Host
	conn *port.UDP

	fast    *fastMember
	ports   *portMapping // nil: none wanted
	looking sync.Mutex   // guards what follows
	network networkState
	examine func() (networkState, error)
	unseen  retry.Trouble // of that
	blind   chan struct{} // it has failed

	unserved retry.Trouble // by servers; of those who apply events alone
}

// NewClient makes the client that cfg describes, without touching the host.
func NewClient(cfg Settings, log *slog.Logger) (*Client, error) {
	engine, err := client.New(engineConfig(&cfg))
	if err != nil {
		return nil, err
	}
	c := &Client{
		unserved: retry.Trouble{Last: lastLookup},
		name:     cfg.Name, log: log, engine: engine, cfg: cfg,
		ready: make(chan struct{}), events: newEventQueue(), changed: make(chan struct{}, 1),
		sockets: newRandomSockets(),
		lookup:  lookupIPv4, resolved: map[string][]netip.Addr{},
		unseen: retry.Trouble{First: firstLook, Last: lastLook}, blind: make(chan struct{}, 1),
	}
	c.examine = c.examineNetwork
	c.dev = newDevice(cfg, log)
	c.dev.active = c
	c.hook = newHook(cfg.OnChange, cfg.OnChangeTimeout, log)
	c.dev.onChange(c.hook.push)
	c.joinFast(c.dev.fast)
	c.loop.IP = c.dev
	c.loop.NewOutput = func() *client.Out { return new(client.Out) }
	c.loop.EachDropped = c.eachDropped
	c.loop.Settled = func(out *client.Out) {
		c.events.push(out.Events)
		c.changeSockets(out.Sockets)
		c.fast.settle(out, engine.FastChanges())
	}
	// A packet of the stack must not overtake those that wait for a peer.
	c.loop.Ordered = true
	if cfg.PortMapping != PortMappingNone {
		c.ports = newPortMapping(c)
	}
	return c, nil
}

// legacyPrefix was the service prefix before 2001::/32 was assigned. Listed
// beside others it means: accept old servers that still announce it.
var legacyPrefix = netip.MustParsePrefix("3ffe:831f::/32")

// engineConfig translates the configuration for the engine.
func engineConfig(cfg *Settings) client.Config {
	c := client.Config{
		Rand: rand.Reader, Prefixes: cfg.Prefixes,
		Timeout: cfg.QualificationTimeout, Attempts: cfg.QualificationAttempts, Refresh: cfg.RefreshInterval, Probe: cfg.ProbeAfter,
		RefreshSearch: cfg.RefreshSearch, LocalDiscovery: cfg.LocalDiscovery,
		Fallback: cfg.Fallback, AllowPrivate: cfg.AllowPrivate, MaxPeers: cfg.MaxPeers,
		QueuePackets: cfg.QueuePackets, QueueBytes: cfg.QueueBytes, QueueTotalBytes: cfg.QueueTotalBytes,
	}
	if cfg.FastPath != fastpath.ModeOff {
		c.FastPeers = fastEndpoints
	}
	c.NoHairpin, c.Alternates, c.NoLoadReduction, c.OpeningTTL = !cfg.Hairpin, cfg.HairpinAllow, !cfg.LoadReduction, cfg.OpeningTTL
	if c.RandomPorts = cfg.RandomPorts; cfg.RandomPorts == 0 {
		c.RandomPorts = -1
	}
	c.Standby = cfg.Native == NativeStandby
	if cfg.Unsolicited == UnsolicitedEstablished {
		c.Inbound = client.Established
	}
	if i := slices.Index(cfg.Prefixes, legacyPrefix); i >= 0 && len(cfg.Prefixes) > 1 {
		c.LegacyPrefix = true
		c.Prefixes = slices.Delete(slices.Clone(cfg.Prefixes), i, i+1)
	}
	return c
}

// OnAddressChange implements [role.AddressSource].
func (c *Client) OnAddressChange(f func(event.AddressChange)) { c.dev.onChange(f) }

// Name implements [role.Instance].
func (c *Client) Name() string { return c.name }

// Role implements [role.Instance].
func (c *Client) Role() string { return name }

// Ready implements [role.Instance].
func (c *Client) Ready() <-chan struct{} { return c.ready }

// Run implements [role.Instance]. It works in the network namespace of the
// calling thread.
func (c *Client) Run(ctx context.Context) error {
	announce(&c.cfg, c.log)
	wait, err := c.start(ctx)
	if err != nil {
		return err
	}
	return wait()
}

// start opens what the client needs, in the network namespace of the calling
// thread, and sets it to work until ctx is done; wait returns when all has ended
// and is given back. The first solicitation leaves before the device is made,
// since that takes longer than the answer.
func (c *Client) start(ctx context.Context) (wait func() error, err error) {
	group, ctx := errgroup.WithContext(ctx)
	end := func() error {
		c.sockets.serve(ctx)
		c.sockets.close()
		return errors.Join(group.Wait(), c.close())
	}
	changes, err := port.Watch(ctx)
	if err == nil {
		err = c.openSocket()
	}
	if err != nil {
		group.Go(func() error { return err }) // ends ctx, and with it the watch
		return nil, end()
	}
	c.sockets.group = group
	if err := c.startEngine(); err != nil {
		group.Go(func() error { return err })
		return nil, end()
	}
	group.Go(func() error {
		return c.loop.ReadUDP(c.conn, func(m *port.Message, now time.Time, out *client.Out) {
			c.engine.HandleUDP(m.From, m.Payload, now, out)
		})
	})
	group.Go(func() error { c.ports.keep(ctx); return nil })
	if c.discovery.conn != nil {
		group.Go(c.readDiscovery)
	}
	context.AfterFunc(ctx, c.endReads)
	if err := c.openDevice(ctx, group); err != nil {
		group.Go(func() error { return err })
		return end, nil
	}
	if c.above == nil {
		group.Go(func() error { return c.loop.ReadTun(c.dev.tun.Queues[0], c.engine.HandleIP) })
		group.Go(func() error { c.hook.run(ctx); return nil })
		c.dev.startFast(ctx, group)
	}
	group.Go(func() error { c.loop.RunTimer(ctx); return nil })
	group.Go(func() error { return c.applyEvents(ctx) })
	group.Go(func() error { return c.watchNetwork(ctx, changes) })
	group.Go(func() error { c.lookAgain(ctx); return nil })
	group.Go(func() error { c.watchSleep(ctx); return nil })
	group.Go(func() error {
		c.ports.await(ctx)
		c.resolveServers(ctx)
		return nil
	})
	close(c.ready)
	return end, nil
}

// announce says, before anything is opened, what the host lets itself in for.
func announce(cfg *Settings, log *slog.Logger) {
	if cfg.Unsolicited == UnsolicitedAllow {
		log.Warn(`Teredo makes this host reachable from the whole IPv6 Internet: unsolicited = "allow" lets every peer in; filter on the device or write "established" if that is not meant`,
			"interface", cfg.Interface)
		return
	}
	log.Info(`only peers that this host has sent to may send to it: unsolicited = "established"`, "interface", cfg.Interface)
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
	if c.conn, err = port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(bind, c.cfg.Port), Device: c.via}); err != nil {
		return err
	}
	c.loop.SetSocket(0, c.conn)
	c.conn.OnRefusal(func(to netip.AddrPort) {
		c.loop.Do(func(now time.Time, _ *client.Out) { c.engine.Unreachable(to, now) })
	})
	if err := c.conn.Refusals(true); err != nil {
		return err
	}
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
func (c *Client) setCredential(cfg *Settings) error {
	credential, err := cfg.credential()
	if err != nil {
		return err
	}
	c.loop.Do(func(now time.Time, out *client.Out) { err = c.engine.SetCredential(credential, now, out) })
	return err
}

// openDevice makes the TUN device and has it kept as it is to be, unless the client shares
// one.
func (c *Client) openDevice(ctx context.Context, group *errgroup.Group) error {
	if c.above != nil {
		return nil
	}
	if err := c.dev.open(ctx); err != nil {
		return err
	}
	return c.dev.keep(ctx, group)
}

// endReads makes the loops that read return.
func (c *Client) endReads() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.Close()
	c.closeDiscovery()
	if c.above == nil {
		c.dev.endReads()
	}
}

// close gives back what is open, addresses and routes included.
func (c *Client) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loop.Do(func(_ time.Time, out *client.Out) { c.engine.Stop(out) })
	c.fast.leave()
	var err error
	if c.above == nil {
		err = c.dev.close()
	}
	if c.host != nil {
		err = errors.Join(err, c.host.Close())
	}
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.closeDiscovery()
	return err
}

// Prepare implements [role.Changer]. The file of the secret is read again.
func (c *Client) Prepare(next Settings) (role.Change, error) {
	if _, err := next.credential(); err != nil {
		return nil, err
	}
	return func() ([]string, error) {
		if err := c.setCredential(&next); err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.cfg = next
		c.mu.Unlock()
		select {
		case c.changed <- struct{}{}:
		default:
		}
		return nil, nil
	}, nil
}
