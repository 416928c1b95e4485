// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/server"
	"github.com/isthmus-net/isthmus/teredo/tunnel"
)

var (
	_ role.Instance          = (*Server)(nil)
	_ role.Changer[Settings] = (*Server)(nil)
	_ role.Tracer            = (*Server)(nil)
)

// Server is one Teredo server: a UDP socket on each address, and a raw socket
// for what goes on to the IPv6 Internet. It changes nothing on the host.
type Server struct {
	name   string
	log    *slog.Logger
	engine *server.Engine
	loop   loop.Loop[*packet.Batch]
	ready  chan struct{}
	self   tunnel.SelfCheck

	addresses host.Addresses // of conns

	mu    sync.Mutex // guards what follows
	cfg   Settings
	keys  int            // that the engine has
	host  *port.Host     // open while running
	conns [2][]*port.UDP // by server.Primary and server.Secondary, then by worker
	raw   *port.Raw6
}

// New makes the server that cfg describes, without touching the host.
func New(cfg Settings, log *slog.Logger) (*Server, error) {
	engine, err := server.New(engineConfig(&cfg, nil, nil))
	if err != nil {
		return nil, err
	}
	s := &Server{name: cfg.Name, log: log, engine: engine, ready: make(chan struct{}), cfg: cfg}
	s.addresses.Without = "clients get no answer from it"
	s.loop.Engine = engine
	s.loop.NewOutput = func() *packet.Batch { return new(packet.Batch) }
	s.loop.EachDropped = s.eachDropped
	return s, nil
}

// totalBurst is which part of a second's packets may come at once in all.
const totalBurst = 10

// engineConfig translates the configuration for the engine.
func engineConfig(cfg *Settings, broadcasts []netip.Addr, keys []Key) server.Config {
	primary, secondary := cfg.advertised()
	c := server.Config{
		Primary: cfg.Address, Secondary: cfg.Secondary,
		AdvertisedPrimary: primary, AdvertisedSecondary: secondary,
		Port:      cfg.Port,
		Prefixes:  cfg.Prefixes,
		MTU:       cfg.MTU,
		PerSource: ratelimit.PerSecond(cfg.RatePerSource, cfg.Burst),
		Total:     ratelimit.PerSecond(cfg.RateTotal, max(cfg.RateTotal/totalBurst, cfg.Burst)),
		Rand:      rand.Reader,

		RequireAuth: cfg.RequireAuth, Keys: engineKeys(keys),
	}
	c.Global.Allow, c.Global.Broadcasts = cfg.AllowPrivate, broadcasts
	return c
}

// engineKeys translates keys for the engine.
func engineKeys(keys []Key) (list []server.Key) {
	for _, k := range keys {
		list = append(list, server.Key{
			Credential: teredo.Credential{ID: k.ID, Secret: []byte(k.Secret), Algorithm: k.Algorithm},
			Expires:    k.Expires,
		})
	}
	return list
}

// Name implements [role.Instance].
func (s *Server) Name() string { return s.name }

// Role implements [role.Instance].
func (s *Server) Role() string { return name }

// Ready implements [role.Instance].
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run implements [role.Instance]. It opens the sockets in the network namespace
// of the calling thread.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	if err := s.open(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if err := s.addresses.Watch(ctx, group, s.bound(), s.log); err != nil {
		return err
	}
	for w := range s.conns[server.Primary] {
		s.work(group, w)
	}
	defer context.AfterFunc(ctx, s.close)()
	s.announce()
	close(s.ready)
	return group.Wait()
}

// work runs the loops of one worker, one for each address; all answer by its own
// sockets. The engine is shared: it takes a small part of the time that the kernel
// needs for a packet.
func (s *Server) work(group *errgroup.Group, w int) {
	var ports loop.Ports
	for _, conns := range s.conns {
		if w < len(conns) {
			ports.Sockets = append(ports.Sockets, conns[w])
		}
	}
	for i, conn := range ports.Sockets {
		group.Go(func() error {
			return s.loop.ReadUDPQuick(conn, ports, loop.Quick[*port.Message, *packet.Batch]{}, func(m *port.Message, now time.Time, out *packet.Batch) {
				if !s.self.FromUDP(i, m.From, m.Payload, out) {
					s.engine.HandleUDP(m.From, i, m.Payload, now, out)
				}
			})
		})
	}
}

