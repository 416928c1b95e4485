// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/registrar"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

// resolver opens sockets and asks name servers in the network namespace of an instance.
type resolver struct {
	here port.Namespace
	busy chan struct{}
}

const (
	// lookupTimeout is how long all questions about one name may take.
	lookupTimeout = 8 * time.Second
	// maxServices is how many servers of a name are tried.
	maxServices = 8
	// maxLookups is how many names are looked up at a time; others wait.
	maxLookups = 256
)

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
func (r *resolver) names() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return r.dial(ctx, netip.Addr{}, network, address)
	}}
}

// lookUp finds the addresses of a name, and has the proxy go on.
func (r *Registrar) lookUp(l registrar.Lookup) {
	r.mu.Lock()
	ctx := r.running
	r.mu.Unlock()
	var found []transaction.Target
	if ctx != nil {
		r.resolver.busy <- struct{}{}
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		found = resolve(ctx, r.resolver.names(), &l.URI, l.Transport)
		cancel()
		<-r.resolver.busy
	}
	for _, t := range found {
		if t.Transport == "TLS" {
			r.streams.remember(l.URI.Host, t.Remote)
		}
	}
	r.do(func(p *registrar.Proxy, now time.Time, out *registrar.Output) { p.Resolved(l.ID, found, now, out) })
}

// namesOf is what is asked of name servers.
type namesOf interface {
	LookupSRV(ctx context.Context, service, protocol, name string) (string, []*net.SRV, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// resolve finds where a URI leads (RFC 3263 section 4): by its port, by services, or by its name alone.
// NAPTR records, which only choose a transport, are not asked for: where the URI names none, UDP is
// tried before TCP.
func resolve(ctx context.Context, names namesOf, u *message.URI, transport string) (found []transaction.Target) {
	if u.Port != 0 {
		return addresses(ctx, names, u.Host, u.Port, transport)
	}
	wanted := []string{transport}
	if transport == "UDP" && !u.Params.Has("transport") {
		wanted = append(wanted, "TCP")
	}
	for _, t := range wanted {
		_, services, err := names.LookupSRV(ctx, service(t), protocol(t), u.Host)
		if err != nil {
			continue
		}
		for _, one := range services[:min(len(services), maxServices)] { // by priority and weight
			found = append(found, addresses(ctx, names, one.Target, one.Port, t)...)
		}
		if len(found) > 0 {
			return found
		}
	}
	usual := uint16(sipPort)
	if transport == "TLS" {
		usual = sipsPort
	}
	return addresses(ctx, names, u.Host, usual, transport)
}

func service(transport string) string {
	if transport == "TLS" {
		return "sips"
	}
	return "sip"
}

func protocol(transport string) string {
	if transport == "UDP" {
		return "udp"
	}
	return "tcp"
}

// addresses are those of a host, IPv6 first.
func addresses(ctx context.Context, names namesOf, host string, port uint16, transport string) (list []transaction.Target) {
	for _, network := range []string{"ip6", "ip4"} {
		found, err := names.LookupNetIP(ctx, network, strings.TrimSuffix(host, "."))
		if err != nil {
			continue
		}
		for _, a := range found {
			list = append(list, transaction.Target{Transport: transport, Remote: netip.AddrPortFrom(a.Unmap(), port)})
		}
	}
	return list
}

// dial is the life of a connection that the proxy opens.
func (c *stream) dial() {
	defer c.finish()
	s := c.of
	conn, err := c.connect()
	if err != nil {
		s.counters.unopened.Add(1)
		return
	}
	if !c.take(conn) {
		return
	}
	s.counters.opened.Add(1)
	if c.at.Transport == "TLS" {
		secured := tls.Client(conn, s.r.secure.Load().forServers(s.nameOf(c.at.Remote)))
		if !c.handshake(secured) {
			return
		}
		conn = secured
	}
	c.carry(conn)
}

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
		return nil, ctx.Err()
	}
	return c.of.r.resolver.dial(ctx, c.at.Local.Addr(), "tcp", c.at.Remote.String())
}
