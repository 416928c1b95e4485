// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/ftpalg"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// ftpPort is that of control connections (RFC 959 section 3.2).
const ftpPort = 21

var _ ftpalg.Peers = (*ftpGateway)(nil)

// ftpGateway serves the FTP control connections that the engine gives to the host by a
// detour; see [nat64.DetourAddress]. It can be switched on and off while the translator
// runs.
type ftpGateway struct {
	translator *NAT64
	proxy      *ftpalg.Proxy
	namespace  port.Namespace

	mu      sync.Mutex
	current *ftpService // nil: off
	pool6   []netip.Prefix

	closed sync.Once
}

// ftpService is the gateway at work with one private prefix.
type ftpService struct {
	prefix netip.Prefix
	link   string
	host   *port.Host
	keeper *host.Keeper
	cancel context.CancelFunc
	group  errgroup.Group // of the keeper
	ended  chan error
}

// openFTP makes the gateway in the network namespace of the calling thread, and starts
// it if the configuration wants it.
func (n *NAT64) openFTP() (*ftpGateway, error) {
	g := &ftpGateway{translator: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	var err error
	if g.proxy, err = ftpalg.New(ftpalg.Settings{
		Connections: n.cfg.FTPConnections, PerClient: n.cfg.FTPConnectionsPerClient,
		Hold: n.cfg.ExpectedTimeout, ClientLength: n.cfg.ClientLength, Log: n.log,
	}, g); err != nil {
		return nil, err
	}
	if g.namespace, err = port.CurrentNamespace(); err != nil {
		return nil, err
	}
	commit, _, err := g.prepare(&n.cfg)
	if err != nil {
		g.namespace.Close()
		return nil, err
	}
	commit()
	n.ftp = g
	return g, nil
}

// prepare starts what a configuration wants beside what runs. commit ends the old, undo
// the new. A gateway that is nil, since the translator does not run, wants nothing.
func (g *ftpGateway) prepare(cfg *Settings) (commit, undo func(), err error) {
	if g == nil {
		return func() {}, func() {}, nil
	}
	var want netip.Prefix
	if cfg.FTP {
		want = algPrefix(cfg)
	}
	g.mu.Lock()
	old := g.current
	g.mu.Unlock()
	if old == nil && !want.IsValid() || old != nil && old.prefix == want {
		return func() { g.replace(old, cfg.Pool6) }, func() {}, nil
	}
	var fresh *ftpService
	if want.IsValid() {
		if fresh, err = g.start(want); err != nil {
			return nil, nil, err
		}
	}
	return func() { g.replace(fresh, cfg.Pool6).stop(g) }, func() { fresh.stop(g) }, nil
}

// limit applies the limits of a configuration.
func (g *ftpGateway) limit(cfg *Settings) error {
	if g == nil {
		return nil
	}
	return g.proxy.SetLimits(cfg.FTPConnections, cfg.FTPConnectionsPerClient)
}

// missing is what someone has removed of what the gateway has set up.
func (g *ftpGateway) missing() []string {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current == nil {
		return nil
	}
	return g.current.keeper.State().Missing
}

// replace puts a service in the place of another, which it returns.
func (g *ftpGateway) replace(s *ftpService, pool6 []netip.Prefix) (old *ftpService) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old, g.current, g.pool6 = g.current, s, pool6
	return old
}

// start sets the addresses of a prefix and listens.
func (g *ftpGateway) start(prefix netip.Prefix) (*ftpService, error) {
	s := &ftpService{prefix: prefix, link: g.translator.device.Name(), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	var listener net.Listener
	err := g.namespace.Do(func() (err error) {
		if s.host, err = port.OpenHost(); err != nil {
			return err
		}
		if err := s.address(); err != nil {
			return err
		}
		at := netip.AddrPortFrom(nat64.DetourAddress(prefix, nat64.DetourOwn, 1), ftpPort)
		listener, err = (&net.ListenConfig{Control: s.control}).Listen(ctx, "tcp6", at.String())
		if err != nil {
			return err
		}
		// The device itself is the translator's to keep.
		s.keeper = host.NewKeeper(s.host, host.KeptDevice{Name: s.link, Index: g.translator.device.Queues()[0].Index()}, g.translator.log)
		return s.keeper.Start(ctx, &s.group)
	})
	if err != nil {
		cancel()
		err = fmt.Errorf("the FTP gateway cannot start: %w", err)
		if s.host != nil {
			err = errors.Join(err, s.host.Close())
		}
		return nil, err
	}
	go func() { s.ended <- g.proxy.Serve(ctx, listener) }()
	return s, nil
}

// address gives the host the addresses of the prefix: A on the device, with a route for
// all, and those that servers are called from.
func (s *ftpService) address() error {
	own := netip.PrefixFrom(nat64.DetourAddress(s.prefix, nat64.DetourOwn, 1), 64)
	if err := s.host.AddAddr(s.link, own); err != nil {
		return err
	}
	// Or the host itself would use it, too, when it calls hosts behind the translator.
	if err := s.host.Prefer(s.link, own, false); err != nil {
		return err
	}
	dial := netip.PrefixFrom(nat64.DetourAddress(s.prefix, nat64.DetourDial, 0), 96)
	return s.host.AddLocal(s.link, dial)
}

// control prepares a socket: no one else's packets come in by the device, and the engine
// knows what it sends.
func (s *ftpService) control(_, _ string, raw syscall.RawConn) error {
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = errors.Join(port.FreeBind(fd, s.link), port.SetHops(fd, nat64.DetourHops))
	}); err != nil {
		return err
	}
	return failed
}

