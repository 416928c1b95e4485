// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ftpalg

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/places"
)

// Peer is who talks to whom by a control connection: an IPv6 client to an IPv4 server, or
// an IPv4 client to an IPv6 server.
type Peer struct {
	// Client is the client's own address and port.
	Client netip.AddrPort
	// Server is the server's own address and port.
	Server netip.AddrPort
	// Seen is the address by which an IPv6 server knows an IPv4 client, and Called the one
	// by which the client has called it.
	Seen, Called netip.Addr
	// Prefix is the translation prefix by which the client named the server.
	Prefix netip.Prefix
	// Alias is the translator's number for the connection.
	Alias uint32
}

// Peers is what a [Proxy] needs of the translator. Its methods may be called at
// once.
type Peers interface {
	// Peer tells whose connection it is that came in from an address.
	Peer(from netip.AddrPort) (Peer, error)
	// Dial connects to the server, from the address that stands for the client there.
	Dial(ctx context.Context, p Peer) (*net.TCPConn, error)
	// Expect lets an IPv4 server connect to a port of the client, or an IPv4 client to a
	// port of the server, during hold, and returns the IPv4 address and port by which it
	// can: the address is that of the control connection. It does not block.
	Expect(p Peer, port uint16, hold time.Duration) (netip.AddrPort, error)
	// Announce reports that an IPv6 server will connect to a port of an IPv4 client, which
	// should see the address that it has called. It does not block.
	Announce(p Peer, port uint16) error
}

// Settings of a [Proxy]. The zero value of each is replaced by its default.
type Settings struct {
	// Passive leaves EPRT as it is; only EPSV is translated.
	Passive bool
	// Connections is how many there may be at once of IPv6 clients, and of IPv4 clients, so
	// that neither take the others' place; default 1024. Where there are as many, the client
	// that has most of them gives the one up that was silent longest.
	Connections int
	// PerClient is how many a client may have at once; default 64. A client is a
	// prefix of ClientLength bits, default 64, or an IPv4 address.
	PerClient, ClientLength int
	// Hold is how long a server may take to connect to a client's port; default
	// 60 s. RFC 6384 section 12 wants 30 s at least.
	Hold time.Duration
	// Dial is how long a connection to a server may take; default 30 s.
	Dial time.Duration
	// Idle ends a connection on which nothing is said, unless a transfer goes on or
	// the connection is copied without a look; default 2 h 4 min, as for TCP in RFC
	// 6146. A host that is gone is found sooner by keep-alives, which also keep the
	// translator's own session alive.
	Idle time.Duration
	// Write is how long a side may take to accept what it is sent; default 60 s.
	Write time.Duration
	// Log hears of servers that cannot be followed, at most once a minute; nil is
	// no one.
	Log *slog.Logger
}

// withDefaults returns the settings with nothing left out.
func (s Settings) withDefaults() Settings {
	number := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	duration := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	number(&s.Connections, 1024)
	number(&s.PerClient, 64)
	number(&s.ClientLength, 64)
	duration(&s.Hold, time.Minute)
	duration(&s.Dial, 30*time.Second)
	duration(&s.Idle, 2*time.Hour+4*time.Minute)
	duration(&s.Write, time.Minute)
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	return s
}

// check refuses settings that cannot work.
func (s Settings) check() error {
	switch {
	case s.Connections < 0 || s.PerClient < 0:
		return errors.New("a number of FTP connections is negative; give at least 1")
	case s.ClientLength < 1 || s.ClientLength > 128:
		return fmt.Errorf("a client of FTP cannot be a prefix of %d bits; give 1 to 128", s.ClientLength)
	case s.Hold < 30*time.Second:
		return fmt.Errorf("%v is too short for an FTP server to connect to a client; give at least 30 s", s.Hold)
	case s.Dial < 0 || s.Idle < 0 || s.Write < 0:
		return errors.New("a time limit of FTP is negative; give a time")
	}
	return nil
}

// Proxy carries FTP control connections. Its methods may be called at once.
type Proxy struct {
	settings Settings
	peers    Peers
	tally    tally
	log      *sparingLog

	mu     sync.Mutex
	places [families]*places.Places
}

// The families of clients.
const (
	ofIPv6 = iota
	ofIPv4
	families
)

// New returns a proxy for connections of a translator.
func New(s Settings, peers Peers) (*Proxy, error) {
	s = s.withDefaults()
	if err := s.check(); err != nil {
		return nil, err
	}
	p := &Proxy{settings: s, peers: peers, log: &sparingLog{to: s.Log}}
	for i := range p.places {
		p.places[i] = places.New(s.Connections, s.PerClient, places.Forever)
	}
	return p, nil
}

