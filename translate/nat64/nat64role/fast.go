// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/fastpath/probe"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/nat64bpf"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

var _ driver.Forwarder = (*nat64bpf.Path)(nil)

// fast is the fast path of one NAT64: programs in the kernel that carry the packets of
// sessions and make new ones, in the state that they share with the engine.
type fast struct {
	*driver.Driver
	table   *nat64bpf.Path // nil: the engine is alone
	pins    *pinned.Folder // nil: nothing outlives the process
	engine  func() nat64.Stats
	applied nat64bpf.Settings // what the programs know

	mu       sync.Mutex // guards what follows
	cfg      Settings
	settings nat64bpf.Settings // what they are to know
	steers   bool              // the pool has an address of this host
	leaving  leaving           // what serves old sessions alone
}

// newFast makes the fast path of a NAT64, without touching the host.
func newFast(cfg *Settings, log *slog.Logger) *fast {
	f := &fast{cfg: *cfg}
	f.Driver = driver.New(driver.Role{
		Name: cfg.Name, Keeps: "sessions", Ephemeral: ephemeral(cfg), Load: f.load, Apply: f.apply, Steer: f.steering,
		Measure: f.measure,
	}, driverConfig(cfg), log)
	return f
}

// driverConfig is what the driver has to know of a configuration.
func driverConfig(cfg *Settings) driver.Config {
	return driver.Config{
		Mode: cfg.FastPath, Devices: cfg.FastPathDevices, Linger: cfg.FastPathLinger,
		Forward4: true, Prefixes: cfg.routes(),
	}
}

// ephemeral says why nothing outlives the process, if nothing does.
func ephemeral(cfg *Settings) string {
	if cfg.KeepState {
		return ""
	}
	return "the configuration does not want it"
}

// load loads programs and tables, or takes over those that are pinned.
func (f *fast) load(pins *pinned.Folder, _ probe.Features) (driver.Table, error) {
	table, err := nat64bpf.Load(nat64bpf.Config{Name: f.cfg.Name, Sizes: sizesOf(&f.cfg), Pins: pins})
	if err != nil {
		return nil, err
	}
	if table.Adopted() {
		table.Sleep() // programs of a predecessor must not write into what is taken over
	}
	table.Waiting().Clear() // SYNs of a predecessor: no one waits for them
	f.table, f.pins = table, pins
	return table, nil
}

// numbering is the note in the pins of pool6 as sessions number it.
const numbering = "pool6"

// memory is that of the programs' tables, for the engine.
func (f *fast) memory() *memory {
	m := &memory{slabs: f.table.Memory(), used: f.table.Adopted(), free: func() error { return nil }}
	if f.pins == nil { // the state may come from a file, and go there at the end
		var text string
		m.note = func() string { return text }
		m.setNote = func(s string) error { text = s; return nil }
	} else {
		m.note = func() string { return f.pins.Note(numbering) }
		m.setNote = func(s string) error { return f.pins.SetNote(numbering, s) }
	}
	return m
}

// apply tells the programs what has changed of configuration and host.
func (f *fast) apply() error {
	f.mu.Lock()
	s := f.settings
	f.mu.Unlock()
	if reflect.DeepEqual(s, f.applied) {
		return nil // programs pass packets by while settings change
	}
	if err := f.table.Set(s); err != nil {
		return err
	}
	f.applied = s
	return nil
}

// configure takes a new configuration with the engine's settings and pool6 by the numbers
// that sessions have. It locks.
func (f *fast) configure(cfg *Settings, s *nat64.Settings, e *nat64.Engine) {
	if f.table == nil {
		return
	}
	f.mu.Lock()
	l := f.leaving
	f.mu.Unlock()
	next := f.programs(cfg, s, e, l)
	f.mu.Lock()
	f.cfg, f.settings = *cfg, next
	f.steers = len(l.own) > 0 || slices.ContainsFunc(s.Pool4, func(r nat64.Range) bool { return r.Own })
	f.mu.Unlock()
	f.Configure(driverConfig(cfg))
}

