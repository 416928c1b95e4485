// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// Endpoint is a port of this host with its associations (RFC 9260 section 1.2).
type Endpoint struct {
	network network
	config  Config
	par     Parameters
	addr    Addr
	host    *port.Host
	asking  sync.Mutex // held while the host is asked
	sockets sockets
	readers sync.WaitGroup // of the sockets
	claim   io.Closer      // on the port, beside raw sockets
	// transient says that the endpoint has a port which no one else waits for.
	transient bool
	accepts   chan *Conn

	stopWatch context.CancelFunc
	stopped   chan struct{} // closed by Close
	emptied   chan struct{} // closed with the last association
	finished  chan struct{} // closed with the sockets
	capture   atomic.Pointer[func(time.Time, bool, *Packet)]
	quick     signal // for the goroutine that sends for users who send quickly
	quickOnce sync.Once

	mu         sync.Mutex // holds the engine and all that follows
	engine     *assoc.Endpoint
	local      []netip.Addr        // that new associations have
	broadcasts []netip.Addr        // of the host's links, at the beginning
	present    map[netip.Addr]bool // of the host, if the endpoint follows them, and whether their links are up
	conns      map[*Conn]struct{}
	started    []*Conn // in this turn
	woken      []*Conn // have something for their readers, in this turn
	timer      *time.Timer
	armed      time.Time // when the timer goes off; zero is never
	resting    int       // readers that rest
	prompt     bool      // none is to
	closing    bool      // no new associations; with the last one the endpoint is closed
	empty      bool      // the last one has ended
	lastEnd    time.Time // of an association whose set-up the peer had answered
	closed     bool      // nothing more is to be sent
	released   bool      // the sockets, too

	eventsLost, notBound, rests uint64

	filling, leaving *assoc.Output // what the engine puts out, and what is being sent
	sending          bool          // by someone
	lastSend         time.Time     // when a user sent a message
	quickSends       int           // of them that came quickly behind each other
}

// open opens an endpoint at an address.
func (c *Config) open(ctx context.Context, name, address string, listen bool) (*Endpoint, error) {
	op := "dial"
	if listen {
		op = "listen"
	}
	e, err := c.openAt(ctx, name, address, listen)
	if err != nil {
		return nil, &net.OpError{Op: op, Net: name, Err: err}
	}
	return e, nil
}

func (c *Config) openAt(ctx context.Context, name, address string, listen bool) (*Endpoint, error) {
	n, err := parseNetwork(name)
	if err != nil {
		return nil, err
	}
	local, err := n.resolve(ctx, address, 0)
	if err == nil {
		err = n.takeAll(local)
	}
	if err == nil && (c.UDPPort < AnyPort || c.UDPPort > 1<<16-1) {
		err = &net.AddrError{Err: "invalid port of UDP", Addr: strconv.Itoa(c.UDPPort)}
	}
	if err != nil {
		return nil, err
	}
	e := &Endpoint{
		network: n, config: *c, par: Defaults(), addr: *local, transient: local.Port == 0 && !listen, conns: map[*Conn]struct{}{},
		stopped: make(chan struct{}), emptied: make(chan struct{}), finished: make(chan struct{}), quick: newSignal(),
		filling: &assoc.Output{}, leaving: &assoc.Output{}, stopWatch: func() {},
	}
	e.config.fill(&e.par)
	if err := e.par.Check(); err != nil {
		return nil, err
	}
	e.prompt = e.config.Prompt
	e.keepPrompt(&e.par.PathParameters)
	e.accepts = make(chan *Conn, e.config.Backlog)
	if e.host, err = port.OpenHost(); err != nil {
		return nil, err
	}
	changes, err := e.findAddresses()
	if err == nil {
		err = e.openSockets(listen)
	}
	if err != nil {
		e.stopWatch()
		e.closeHost()
		return nil, err
	}
	e.engine = assoc.New(assoc.Config{
		Port: e.addr.Port, Addresses: e.local, Parameters: e.par, Listen: listen, Hidden: c.HideAddresses,
		MaxAssociations: e.config.MaxAssociations, Random: func(b []byte) { _, _ = rand.Read(b) }, // never fails
	})
	e.engine.SetBroadcasts(e.broadcasts)
	e.timer = time.AfterFunc(time.Hour, e.tick)
	e.readAll()
	if changes != nil {
		go e.watch(changes)
	}
	return e, nil
}

