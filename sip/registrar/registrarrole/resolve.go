// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sip/locate"
	"github.com/isthmus-net/isthmus/sip/registrar"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// resolver opens sockets and asks name servers in the network namespace of an instance.
type resolver struct {
	here port.Namespace
	busy chan struct{}
}

// maxLookups is how many names are looked up at a time; others wait.
const maxLookups = 256

// dial opens a connection or a socket for questions.
func (r *resolver) dial(ctx context.Context, local netip.Addr, network, address string) (conn net.Conn, err error) {
	dialer := net.Dialer{}
	if local.IsValid() {
		dialer.LocalAddr = &net.TCPAddr{IP: local.AsSlice()}
	}
	failed := r.here.Do(func() error {
		conn, err = dialer.DialContext(ctx, network, address)
		return nil
	})
	if failed != nil {
		return nil, failed
	}
	return conn, err
}

// names asks the name servers of the host.
func (r *resolver) names() locate.System {
	return locate.NewSystem(func(ctx context.Context, network, address string) (net.Conn, error) {
		return r.dial(ctx, netip.Addr{}, network, address)
	})
}

// usable are the transports and families that there is a listener of, for without one the proxy sends nothing.
func usable(list []registrar.Listener) locate.Usable {
	return func(transport string, v4 bool) bool {
		return slices.ContainsFunc(list, func(l registrar.Listener) bool {
			return l.Transport == transport && l.Address.Addr().Is4() == v4
		})
	}
}

// lookUp finds the addresses of a name, and has the proxy go on.
func (r *Registrar) lookUp(l registrar.Lookup) {
	r.mu.Lock()
	ctx, list := r.running, listeners(&r.cfg)
	r.mu.Unlock()
	var found []transaction.Target
	if ctx != nil {
		r.resolver.busy <- struct{}{}
		ctx, cancel := context.WithTimeout(ctx, locate.Within)
		found = locate.URI(ctx, r.resolver.names(), &l.URI, l.Transport, usable(list))
		cancel()
		<-r.resolver.busy
	}
	for i := range found {
		if found[i].Transport == "TLS" {
			found[i].Name = l.URI.Host
		}
	}
	r.do(func(p *registrar.Proxy, now time.Time, out *registrar.Output) { p.Resolved(l.ID, found, now, out) })
}

// dial is the life of a connection that the proxy opens.
func (c *stream) dial() {
	defer c.finish()
	s := c.of
	conn, err := c.connect()
	if err != nil {
		s.counters.unopened.Add(1)
		if !errors.Is(err, errNoTurn) {
			c.avoid()
		}
		return
	}
	if !c.take(conn) {
		return
	}
	s.counters.opened.Add(1)
	if c.at.Transport == "TLS" {
		secured := tls.Client(conn, s.r.secure.Load().forServers(serverName(c.at)))
		if !c.handshake(secured) {
			c.avoid()
			return
		}
		conn = secured
	}
	c.carry(conn)
}

// avoid has other servers of its name tried before the one that no connection could be opened to, unless that was
// given up here.
func (c *stream) avoid() {
	select {
	case <-c.done:
	default:
		c.of.r.do(func(p *registrar.Proxy, now time.Time, _ *registrar.Output) { p.Unopened(c.at, now) })
	}
}

// serverName is what a server proves to be: the name that it was looked up by, or its address.
func serverName(t transaction.Target) string {
	if t.Name != "" {
		return t.Name
	}
	return t.Remote.Addr().String()
}

// errNoTurn: too many connections are being opened for this one to be tried.
var errNoTurn = errors.New("too many connections are being opened")

// connect opens the connection in time, in which it also has its turn.
func (c *stream) connect() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.of.connect.Load()))
	defer cancel()
	go func() {
		select {
		case <-c.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	select {
	case c.of.dials <- struct{}{}:
		defer func() { <-c.of.dials }()
	case <-ctx.Done():
		return nil, errNoTurn
	}
	return c.of.r.resolver.dial(ctx, c.at.Local.Addr(), "tcp", c.at.Remote.String())
}