// programs is what the programs must know: what the engine knows, in their form.
func (f *fast) programs(cfg *Settings, s *nat64.Settings, e *nat64.Engine, l leaving) nat64bpf.Settings {
	p := nat64bpf.Settings{
		ExternalTCP: !s.DropExternalTCP, NoICMPInfo: s.DropICMPInfo, OutboundOnly: s.OutboundRefreshOnly,
		ZeroClass: s.Translate.ZeroTrafficClass, FixedTOS: s.Translate.FixedTOS, TOS: s.Translate.TOS,
		MTU4: cfg.IPv4MTU, MTU6: cfg.IPv6MTU, LowestMTU: s.Translate.LowestIPv6MTU, Detour: s.DetourPrefix.IsValid(), InnerSource: s.RouterAsInner,
		RouterPool4: len(s.Translate.Pool4) > 0, RouterPool6: len(s.Translate.Pool6) > 0,
		Unsummed: s.Translate.UDPZeroChecksum != translate.ZeroChecksumDrop,
		// Who asks for tc knows what is behind his veths.
		Unfinished: cfg.FastPath == fastpath.ModeTC,
		Tunnel:     f.Tunnel(), PuntRate: gateway.PuntRate, PuntShare: gateway.PuntShare,
	}
	p.AddressDependent[state.TCP] = s.FilterTCP == nat64.AddressDependent
	p.AddressDependent[state.UDP] = s.FilterUDP == nat64.AddressDependent
	p.AddressDependent[state.ICMP] = s.FilterICMP == nat64.AddressDependent
	for transport, states := range s.Lifetimes() {
		for status, units := range states {
			p.Lifetimes[transport][status] = time.Duration(units) * state.StampUnit
		}
	}
	prefixes, current := e.Prefixes()
	for i := range prefixes {
		prefix := prefixes[i].Prefix()
		leaves := !current[i] && slices.Contains(l.routes, prefix)
		p.Pool6 = append(p.Pool6, translatebpf.Prefix{
			Prefix: prefix, Leaving: leaves, Out: !current[i] && !leaves,
			Strict: prefix == translate.WellKnownPrefix && !s.Translate.NonGlobal,
		})
	}
	for _, r := range slices.Concat(s.Pool4, l.own) {
		p.Pool4 = append(p.Pool4, poolOf(r))
	}
	for _, r := range l.routes {
		own := func(named nat64bpf.Range) bool { return named.Own && named.Prefix == r }
		if r.Addr().Is4() && !slices.ContainsFunc(p.Pool4, own) { // of an address of this host some ports alone
			p.Pool4 = append(p.Pool4, poolOf(nat64.Range{Prefix: r}))
		}
	}
	return p
}

// leave says what serves old sessions alone, from the next configuration on. It locks.
func (f *fast) leave(l leaving) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaving = l
}

// leavingOwn returns the ports of this host's addresses that leave was told last. It locks.
func (f *fast) leavingOwn() []nat64.Range {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.leaving.own)
}

// poolOf turns a range into the programs' form.
func poolOf(r nat64.Range) nat64bpf.Range {
	to := nat64bpf.Range{Prefix: r.Prefix, Own: r.Own}
	for transport := range to.Ports {
		to.Ports[transport] = nat64bpf.PortRange{First: 1, Last: 0} // none
		if r.Transports == 0 || r.Transports&(1<<transport) != 0 {
			to.Ports[transport] = nat64bpf.PortRange{First: r.First, Last: r.Last}
		}
	}
	return to
}

// joinedOf are ranges as the programs hold them.
func joinedOf(ranges []nat64.Range) []nat64bpf.Range {
	var pool []nat64bpf.Range
	for _, r := range ranges {
		pool = append(pool, poolOf(r))
	}
	return nat64bpf.Join(pool)
}

// ownFit refuses more ranges of ports at addresses of this host than the programs hold: answers
// to the others would be the host's.
func ownFit(cfg *Settings, hosts []netip.Addr) error {
	if n := len(joinedOf(ownRanges(cfg.Pool4, hosts))); n > translatebpf.MaxPool4 {
		return fmt.Errorf("pool4 has %d ranges of ports at addresses of this host itself, and the program that leads their packets to the translator holds %d: name fewer and larger ranges, or addresses that are routed to this host", n, translatebpf.MaxPool4)
	}
	return nil
}

// adviseFit reports that the programs do not know all of the pool.
func adviseFit(cfg *Settings, hosts []netip.Addr) []string {
	joined := joinedOf(poolRanges(cfg.Pool4, hosts))
	if cfg.FastPath == fastpath.ModeOff || len(joined) <= translatebpf.MaxPool4 {
		return nil
	}
	var rest []netip.Prefix
	for _, r := range joined[translatebpf.MaxPool4:] {
		rest = append(rest, r.Prefix)
	}
	return []string{fmt.Sprintf("the fast path knows %d parts of pool4, those of this host first: without it come packets to %s, and slower. Name fewer and larger prefixes", translatebpf.MaxPool4, role.Join(rest))}
}

// steering is what leads packets for addresses of this host to the engine, if the pool has
// any.
func (f *fast) steering() *driver.Steering {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.steers {
		return nil
	}
	return &driver.Steering{Programs: fastpath.Programs{Ingress: f.table.Steer()}}
}

// waiting tells the programs of SYNs that the engine has stored.
type waiting struct{ table *nat64bpf.Waiting }

func (w waiting) Wait(peer netip.AddrPort) { w.table.Add(peer.Addr().As4(), peer.Port()) }
func (w waiting) Done(peer netip.AddrPort) { w.table.Remove(peer.Addr().As4(), peer.Port()) }

// measure is what has passed so far.
func (f *fast) measure() map[string]uint64 {
	engine := f.engine()
	return gateway.Measured(f.Counters(), engine.Translated6to4, engine.Translated4to6)
}

// plan finds out what the fast path of a NAT64 would be, and changes nothing.
func plan(cfg Settings, taken *role.Seats) driver.Forecast {
	return driver.Plan(name, cfg.Name, cfg.Interface, driverConfig(&cfg), taken)
}
