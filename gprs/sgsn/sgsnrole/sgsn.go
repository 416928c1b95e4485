// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package sgsnrole is the SGSN emulator that runs: it has the sockets of its GSN addresses, and
// gives each terminal a TUN device, in a network namespace of its own if it is to have one, with
// the addresses, routes and MTU that the network has told it. What is said to GGSNs is decided
// in gprs/sgsn.
package sgsnrole

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
)

var (
	_ role.Instance = (*SGSN)(nil)
	_ role.Tracer   = (*SGSN)(nil)
)

// SGSN is one instance.
type SGSN struct {
	cfg    Settings
	log    *slog.Logger
	ready  chan struct{}
	engine *sgsn.Engine
	loop   loop.Loop[*sgsn.Output]
	udp    []*port.UDP
	saved  *kept.Saved // the restart counter; nil: it is not one of a file

	here  port.Namespace  // of Run
	ctx   context.Context // of what Run starts: it outlives that of Run, for the end has something to say
	ends  <-chan struct{} // closed when the instance is to end
	group *errgroup.Group
	news  chan struct{} // holds one: there are events

	addresses host.Addresses
	told      map[gtp.TID]string // what the log has of contexts; of follow

	mu        sync.Mutex // guards what follows, and udp while it grows
	events    []sgsn.Event
	terminals []*terminal // by their links; nil: the place is free
	closed    bool        // there are to be none any more
	awaited   map[gtp.TID][]*waiter
	report    *sgsn.LoadReport // of the last load
	loading   bool
}

// outcome is what became of an order.
type outcome struct {
	event sgsn.Event
	info  sgsn.Info
}

// New makes the SGSN that cfg describes, without touching the host.
func New(cfg Settings, log *slog.Logger) (*SGSN, error) {
	engine, err := sgsn.New(cfg.engine(time.Now()), rand.Reader)
	if err != nil {
		return nil, err
	}
	s := &SGSN{
		cfg: cfg, log: log, ready: make(chan struct{}), engine: engine,
		news: make(chan struct{}, 1), awaited: map[gtp.TID][]*waiter{}, told: map[gtp.TID]string{},
	}
	s.addresses.Without = "GGSNs do not reach it"
	s.loop.Engine = engine
	s.loop.NewOutput = func() *sgsn.Output { return new(sgsn.Output) }
	s.loop.EachDropped = engine.EachDropped
	s.loop.Settled = s.settled
	return s, nil
}

// Name implements [role.Instance].
func (s *SGSN) Name() string { return s.cfg.Name }

// Role implements [role.Instance].
func (s *SGSN) Role() string { return name }

// Ready implements [role.Instance]. The context of the start is open then.
func (s *SGSN) Ready() <-chan struct{} { return s.ready }

// Trace implements [role.Tracer].
func (s *SGSN) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	return s.loop.Trace(ctx, s.cfg.Name, sampling, emit)
}

// Run implements [role.Instance]. At the end contexts are closed, and all that was set up for
// terminals goes.
func (s *SGSN) Run(ctx context.Context) (err error) {
	if s.here, err = port.CurrentNamespace(); err != nil {
		return err
	}
	defer s.here.Close()
	if err := s.count(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.uncount()) }()
	if err := s.listen(); err != nil {
		return err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s.group, s.ctx = errgroup.WithContext(working)
	s.ends = ctx.Done()
	for i, u := range s.udp {
		s.group.Go(func() error {
			return s.loop.ReadUDP(u, func(m *port.Message, now time.Time, out *sgsn.Output) {
				s.engine.Handle(i, m.From, m.Class, m.Payload, now, out)
			})
		})
	}
	s.group.Go(func() error { s.loop.RunTimer(s.ctx); return nil })
	if err := s.addresses.Watch(s.ctx, s.group, s.cfg.Local, s.log); err != nil {
		stop()
		s.closePorts()
		return errors.Join(err, s.group.Wait())
	}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		s.follow()
	}()
	err = s.start()
	if ctx.Err() != nil {
		err = nil // whoever does not wait for the answer needs none
	}
	if err == nil {
		close(s.ready)
		select {
		case <-ctx.Done():
		case <-s.ctx.Done(): // a reader has failed
		}
	}
	s.detachAll()
	stop()
	s.closePorts()
	<-followed
	left := s.closeTerminals()
	return errors.Join(err, s.group.Wait(), left)
}

// listen opens the sockets of all addresses.
func (s *SGSN) listen() error {
	for i, a := range s.cfg.Local {
		for p := range sgsn.NumPlanes {
			u, err := port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(a, p.Port()), Class: true})
			if err != nil {
				s.closePorts()
				return err
			}
			s.mu.Lock()
			s.udp = append(s.udp, u)
			s.mu.Unlock()
			s.loop.SetSocket(sgsn.Socket(i, p), u)
		}
	}
	return nil
}

// closePorts makes all readers return.
func (s *SGSN) closePorts() {
	for _, u := range s.udp {
		_ = u.Close()
	}
}

// start opens the context of the configuration.
func (s *SGSN) start() error {
	w, ok, err := s.cfg.first()
	if !ok || err != nil {
		return err
	}
	if _, err := s.attach(w, allowed{s.answerTime(), sgsn.RouterTime + time.Second}); err != nil {
		return fmt.Errorf("the terminal %s cannot be attached: %w", w.IMSI, err)
	}
	return nil
}

// answerTime is how long a GGSN may take for an answer, by each version that it is asked by.
func (s *SGSN) answerTime() time.Duration {
	each := time.Duration(s.cfg.N3Requests) * s.cfg.T3Response
	if s.cfg.Fallback {
		each *= 2
	}
	return each + time.Second
}

// maxLeave bounds how long the end waits for GGSNs.
const maxLeave = 5 * time.Second

// detachAll closes all contexts, and waits for the answers.
func (s *SGSN) detachAll() {
	end := time.Now().Add(min(s.answerTime(), maxLeave))
	s.loop.Do(s.engine.Retire)
	for time.Now().Before(end) && s.ctx.Err() == nil && s.contexts() > 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if n := s.contexts(); n > 0 {
		s.log.Warn("contexts stay open at their GGSNs, which have not answered", "contexts", n)
	}
}

// contexts is how many there are.
func (s *SGSN) contexts() (n int) {
	s.loop.Do(func(time.Time, *sgsn.Output) { n = s.engine.Contexts() })
	return n
}