// open opens what the server needs and tells the engine about the host.
func (s *Server) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.host, err = port.OpenHost(); err != nil {
		return err
	}
	keys, err := s.cfg.allKeys()
	if err != nil {
		return err
	}
	if err := s.reconfigure(&s.cfg, keys); err != nil {
		return err
	}
	if s.raw, err = port.OpenRaw6(); err != nil {
		return err
	}
	s.loop.IP = s.raw
	for i, a := range []netip.Addr{server.Primary: s.cfg.Address, server.Secondary: s.cfg.Secondary} {
		if !a.IsValid() {
			continue
		}
		group, err := port.ListenUDPGroup(port.UDPConfig{Addr: netip.AddrPortFrom(a, s.cfg.Port)}, loop.Workers(s.cfg.Workers))
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("%w; behind a 1:1 NAT the public address belongs under `advertise`, the host's own under `address`", err)
		}
		if err != nil {
			return err
		}
		s.conns[i] = group
		s.loop.SetSocket(i, group[0])
	}
	return nil
}

// reconfigure gives the engine a configuration, with the keys and the broadcast
// addresses that there are now; s.mu is held and the host open.
func (s *Server) reconfigure(cfg *Settings, keys []Key) error {
	own, err := s.host.IPv4()
	if err != nil {
		return err
	}
	var broadcasts []netip.Addr
	for _, a := range own {
		if a.Broadcast.IsValid() {
			broadcasts = append(broadcasts, a.Broadcast)
		}
	}
	s.loop.Do(func(time.Time, *packet.Batch) {
		err = s.engine.Reconfigure(engineConfig(cfg, broadcasts, keys))
	})
	if err == nil {
		s.keys = len(keys)
	}
	return err
}

// close closes what is open; calling it again is harmless.
func (s *Server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, group := range s.conns {
		for _, conn := range group {
			_ = conn.Close()
		}
	}
	if s.raw != nil {
		_ = s.raw.Close()
	}
	if s.host != nil {
		_ = s.host.Close()
		s.host = nil
	}
}

// announce logs how the server serves, once.
func (s *Server) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host == nil {
		return // stopped meanwhile
	}
	st := s.status()
	s.log.Info("serving", "listen", st.Listen, "advertise", st.Advertise, "prefix", st.Prefixes[0])
	if st.SingleAddress {
		s.log.Info("single-address mode: clients cannot tell a symmetric NAT by this server")
	}
	native, err := s.host.NativeIPv6(nil, s.cfg.Prefixes...)
	if err == nil && !native {
		s.log.Warn("this host has no IPv6 default route or no global IPv6 address: clients will not find relays by this server unless a route leads to their IPv6 peers")
	}
}

// bound are the addresses of the sockets.
func (s *Server) bound() (list []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, group := range s.conns {
		if len(group) > 0 { // none in single-address mode
			list = append(list, group[0].LocalAddr().Addr())
		}
	}
	return list
}

// Status is the status of a server.
type Status struct {
	// State is serving, or address_missing while the host lacks one of Listen.
	State string `json:"state"`
	// Listen are the sockets, primary first.
	Listen []netip.AddrPort `json:"listen"`
	// Advertise are the same as clients see them.
	Advertise []netip.Addr `json:"advertise"`
	// Missing are addresses of Listen that have gone from the host.
	Missing []netip.Addr `json:"missing_addresses,omitempty"`
	// SingleAddress reports that there is no secondary address.
	SingleAddress bool `json:"single_address"`
	// Prefixes are the service prefixes; the first is announced.
	Prefixes []netip.Prefix `json:"prefixes"`
	// MTU is announced to clients, in bytes.
	MTU int `json:"mtu"`
	// RequireAuth reports that clients without one of the Keys are refused.
	RequireAuth bool `json:"require_auth"`
	Keys        int  `json:"keys"`
}

