// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/ggsn/ggsnbpf"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
)

var _ driver.Forwarder = (*ggsnbpf.Path)(nil)

// linger is how long the programs go on without a sign of the daemon. They end with
// it; this is for one that stands still, when no one follows routes for them.
const linger = 10 * time.Second

// maxShared is for how many contexts the programs have room at most: 224 octets each are taken at the start.
const maxShared = 1 << 20

// What the programs may leave to the engine, for each reason that has such a bound: about a quarter of what
// one core of it does; and of that, what one context, IPv6 /64 or IPv4 address may have.
const (
	puntRate  = 120_000
	puntShare = 12_000
)

// fast is the fast path of one node: programs in the kernel that carry the packets of contexts which the
// engine describes for them.
type fast struct {
	*driver.Driver
	name    string
	room    int // contexts
	address netip.Addr
	device  string // of the network whose packets they carry; empty: there is none
	missing string // why they could carry nothing; empty: they can

	table *ggsnbpf.Path // nil: the engine is alone
	set   bool          // the programs have their settings
	// merge says whether the kernel may merge G-PDUs for the node's sockets, which it does before tc sees them.
	merge func(on bool)
	// takes reports whether this host has an address.
	takes func(netip.Addr) bool
}

// newFast makes the fast path of a node, without touching the host; engine are the packets that
// its engine has carried.
func newFast(cfg *Settings, engine func() (up, down ggsn.Traffic), log *slog.Logger) *fast {
	f := &fast{
		name: cfg.Name, room: min(cfg.MaxContexts, maxShared), address: cfg.GSNAddress4, device: cfg.sharedDevice(), missing: cfg.uncarried(),
		merge: func(bool) {}, takes: func(netip.Addr) bool { return true },
	}
	f.Driver = driver.New(driver.Role{
		Name: cfg.Name, Ephemeral: "there is nothing to keep", Load: f.load, Apply: f.apply, AttachBlocked: f.attachBlocked,
		Carried: func(path string) { f.merge(path != "tc") },
		Measure: func() map[string]uint64 {
			up, down := engine()
			return measured(f.Counters(), up.Packets, down.Packets)
		},
	}, driverConfig(cfg), log)
	return f
}

// driverConfig is what the driver has to know of a configuration.
func driverConfig(cfg *Settings) driver.Config {
	c := driver.Config{Mode: cfg.FastPath, Devices: cfg.FastPathDevices, Linger: linger, Forward4: true, Local4: true}
	for _, p := range cfg.allPools() {
		if p.device == cfg.sharedDevice() {
			c.Prefixes = append(c.Prefixes, p.prefix)
		}
	}
	return c
}

// sharedDevice is the device of the network whose packets programs carry, for they ask for routes as from one
// device: the section's own, or else the first one outside of VRFs. Empty: there is none.
func (s *Settings) sharedDevice() string {
	devices := s.interfaces()
	for i, vrf := range s.vrfs(devices) {
		if vrf == "" {
			return devices[i]
		}
	}
	return ""
}

// uncarried says why programs could carry nothing by a configuration; empty: they can.
func (s *Settings) uncarried() string {
	switch {
	case !s.GSNAddress4.IsValid():
		return "GTP by IPv6 is carried by the engine, and the node has no gsn_address4"
	case s.sharedDevice() == "":
		return "all access points are in VRFs, whose packets the engine carries"
	}
	return ""
}

func (f *fast) load(*pinned.Folder, probe.Features) (driver.Table, error) {
	if f.missing != "" {
		return nil, errors.New(f.missing)
	}
	table, err := ggsnbpf.Load(ggsnbpf.Config{Name: f.name, Contexts: f.room})
	if err != nil {
		return nil, err
	}
	f.table = table
	return table, nil
}

// apply tells the programs their settings, which stay as they are.
func (f *fast) apply() error {
	if f.set {
		return nil // they leave all packets to the engine while settings change
	}
	err := f.table.Set(ggsnbpf.Settings{Address: f.address, Tunnel: f.Tunnel(), PuntRate: puntRate, PuntShare: puntShare})
	f.set = err == nil
	return err
}

// attachBlocked reports that the host has lost the address of the node: what comes for one that
// has moved to another host is not the node's any more.
func (f *fast) attachBlocked() string {
	if !f.takes(f.address) {
		return fmt.Sprintf("%s, where SGSNs reach the node, is not an address of this host", f.address)
	}
	return ""
}

// carried are the packets of terminals that programs have carried, and those for them.
func (f *fast) carried() (up, down ggsn.Traffic) {
	for _, c := range f.Counters() {
		switch c.Reason {
		case ggsnbpf.UpForwarded.String():
			up = ggsn.Traffic{Packets: c.Packets, Octets: c.Bytes}
		case ggsnbpf.DownForwarded.String():
			down = ggsn.Traffic{Packets: c.Packets, Octets: c.Bytes}
		}
	}
	return up, down
}

// measured sorts what has passed, the engine's part too, by what rates are shown of.
func measured(counts []fastpath.Counter, up, down uint64) map[string]uint64 {
	total := map[string]uint64{"fast_up": 0, "fast_down": 0, "punted": 0, "dropped": 0, "engine_up": up, "engine_down": down}
	for _, c := range counts {
		switch {
		case c.Reason == ggsnbpf.UpForwarded.String():
			total["fast_up"] += c.Packets
		case c.Reason == ggsnbpf.DownForwarded.String():
			total["fast_down"] += c.Packets
		case c.Verdict == fastpath.Punt:
			total["punted"] += c.Packets
		case c.Verdict == fastpath.Drop:
			total["dropped"] += c.Packets
		}
	}
	return total
}

// plan finds out what the fast path of a node would be, and changes nothing.
func plan(cfg *Settings, taken *role.Seats) driver.Forecast {
	p := driver.Plan(name, cfg.Name, cfg.sharedDevice(), driverConfig(cfg), taken)
	if why := cfg.uncarried(); why != "" && cfg.FastPath != fastpath.ModeOff {
		p.Notes, p.Warnings = nil, nil
		p.Block(why)
	}
	return p
}
