// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo/peer"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

var _ driver.Forwarder = (*teredobpf.Relay)(nil)

// fast is the fast path of one relay: programs in the kernel that carry the packets
// of established peers, and the tables that they share with the engine.
type fast struct {
	*driver.Driver
	table    *teredobpf.Relay // nil: the engine is alone
	pins     *pinned.Folder   // nil: nothing outlives the process
	peerSeed peer.Seed
	applied  teredobpf.Settings // what the programs know
	// merge says whether the kernel may merge datagrams for the relay's sockets,
	// which it does before tc sees them.
	merge func(on bool)
	// takes reports whether this host has an address.
	takes func(*Settings) bool
	// engine is what the engine has sent to clients, and to IPv6.
	engine func() [2]uint64

	mu    sync.Mutex // guards what follows
	cfg   Settings
	local local
}

// newFast makes the fast path of a relay, without touching the host.
func newFast(cfg *Settings, log *slog.Logger) *fast {
	f := &fast{cfg: *cfg, merge: func(bool) {}, takes: func(*Settings) bool { return true }}
	f.Driver = driver.New(driver.Role{
		Name: cfg.Name, Keeps: "peers", Ephemeral: ephemeral(cfg), Load: f.load, Apply: f.apply, AttachBlocked: f.attachBlocked,
		Carried: func(path string) { f.merge(path != "tc") },
		Measure: func() map[string]uint64 { return measured(f.Counters(), f.engine()) },
	}, driverConfig(cfg), log)
	return f
}

// ephemeral says why nothing outlives the process, if nothing does.
func ephemeral(cfg *Settings) string {
	if cfg.KeepState {
		return ""
	}
	return "the configuration does not want it"
}

// driverConfig is what the driver has to know of a configuration.
func driverConfig(cfg *Settings) driver.Config {
	return driver.Config{
		Mode: cfg.FastPath, Devices: cfg.FastPathDevices, Linger: cfg.FastPathLinger,
		Host: cfg.Mode == ModeHost, Prefixes: cfg.Prefixes,
	}
}

// open loads the fast path that the configuration asks for, or tables that a process before this
// one has left: peers go on there though no program carries their packets.
func (f *fast) open() {
	f.Open(f.cfg.KeepState && f.Left())
	if f.table == nil {
		return
	}
	if f.adopted() {
		f.peerSeed = f.table.Settings().Seed
		return
	}
	var err error
	if f.peerSeed, err = peer.NewSeed(rand.Reader); err != nil {
		f.Abandon(err)
		f.table = nil
	}
}

// load loads programs and tables, or takes over those that are pinned.
func (f *fast) load(pins *pinned.Folder, _ probe.Features) (driver.Table, error) {
	table, err := teredobpf.LoadRelay(teredobpf.RelayConfig{
		Name: f.cfg.Name, Buckets: peer.HotBytes(f.cfg.MaxPeers) / peer.BucketBytes,
		Foreign: peer.ForeignLimit(f.cfg.MaxPeers), Shape: shapeOf(&f.cfg), Pins: pins,
	})
	if err != nil {
		return nil, err
	}
	f.table, f.pins = table, pins
	return table, nil
}

// adopted reports whether the tables hold peers of an earlier process. One that was killed
// before the programs knew the seed has left none that can be found.
func (f *fast) adopted() bool { return f.table.Adopted() && f.table.Settings().Seed != peer.Seed{} }

// place is the note in the pins of where the relay is.
const place = "endpoint"

func (f *fast) endpoint() string {
	if f.pins == nil {
		return ""
	}
	return f.pins.Note(place)
}

func (f *fast) setEndpoint(text string) error {
	if f.pins == nil {
		return nil
	}
	return f.pins.SetNote(place, text)
}

func (f *fast) silence() time.Duration { return f.table.Silence() }

// copyFrom takes the peers of a process that had no fast path.
func (f *fast) copyFrom(file *peersFile) {
	f.peerSeed = file.head.Seed
	copy(f.table.Peers(), file.hot)
	to := f.table.Foreign()
	file.foreign.Walk(func(key [16]byte, mapped netip.AddrPort) { to.Put(key, mapped) })
}

// configure takes a new configuration, and new addresses of the host. It locks.
func (f *fast) configure(cfg *Settings, at *local) {
	f.mu.Lock()
	f.cfg, f.local = *cfg, *at
	f.mu.Unlock()
	f.Configure(driverConfig(cfg))
}

// attachBlocked reports that the host does not have the address that the relay is bound to: one
// that moves to another host is no longer sent from here.
func (f *fast) attachBlocked() string {
	f.mu.Lock()
	cfg := f.cfg
	f.mu.Unlock()
	if a := cfg.Bind.Addr(); !a.IsUnspecified() && !f.takes(&cfg) {
		return fmt.Sprintf("%s, to which the relay is bound, is not an address of this host", a)
	}
	return ""
}

// measured sorts what has passed by what rates are shown of.
func measured(counts []fastpath.Counter, engine [2]uint64) map[string]uint64 {
	total := map[string]uint64{
		"fast_to_clients": 0, "fast_to_ipv6": 0, "punted": 0, "dropped": 0,
		"engine_to_clients": engine[0], "engine_to_ipv6": engine[1],
	}
	for _, c := range counts {
		switch {
		case c.Reason == teredobpf.EncapForwarded.String(), c.Reason == teredobpf.HostEncapForwarded.String():
			total["fast_to_clients"] += c.Packets
		case c.Reason == teredobpf.DecapForwarded.String(), c.Reason == teredobpf.HostDecapForwarded.String():
			total["fast_to_ipv6"] += c.Packets
		case c.Verdict == fastpath.Punt:
			total["punted"] += c.Packets
		case c.Verdict == fastpath.Drop:
			total["dropped"] += c.Packets
		}
	}
	return total
}

// planFastPath finds out what the fast path of a relay would be, and changes nothing.
func planFastPath(cfg Settings, taken *role.Seats) driver.Forecast {
	return driver.Plan(name, cfg.Name, cfg.Interface, driverConfig(&cfg), taken)
}