// Status implements [role.Instance]; it returns a [Status].
func (s *Server) Status() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status()
}

// status builds the status; s.mu is held.
func (s *Server) status() Status {
	st := Status{
		State: "serving", Missing: s.addresses.Missing(),
		SingleAddress: !s.cfg.Secondary.IsValid(), Prefixes: slices.Clone(s.cfg.Prefixes), MTU: s.cfg.MTU,
		RequireAuth: s.cfg.RequireAuth, Keys: s.keys,
	}
	switch {
	case s.host == nil:
		st.State = "starting"
	case len(st.Missing) > 0:
		st.State = "address_missing"
	}
	add := func(bound, advertised netip.Addr) {
		if !bound.IsValid() {
			return
		}
		st.Listen = append(st.Listen, netip.AddrPortFrom(bound, s.cfg.Port))
		st.Advertise = append(st.Advertise, advertised)
	}
	primary, secondary := s.cfg.advertised()
	add(s.cfg.Address, primary)
	add(s.cfg.Secondary, secondary)
	return st
}

// Prepare implements [role.Changer]. The file of keys is read again.
func (s *Server) Prepare(next Settings) (role.Change, error) {
	keys, err := next.allKeys()
	if err != nil {
		return nil, err
	}
	return func() ([]string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.host == nil {
			return nil, errors.New("the server is not running, so it cannot take new settings: restart it")
		}
		if err := s.reconfigure(&next, keys); err != nil {
			return nil, err
		}
		s.cfg = next
		return nil, nil
	}, nil
}

// Collect implements [role.Instance].
func (s *Server) Collect(emit func(role.Metric)) {
	var c server.Counters
	s.loop.Do(func(time.Time, *packet.Batch) { c = s.engine.Counters() })
	emit(role.Count("received_total", "UDP datagrams received.", c.Received))
	emit(role.Count("advertisements_total", "Router solicitations answered.", c.Advertisements))
	emit(role.Count("authenticated_total", "Router solicitations answered under a valid key.", c.Authenticated))
	emit(role.Count("keys_expired_total", "Router solicitations answered: key expired.", c.KeysExpired))
	emit(role.Count("keys_unknown_total", "Router solicitations answered: no such key.", c.KeysUnknown))
	emit(role.Count("bubbles_total", "Bubbles sent on to Teredo clients.", c.Bubbles))
	emit(role.Count("icmpv6_to_clients_total", "ICMPv6 messages sent on to Teredo clients.", c.ICMPv6ToClients))
	emit(role.Count("to_ipv6_total", "Packets sent on to the IPv6 Internet.", c.ToIPv6))
	emit(role.Count("echo_replies_total", "Echo requests to the server itself that were answered.", c.EchoReplies))
	for r := server.Reason(1); r < server.NumReasons; r++ {
		emit(role.Dropped(r.String(), c.Dropped[r]))
	}
	s.collectPorts(emit)
}

// collectPorts reports what the ports could not receive or send.
func (s *Server) collectPorts(emit func(role.Metric)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var udp, raw port.Stats
	for _, group := range s.conns {
		for _, conn := range group {
			udp = udp.Plus(conn.Stats())
		}
	}
	if s.raw != nil {
		raw = s.raw.Stats()
	}
	loop.CollectPort(emit, "udp", udp)
	loop.CollectPort(emit, "ipv6", raw)
}

// Trace implements [role.Tracer].
func (s *Server) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	return s.loop.Trace(ctx, s.name, sampling, emit)
}

func (s *Server) eachDropped(f func(reason string, n uint64)) {
	c := s.engine.Counters()
	for r := server.Reason(1); r < server.NumReasons; r++ {
		f(r.String(), c.Dropped[r])
	}
}
