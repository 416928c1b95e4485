// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/keys"
	"github.com/isthmus-net/isthmus/translate/siit"
)

var (
	_ role.Changer[Settings] = (*SIIT)(nil)
	_ role.Tracer            = (*SIIT)(nil)
)

// SIIT is one stateless translator: a TUN device with routes to what it translates.
type SIIT struct {
	name    string
	log     *slog.Logger
	engine  *siit.Engine
	loop    loop.Loop[*packet.Batch]
	ready   chan struct{}
	device  *gateway.Device
	fast    *fast
	reports gateway.Reports

	mu    sync.Mutex // guards what follows, and the order of changes
	cfg   Settings
	file  []translate.Mapping // of the mapping file
	added []translate.Mapping // at run time
	gone  []translate.Mapping // removed at run time
	own   gateway.Own
	// announced is what routers are told of all these; nil: that has to be found.
	announced []netip.Prefix
}

// New makes the translator that cfg describes, without touching the host.
func New(cfg Settings, log *slog.Logger) (*SIIT, error) {
	s := &SIIT{name: cfg.Name, log: log, ready: make(chan struct{}), device: gateway.NewDevice(log), reports: gateway.NewReports(), cfg: cfg}
	s.fast = newFast(&cfg, s.stats, log)
	var err error
	if s.file, err = mappingsOf(&cfg); err != nil {
		return nil, err
	}
	settings, err := s.settings(&cfg, s.mappings(&cfg, s.file))
	if err != nil {
		return nil, err
	}
	if s.engine, err = siit.New(settings, rand.Reader); err != nil {
		return nil, err
	}
	s.loop.Engine = s.engine
	s.loop.NewOutput = func() *packet.Batch { return new(packet.Batch) }
	s.loop.EachDropped = s.eachDropped
	s.loop.Settled = s.settled
	return s, nil
}

// mappingsOf reads the mapping file, if there is one.
func mappingsOf(cfg *Settings) ([]translate.Mapping, error) {
	if cfg.EAMFile == "" {
		return nil, nil
	}
	return readMappings(cfg.EAMFile)
}

// mappings are those of a configuration, of its file, and of the run time.
func (s *SIIT) mappings(cfg *Settings, file []translate.Mapping) []translate.Mapping {
	list := slices.Concat(cfg.EAM, file)
	list = slices.DeleteFunc(list, func(m translate.Mapping) bool { return slices.Contains(s.gone, m) })
	for _, m := range s.added {
		if !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

// settings turns a configuration into the engine's.
func (s *SIIT) settings(cfg *Settings, mappings []translate.Mapping) (siit.Settings, error) {
	t, err := gateway.Settings(&cfg.Translation, s.own)
	if err != nil {
		return siit.Settings{}, err
	}
	if t.Mappings, err = translate.NewTable(mappings, cfg.EAMOverlap); err != nil {
		return siit.Settings{}, err
	}
	switch cfg.Hairpin {
	case HairpinSimple:
		t.Hairpin = translate.HairpinSimple
	case HairpinOff:
		t.Hairpin = translate.HairpinOff
	}
	settings := siit.Settings{Translate: t, MTU4: cfg.IPv4MTU, MTU6: cfg.IPv6MTU, Link4: s.own.MTU4, Link6: s.own.MTU6, Pool4: cfg.Pool4, ErrorRate: cfg.ICMPRate}
	for _, class := range cfg.ICMPErrorsOff {
		settings.Silent[classes[class]] = true
	}
	return settings, nil
}

var classes = map[keys.ErrorClass]siit.Class{
	keys.ErrorUnreachable: siit.Unreachable, keys.ErrorTooBig: siit.TooBig,
	keys.ErrorHopLimit: siit.HopLimit, keys.ErrorParameter: siit.Parameter,
}

// destinations are the destinations that lead to the device.
func destinations(cfg *Settings, mappings []translate.Mapping) []netip.Prefix {
	list := slices.Concat(cfg.Pool6, cfg.Pool4)
	have := make(map[netip.Prefix]bool, len(mappings))
	for _, p := range list {
		have[p] = true
	}
	for _, m := range mappings {
		if !have[m.IPv4] {
			have[m.IPv4] = true
			list = append(list, m.IPv4)
		}
	}
	return list
}

// Name implements [role.Instance].
func (s *SIIT) Name() string { return s.name }

// Role implements [role.Instance].
func (s *SIIT) Role() string { return name }

// Ready implements [role.Instance].
func (s *SIIT) Ready() <-chan struct{} { return s.ready }

// Run implements [role.Instance]. It opens the device in the network namespace of the
// calling thread.
func (s *SIIT) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	s.fast.room = len(s.Mappings())
	s.fast.Open(false)
	if s.fast.Loaded() {
		s.engine.SetIDs(s.fast.table.IDs())
	}
	if err := s.open(); err != nil {
		return err
	}
	group, ctx, end := host.Group(ctx)
	defer end()
	if err := host.Follow(ctx, group, s.changed); err != nil {
		return err
	}
	// Addresses may have changed before the watch began.
	if err := s.look(); err != nil {
		return err
	}
	if err := s.device.Keep(ctx, group); err != nil {
		return err
	}
	for _, tun := range s.device.Queues() {
		group.Go(func() error {
			return s.loop.ReadTunQuick(tun, loop.Ports{IP: tun}, loop.Quick[[]byte, *packet.Batch]{}, s.handle)
		})
	}
	group.Go(func() error { s.reports.Log(ctx, s.log); return nil })
	defer context.AfterFunc(ctx, func() { s.device.End(false) })()
	s.fast.Start(ctx)
	s.announce()
	close(s.ready)
	s.fast.Run(ctx)
	return group.Wait()
}

// handle gives a packet to the engine.
func (s *SIIT) handle(ip []byte, now time.Time, out *packet.Batch) {
	if !s.device.Turn(ip, out) {
		s.engine.Handle(ip, now, out)
	}
}

// settled takes what is to be told of a batch.
func (s *SIIT) settled(*packet.Batch) { s.engine.EachReport(s.reports.Add) }

// open opens the device, then sets the routes, so that no packet comes before it can
// be handled.
func (s *SIIT) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.device.Open(&s.cfg.Translation, false, s.fast.DeviceReplaced); err != nil {
		return err
	}
	s.loop.IP = s.device.Queues()[0]
	s.fast.host = s.device.Host()
	if err := s.fast.Use(s.device.Host(), s.device.Queues()[0]); err != nil {
		return err
	}
	mappings := s.mappings(&s.cfg, s.file)
	commit, err := s.device.Lead(destinations(&s.cfg, mappings))
	if err != nil {
		return err
	}
	return errors.Join(commit(), s.fast.set(&s.cfg, mappings, func() error { return nil }))
}