// stop ends a service with its connections.
func (s *ftpService) stop(g *ftpGateway) {
	if s == nil {
		return
	}
	s.cancel()
	if err := errors.Join(<-s.ended, s.group.Wait(), s.host.Close()); err != nil {
		g.translator.log.Warn("the FTP gateway did not end as it should", "error", err)
	}
}

// close ends the gateway, once.
func (g *ftpGateway) close() {
	g.closed.Do(func() {
		g.replace(nil, nil).stop(g)
		g.namespace.Close()
	})
}

// errDetour is a connection that the engine knows nothing of, or not any more.
var errDetour = errors.New("no control connection has that address")

// alias asks the engine for a control connection by its number.
func (g *ftpGateway) alias(number uint32) (a nat64.Alias, err error) {
	err = errDetour
	g.translator.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) {
		if found, ok := e.Alias(uint16(number)); ok {
			a, err = found, nil
		}
	})
	return a, err
}

// service returns what is at work.
func (g *ftpGateway) service() (*ftpService, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current == nil {
		return nil, errDetour
	}
	return g.current, nil
}

// Peer implements [ftpalg.Peers].
func (g *ftpGateway) Peer(from netip.AddrPort) (ftpalg.Peer, error) {
	s, err := g.service()
	if err != nil {
		return ftpalg.Peer{}, err
	}
	kind, number := nat64.DetourNumber(s.prefix, from.Addr())
	if kind != nat64.DetourAlias {
		return ftpalg.Peer{}, errDetour
	}
	a, err := g.alias(uint32(number))
	if err != nil || a.Client.Port() != from.Port() {
		return ftpalg.Peer{}, errDetour
	}
	if a.Client.Addr().Is4() {
		return ftpalg.Peer{Client: a.Client, Server: a.Inside, Seen: a.Seen, Called: a.Server.Addr(), Alias: uint32(number)}, nil
	}
	server, prefix, ok := g.embedded(a.Server.Addr())
	if !ok {
		return ftpalg.Peer{}, errDetour
	}
	return ftpalg.Peer{Client: a.Client, Server: netip.AddrPortFrom(server, a.Server.Port()), Prefix: prefix, Alias: uint32(number)}, nil
}

// embedded returns the IPv4 address in an address of pool6, and the prefix of that.
func (g *ftpGateway) embedded(a netip.Addr) (v4 netip.Addr, prefix netip.Prefix, ok bool) {
	g.mu.Lock()
	pool6 := g.pool6
	g.mu.Unlock()
	for _, prefix := range pool6 {
		p, err := translate.NewPrefix(prefix)
		if err != nil {
			continue
		}
		if v4, ok := p.Extract(a); ok {
			return v4, prefix, true
		}
	}
	return netip.Addr{}, netip.Prefix{}, false
}

// Dial implements [ftpalg.Peers]. What is sent from the address of the alias is
// translated on the client's account; to the server of an IPv4 client, by an address that
// stands for it.
func (g *ftpGateway) Dial(ctx context.Context, p ftpalg.Peer) (*net.TCPConn, error) {
	s, err := g.service()
	if err != nil {
		return nil, err
	}
	a, err := g.alias(p.Alias)
	if err != nil || a.Client != p.Client {
		return nil, errDetour
	}
	dialer := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(nat64.DetourAddress(s.prefix, nat64.DetourDial, a.Number), 0)),
		Control:   s.control,
	}
	server := a.Server
	if a.Client.Addr().Is4() {
		server = netip.AddrPortFrom(nat64.DetourAddress(s.prefix, nat64.DetourServer, a.Number), ftpPort)
	}
	var conn net.Conn
	err = g.namespace.Do(func() (err error) {
		conn, err = dialer.DialContext(ctx, "tcp6", server.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// Expect implements [ftpalg.Peers]; hold is the engine's own.
func (g *ftpGateway) Expect(p ftpalg.Peer, at uint16, _ time.Duration) (mapped netip.AddrPort, err error) {
	err = errDetour
	g.translator.do(func(e *nat64.Engine, now time.Time, out *nat64.Out) {
		if p.Client.Addr().Is6() {
			mapped, err = e.Expect(netip.AddrPortFrom(p.Client.Addr(), at), p.Server.Addr(), now, out)
		} else if n, ok := callOf(e, p); ok {
			mapped, err = e.ExpectCaller(n, at, now, out)
		}
	})
	return mapped, err
}

// Announce implements [ftpalg.Peers].
func (g *ftpGateway) Announce(p ftpalg.Peer, at uint16) (err error) {
	err = errDetour
	g.translator.do(func(e *nat64.Engine, now time.Time, out *nat64.Out) {
		if n, ok := callOf(e, p); ok {
			err = e.ExpectCalled(n, at, now, out)
		}
	})
	return err
}

// callOf is the number of an IPv4 client's connection, if it is still the one of that.
func callOf(e *nat64.Engine, p ftpalg.Peer) (number uint16, ok bool) {
	a, ok := e.Alias(uint16(p.Alias))
	return a.Number, ok && a.Client == p.Client && a.Inside == p.Server
}

// collect gives the metrics of the gateway, if there is one.
func (g *ftpGateway) collect(emit func(role.Metric)) {
	if g == nil {
		return
	}
	for c, n := range g.proxy.Counters() {
		emit(role.Metric{
			Name: "ftp_total", Kind: role.Counter, Help: "What FTP control connections did and how they ended.",
			Reason: c.String(), Value: float64(n),
		})
	}
	emit(role.Level("ftp_connections", "FTP control connections that are open.", float64(g.proxy.Active())))
}