// SetLimits changes how many connections there may be at once of a family of clients, and how
// many of a client.
// What is open stays.
func (p *Proxy) SetLimits(connections, perClient int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	want := p.settings
	want.Connections, want.PerClient = connections, perClient
	want = want.withDefaults()
	if err := want.check(); err != nil {
		return err
	}
	p.settings.Connections, p.settings.PerClient = want.Connections, want.PerClient
	for _, of := range p.places {
		of.SetLimit(want.Connections, want.PerClient)
	}
	return nil
}

// Counters yields what has been counted.
func (p *Proxy) Counters() iter.Seq2[Counter, uint64] { return p.tally.all() }

// Active returns how many connections are open.
func (p *Proxy) Active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places[ofIPv6].Len() + p.places[ofIPv4].Len()
}

// Serve takes connections from a listener until ctx is done, then closes the
// listener and ends the connections, and returns nil when they have ended. The
// listener is one of TCP.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var open sync.WaitGroup
	defer open.Wait()
	defer cancel()
	for wait := time.Duration(0); ; {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("FTP connections are no longer accepted: %w", err)
		case err != nil:
			// Too many files are open, or the connection has gone meanwhile.
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			pause(ctx, wait)
			continue
		}
		wait = 0
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			conn.Close()
			return fmt.Errorf("FTP runs over TCP, not over %s", l.Addr().Network())
		}
		p.tally.add(accepted)
		open.Go(func() { p.serve(ctx, tcp) })
	}
}

// pause waits, but not beyond the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// errGaveWay ends a connection whose place another client has got.
var errGaveWay = errors.New("another client has got the place")

// seat is a place among those of a family.
type seat struct {
	of    *places.Places
	place *places.Place
}

// admit takes a place for a client; end is called when it must give it up. Without one,
// refused is why.
func (p *Proxy) admit(client netip.Addr, end context.CancelCauseFunc) (s seat, refused Counter) {
	s, length := seat{of: p.places[ofIPv6]}, p.settings.ClientLength
	if client.Is4() {
		s, length = seat{of: p.places[ofIPv4]}, client.BitLen()
	}
	prefix, err := client.Prefix(length)
	if err != nil {
		return s, strangerRefused
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var why places.Reason
	s.place, why = s.of.Enter(prefix.Addr(), time.Now(), func(places.Reason) { end(errGaveWay) })
	if why == places.Share {
		return s, tooManyOfClient
	}
	return s, tooMany
}

// use notes that something was said on a connection.
func (p *Proxy) use(s seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.of.Use(s.place, time.Now())
}

func (p *Proxy) leave(s seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.of.Leave(s.place)
}

// serve takes a connection from its beginning to its end.
func (p *Proxy) serve(ctx context.Context, client *net.TCPConn) {
	defer client.Close()
	from, err := netip.ParseAddrPort(client.RemoteAddr().String())
	if err != nil {
		p.tally.add(strangerRefused)
		return
	}
	peer, err := p.peers.Peer(from)
	if err != nil {
		p.tally.add(strangerRefused)
		abandon(client)
		return
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	seat, refused := p.admit(peer.Client.Addr(), end)
	if seat.place == nil {
		p.tally.add(refused)
		dismiss(client, replyBusy)
		return
	}
	defer p.leave(seat)
	dialing, cancel := context.WithTimeout(ctx, p.settings.Dial)
	server, err := p.peers.Dial(dialing, peer)
	cancel()
	switch {
	case err != nil && context.Cause(ctx) == errGaveWay:
		p.tally.add(gaveWay)
		dismiss(client, replyBusy)
		return
	case err != nil && ctx.Err() != nil:
		p.tally.add(stopped)
		dismiss(client, replyStop)
		return
	case err != nil:
		p.tally.add(serverUnreachable)
		dismiss(client, replyNoServer)
		return
	}
	defer server.Close()
	p.tally.add(p.relay(ctx, peer, client, server, func() { p.use(seat) }))
}

// dismiss says a last word to a client. If it does not arrive, nothing else would.
func dismiss(client *net.TCPConn, word string) {
	if client.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
		_, _ = client.Write([]byte(word))
	}
}

// abandon makes the closing of a connection a reset; if that fails, it is a FIN.
func abandon(conn *net.TCPConn) { _ = conn.SetLinger(0) }

// sparingLog writes a line a minute at most.
type sparingLog struct {
	to   *slog.Logger
	mu   sync.Mutex
	next time.Time
}

func (l *sparingLog) warn(now time.Time, text string, args ...any) {
	l.mu.Lock()
	due := !now.Before(l.next)
	if due {
		l.next = now.Add(time.Minute)
	}
	l.mu.Unlock()
	if due {
		l.to.Warn(text, args...)
	}
}