// close takes the fast path, the routes and the device away.
func (s *SIIT) close() error {
	s.fast.Detach("")
	return errors.Join(s.device.Close(false), s.fast.close())
}

// changed follows one change of the host.
func (s *SIIT) changed(c port.Change) {
	s.fast.routesChanged(c)
	if c.Kind != port.AddressChanged && c.Kind != port.LinkChanged && c.Kind != port.Overrun {
		return
	}
	if c.Kind != port.LinkChanged {
		s.device.AddressesChanged()
	}
	if err := s.look(); err != nil {
		s.log.Warn("the host's addresses changed but cannot be used; the old ones stay in use", "error", err)
	}
}

// look reads the host's addresses and gives them to the engine.
func (s *SIIT) look() error {
	s.mu.Lock() // before it reads: the later of two readings is to stay
	defer s.mu.Unlock()
	if !s.device.Running() {
		return nil // closed meanwhile
	}
	at, err := s.device.LookOwn()
	if err != nil {
		return err
	}
	if at == s.own {
		return nil
	}
	before := s.own
	s.own = at
	mappings := s.mappings(&s.cfg, s.file)
	settings, err := s.settings(&s.cfg, mappings)
	if err == nil {
		err = s.reconfigure(settings, &s.cfg, mappings)
	}
	if err != nil {
		s.own = before
	}
	return err
}

// announce logs how the translator serves, once.
func (s *SIIT) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	mappings := s.mappings(&s.cfg, s.file)
	s.log.Info("serving", "interface", s.device.Name(), "pool6", s.cfg.Pool6, "pool4", s.cfg.Pool4, "mappings", len(mappings), "workers", len(s.device.Queues()))
	passage := s.passage()
	passage.Advise(s.log)
	if settings, err := s.settings(&s.cfg, mappings); err == nil {
		hosts, err := s.device.Addresses4()
		if err != nil {
			s.log.Warn("cannot determine whether addresses of this host are to be translated", "error", err)
		}
		for _, sentence := range append(settings.Translate.Advice(), translatedOwn(destinations(&s.cfg, mappings), hosts)...) {
			s.log.Warn(sentence)
		}
		gateway.WarnOwn(s.log, &settings.Translate)
	}
}

// Trace implements [role.Tracer].
func (s *SIIT) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	return s.fast.Trace(ctx, sampling, emit, func(ctx context.Context, emit func(*trace.Sample)) error {
		return s.loop.Trace(ctx, s.name, sampling, emit)
	})
}

func (s *SIIT) eachDropped(f func(reason string, n uint64)) {
	stats := s.engine.Stats()
	stats.EachDropped(f)
}
