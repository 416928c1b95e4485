// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/sip/registrar"
	"github.com/isthmus-net/isthmus/sip/transaction"
)

var (
	_ role.Changer[Settings] = (*Registrar)(nil)
	_ role.Tracer            = (*Registrar)(nil)
)

// Registrar is one registrar with its proxy. It changes nothing on the host.
type Registrar struct {
	name     string
	log      *slog.Logger
	ready    chan struct{}
	tag      string // of answers to what could not be read
	loop     loop.Loop[*output]
	proxy    *registrar.Proxy // with the loop's mutex alone
	streams  streams
	counters counters
	rates    rates
	secure   atomic.Pointer[secure]
	resolver resolver
	journal  atomic.Pointer[kept.Journal] // nil: nothing is kept
	sockets  sockets                      // from the start of Run
	pending  sync.WaitGroup               // goroutines beside the loops

	addresses host.Addresses // of sockets

	mu      sync.Mutex // guards what follows, and the order of changes
	cfg     Settings
	running context.Context // of Run, until it ends
	lost    int             // bindings of an earlier process
	trouble string          // why nothing is kept now
}

// output is what the proxy has done, and the datagrams that are made of it.
type output struct {
	packet.Batch
	sip registrar.Output
}

// Reset implements [loop.Output].
func (o *output) Reset() {
	o.Batch.Reset()
	o.sip.Reset()
	o.sip.Lookups = nil
}

// engine is the proxy as the loop calls it.
type engine struct{ *registrar.Proxy }

// Tick implements [loop.Engine].
func (e engine) Tick(now time.Time, out *output) { e.Proxy.Tick(now, &out.sip) }

// New makes the registrar that cfg describes, without touching the host.
func New(cfg Settings, log *slog.Logger) (*Registrar, error) {
	p, err := prepare(&cfg)
	if err != nil {
		return nil, err
	}
	proxy, err := registrar.NewProxy(p.engine, p.proxy, rand.Reader)
	if err != nil {
		return nil, err
	}
	var tag [8]byte
	if _, err := rand.Read(tag[:]); err != nil {
		return nil, err
	}
	r := &Registrar{name: cfg.Name, log: log, ready: make(chan struct{}), proxy: proxy, cfg: cfg, tag: hex.EncodeToString(tag[:])}
	if err := r.rates.open(&cfg); err != nil {
		return nil, err
	}
	r.addresses.Without = "nobody reaches it"
	r.resolver.busy = make(chan struct{}, maxLookups)
	r.streams.open(r, &cfg)
	r.secure.Store(&p.secure)
	r.counters.faults = newFaults()
	proxy.Connected = r.streams.connected
	r.loop.Engine = engine{proxy}
	r.loop.Ordered = true // no 200 overtakes the 100 before it
	r.loop.NewOutput = func() *output { return new(output) }
	r.loop.Settled = r.settled
	r.loop.EachDropped = r.eachDropped
	return r, nil
}

// Name implements [role.Instance].
func (r *Registrar) Name() string { return r.name }

// Role implements [role.Instance].
func (r *Registrar) Role() string { return name }

// Ready implements [role.Instance].
func (r *Registrar) Ready() <-chan struct{} { return r.ready }

// Run implements [role.Instance]. It opens sockets in the network namespace of the calling thread.
func (r *Registrar) Run(ctx context.Context) (err error) {
	group, ctx, end := host.Group(ctx)
	defer func() {
		end()
		r.streams.closeAll()
		r.pending.Wait()
		err = errors.Join(err, r.close())
	}()
	list, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer r.sockets.close()
	defer context.AfterFunc(ctx, r.sockets.close)()
	for n, conn := range r.sockets.udp {
		group.Go(func() error { return r.loop.ReadUDP(conn, r.fromUDP(n, list[n])) })
	}
	for n, listener := range r.sockets.streams {
		l := list[len(r.sockets.udp)+n]
		group.Go(func() error { return r.accept(ctx, l, listener) })
	}
	if err := r.addresses.Watch(ctx, group, bound(list), r.log); err != nil {
		return err
	}
	group.Go(func() error { r.loop.RunTimer(ctx); return nil })
	group.Go(func() error { r.syncAgain(ctx); return nil })
	r.announce()
	close(r.ready)
	return group.Wait()
}

// open takes over what is kept, then opens the sockets, so that no request comes before it can be
// handled.
func (r *Registrar) open(ctx context.Context) ([]registrar.Listener, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if r.resolver.here, err = port.CurrentNamespace(); err != nil {
		return nil, err
	}
	list := listeners(&r.cfg)
	if err := r.openState(list); err != nil {
		return nil, err
	}
	if r.sockets, err = openSockets(list); err != nil {
		return nil, err
	}
	for n, conn := range r.sockets.udp {
		r.loop.SetSocket(n, conn)
	}
	r.running = ctx
	return list, nil
}

// close ends what open has begun.
func (r *Registrar) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = nil
	r.sockets.close()
	r.resolver.here.Close()
	return r.closeState()
}

// announce logs how the registrar serves, once.
func (r *Registrar) announce() {
	n := 0
	r.do(func(p *registrar.Proxy, _ time.Time, _ *registrar.Output) { _, n = p.Table().Len() })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Info("serving", "listen", r.cfg.Listen, "listen_tls", r.cfg.ListenTLS, "domains", r.cfg.Domains, "mode", r.cfg.Mode, "bindings", n)
}

// do runs f with the proxy to itself.
func (r *Registrar) do(f func(p *registrar.Proxy, now time.Time, out *registrar.Output)) {
	r.loop.Do(func(now time.Time, out *output) { f(r.proxy, now, &out.sip) })
}

// settled writes down what has changed, before anything is sent, then hands over what is to be sent;
// the loop's mutex is held. What cannot be sent has the proxy do something else.
func (r *Registrar) settled(out *output) {
	r.keep()
	for len(out.sip.Sends) > 0 {
		sends := out.sip.Sends
		out.sip.Sends = nil
		for i := range sends {
			if !r.send(out, &sends[i]) && sends[i].Message.IsRequest() {
				r.proxy.Unreachable(sends[i].To, time.Now(), &out.sip)
			}
		}
	}
	for _, l := range out.sip.Lookups {
		r.pending.Go(func() { r.lookUp(l) })
	}
	out.sip.Lookups = nil
}

// send sends a message, or reports that there is no way to do so; the loop's mutex is held.
func (r *Registrar) send(out *output, s *transaction.Send) bool {
	const usual = 2048
	if s.To.Reliable() {
		return r.streams.send(s)
	}
	for n, conn := range r.sockets.udp {
		if conn.LocalAddr() == s.To.Local {
			out.SendUDP(n, s.To.Remote, s.Message.Append(out.Alloc(usual)))
			return true
		}
	}
	return false
}

// Prepare implements [role.Changer]. Bindings, calls and connections stay.
func (r *Registrar) Prepare(want Settings) (role.Change, error) {
	p, err := prepare(&want)
	if err != nil {
		return nil, err
	}
	return func() ([]string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		err := error(nil)
		r.do(func(proxy *registrar.Proxy, _ time.Time, _ *registrar.Output) {
			err = proxy.Reconfigure(p.engine, p.proxy)
		})
		if err != nil {
			return nil, err
		}
		r.cfg = want
		r.secure.Store(&p.secure)
		r.rates.set(&want)
		r.streams.set(&want)
		return nil, nil
	}, nil
}

// Trace implements [role.Tracer]: it shows datagrams.
func (r *Registrar) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	return r.loop.Trace(ctx, r.name, sampling, emit)
}

// source is an address as others know it.
func source(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