// openSockets opens the endpoint's sockets, and chooses its port if it is to.
func (e *Endpoint) openSockets(listen bool) error {
	if !e.network.udp {
		e.takeOver(0)
		return e.openRaw()
	}
	return e.openUDP(listen)
}

// fill puts defaults where nothing is said.
func (c *Config) fill(par *Parameters) {
	if c.Parameters != nil {
		*par = *c.Parameters
	}
	if c.MaxAssociations <= 0 {
		c.MaxAssociations = defaultAssociations
	}
	if c.Backlog <= 0 {
		c.Backlog = defaultBacklog
	}
}

// anyPort draws a dynamic port (RFC 6335 section 6).
func anyPort() uint16 {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return 49152 | binary.BigEndian.Uint16(b[:])
}

// Addr returns the address of the endpoint, without hosts if it has all those of this host.
func (e *Endpoint) Addr() net.Addr { return &e.addr }

// Dial sets up an association from the endpoint. It is given up when ctx is done.
func (e *Endpoint) Dial(ctx context.Context, address string) (*Conn, error) {
	remote, err := e.network.resolve(ctx, address, DefaultUDPPort)
	switch {
	case err != nil:
	case len(remote.Hosts) == 0:
		err = &net.AddrError{Err: "an address of the peer is needed", Addr: address}
	case e.network.udp && remote.UDP == 0:
		err = &net.AddrError{Err: "invalid port of UDP", Addr: address}
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: e.network.name, Err: err}
	}
	c, err := e.dial(ctx, remote)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: e.network.name, Addr: remote, Err: err}
	}
	return c, nil
}

func (e *Endpoint) dial(ctx context.Context, remote *Addr) (c *Conn, err error) {
	sources := e.sourcesTo(remote.Hosts)
	c = newConn(e, false)
	t := e.begin()
	if e.closing {
		e.finish(t)
		return nil, net.ErrClosed
	}
	e.preferSources(sources)
	c.a, err = e.engine.Connect(remote.Hosts, remote.Port, remote.UDP, e.par, t.now, t.Output)
	if err == nil {
		c.a.User = c
		e.conns[c] = struct{}{}
	}
	e.finish(t)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.ready:
		return c, nil
	case <-c.done:
		if isClosed(c.ready) { // the peer has ended at once what it had set up
			return c, nil
		}
		return nil, c.failure()
	case <-ctx.Done():
		c.abort("given up")
		return nil, ctx.Err()
	}
}

// Close takes no new associations. Those that there are go on, and with the end of the last one the endpoint's
// sockets are closed.
func (e *Endpoint) Close() error {
	t := e.begin()
	if e.closing {
		e.finish(t)
		return net.ErrClosed
	}
	e.closing = true
	close(e.stopped)
	e.engine.SetListen(false)
	e.refuse(t)
	e.finish(t)
	return nil
}

// refuse aborts the associations that wait for Accept, which may take one meanwhile.
func (e *Endpoint) refuse(t turn) {
	for {
		select {
		case c := <-e.accepts:
			c.a.Abort("not accepted", t.Output)
		default:
			return
		}
	}
}

// Shutdown closes the endpoint and all its associations, and waits until what was sent has been acknowledged. When
// ctx is done before, it aborts them.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	_ = e.Close() // or it was closed before
	t := e.begin()
	for c := range e.conns {
		c.close(t)
	}
	e.finish(t)
	select {
	case <-e.emptied:
		return nil
	case <-ctx.Done():
	}
	t = e.begin()
	for c := range e.conns {
		c.a.Abort("the endpoint is closed", t.Output)
	}
	e.finish(t)
	return ctx.Err()
}
