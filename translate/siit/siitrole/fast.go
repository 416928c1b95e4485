// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitrole

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/keys"
	"github.com/isthmus-net/isthmus/translate/siit"
	"github.com/isthmus-net/isthmus/translate/siit/siitbpf"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

var _ driver.Forwarder = (*siitbpf.Path)(nil)

// linger is how long the programs go on without a sign of the daemon. They end with
// it; this is for one that stands still, when no one follows routes for them.
const linger = 10 * time.Second

// fast is the fast path of one stateless translator: programs in the kernel that carry
// plain packets by the same settings as the engine.
type fast struct {
	*driver.Driver
	name   string
	room   int           // mappings at the start
	host   *port.Host    // from open to close of the translator
	table  *siitbpf.Path // nil: the engine is alone
	engine func() siit.Stats

	change  sync.Mutex       // held while engine and programs change, before mu
	applied siitbpf.Settings // what the programs know; guarded by change

	mu        sync.Mutex // guards what follows
	refused   error      // why the programs cannot take the settings; change is held to write it
	routing   *routing
	moved     bool          // what leads packets elsewhere is to be looked for again
	diversion string        // what does, in words
	took      time.Duration // to look
	// gathering reports that routes have changed, and others may do so in a moment.
	gathering bool
}

// newFast makes the fast path of a stateless translator, without touching the host.
func newFast(cfg *Settings, engine func() siit.Stats, log *slog.Logger) *fast {
	f := &fast{name: cfg.Name, engine: engine, routing: newRouting(&Settings{}, nil)}
	f.Driver = driver.New(driver.Role{
		Name: cfg.Name, Ephemeral: "there is nothing to keep", Load: f.load, AttachBlocked: f.attachBlocked,
		Measure: f.measure,
	}, driverConfig(cfg), log)
	return f
}

// driverConfig is what the driver has to know of a configuration. Routes are looked
// for here: see [routing].
func driverConfig(cfg *Settings) driver.Config {
	return driver.Config{
		Mode: cfg.FastPath, Devices: cfg.FastPathDevices, Linger: linger, Forward4: true,
	}
}

func (f *fast) load(*pinned.Folder, probe.Features) (driver.Table, error) {
	table, err := siitbpf.Load(siitbpf.Config{Name: f.name, Mappings: f.room})
	if err != nil {
		return nil, err
	}
	f.table = table
	return table, nil
}

// set changes engine and programs together: from before swap, which changes the engine,
// until the programs know the same, they leave all packets to it. Where they cannot know
// it, they do so until they can. It locks.
func (f *fast) set(cfg *Settings, mappings []translate.Mapping, swap func() error) error {
	f.change.Lock()
	defer f.change.Unlock()
	if !f.Loaded() {
		return swap()
	}
	if next := programs(cfg, mappings, f.Tunnel()); f.refused != nil || !sameSettings(&f.applied, &next) {
		f.table.Pause()
		if err := swap(); err != nil {
			if f.refused == nil {
				err = errors.Join(err, f.table.Set(f.applied))
			}
			return err
		}
		f.tell(next)
	} else if err := swap(); err != nil {
		return err
	}
	f.mu.Lock()
	f.routing, f.moved = newRouting(cfg, mappings), true
	f.mu.Unlock()
	f.Configure(driverConfig(cfg))
	return nil
}

// tell tells the programs their settings; change is held.
func (f *fast) tell(next siitbpf.Settings) {
	err := f.table.Set(next)
	if err == nil {
		f.applied = next
	}
	f.mu.Lock()
	f.refused = err
	f.mu.Unlock()
}

// close ends the fast path, but not under a change.
func (f *fast) close() error {
	f.change.Lock()
	defer f.change.Unlock()
	return f.Close()
}

// sameSettings compares, mappings without what makes it slow.
func sameSettings(a, b *siitbpf.Settings) bool {
	if !slices.Equal(a.Mappings, b.Mappings) {
		return false
	}
	first, second := *a, *b
	first.Mappings, second.Mappings = nil, nil
	return reflect.DeepEqual(first, second)
}

// programs is what the programs must know: what the engine knows, in their form.
func programs(cfg *Settings, mappings []translate.Mapping, tunnel int) siitbpf.Settings {
	p := siitbpf.Settings{
		Pool4: slices.Clone(cfg.Pool4), Mappings: mappings, SimpleHairpin: cfg.Hairpin == HairpinSimple,
		MTU4: cfg.IPv4MTU, MTU6: cfg.IPv6MTU, LowestMTU: cfg.LowestIPv6MTU,
		ZeroClass: cfg.TrafficClass != keys.Copied, FixedTOS: cfg.TOS != keys.Copied,
		Unsummed: cfg.UDPZeroChecksum != keys.ZeroChecksumDrop,
		Tunnel:   tunnel, PuntRate: gateway.PuntRate, PuntShare: gateway.PuntShare,
	}
	if p.FixedTOS {
		p.TOS = uint8(cfg.TOS)
	}
	for _, prefix := range cfg.Pool6 {
		p.Pool6 = append(p.Pool6, translatebpf.Prefix{
			Prefix: prefix, Strict: prefix == translate.WellKnownPrefix && !cfg.AllowNonGlobal,
		})
	}
	return p
}

// Routes that change together, thousands perhaps, are looked at together, and mostly for no
// more than a part of the time.
const (
	gatherRoutes = 20 * time.Millisecond
	restPerLook  = 4
	longestRest  = time.Second
)

// routesChanged reports routes, addresses or links that changed. It locks.
func (f *fast) routesChanged(c port.Change) {
	if c.Kind == port.LinkChanged || c.Kind == port.Overrun {
		f.LinksChanged()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gathering || !f.routing.concerns(c) {
		return
	}
	f.gathering = true
	time.AfterFunc(max(gatherRoutes, min(restPerLook*f.took, longestRest)), func() {
		f.mu.Lock()
		f.gathering, f.moved = false, true
		f.mu.Unlock()
		f.Wake()
	})
}

// attachBlocked says why the programs must not be attached now.
func (f *fast) attachBlocked() string {
	f.mu.Lock()
	refused, moved, routing, way := f.refused, f.moved, f.routing, f.diversion
	f.moved = false
	f.mu.Unlock()
	if refused != nil {
		return "its programs cannot take the settings: " + refused.Error()
	}
	if moved {
		began := time.Now()
		way = routing.diversion(f.host, f.Tunnel())
		f.mu.Lock()
		f.diversion, f.took = way, time.Since(began)
		f.mu.Unlock()
	}
	return way
}

// measure is what has passed so far.
func (f *fast) measure() map[string]uint64 {
	engine := f.engine()
	return gateway.Measured(f.Counters(), engine.ToIPv4, engine.ToIPv6)
}

// plan finds out what the fast path of a stateless translator would be, and changes
// nothing.
func plan(cfg Settings, taken *role.Seats) driver.Forecast {
	plan := driver.Plan(name, cfg.Name, cfg.Interface, driverConfig(&cfg), taken)
	file, err := mappingsOf(&cfg)
	if err != nil || cfg.FastPath == fastpath.ModeOff {
		return plan // told elsewhere
	}
	s := &SIIT{cfg: cfg}
	if why := newRouting(&cfg, s.mappings(&cfg, file)).wouldDivert(); why != "" {
		plan.Block(why)
	}
	return plan
}
