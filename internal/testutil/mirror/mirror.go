// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package mirror is a toy of a role, for tests of what all roles share: hosts of a prefix
// that send every IPv6 packet back. It has what the small toy of package echo has not: a
// TUN device, a route, an announced prefix, a list of named tables, a question and an order.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

const name = "mirror"

// Role is the mirror as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name, Help: "Mirror: hosts that send every packet back.",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
	},
	Summary: func(s *Settings) string { return fmt.Sprintf("mirrors %s, %d hosts", s.Prefix, len(s.Hosts)) },
	New:     func(s Settings, _ *slog.Logger) (role.Instance, error) { return newInstance(s), nil },
	Clean: func([]*Settings) (role.Cleaned, error) {
		return role.Cleaned{Removed: []string{"what the mirrors left"}}, nil
	},
	Questions: []role.Question{
		role.Answer("host list", func(i *instance, _ struct{}) (Hosts, error) { return i.list(), nil }),
		role.Follow("host mute", (*instance).mute),
	},
	Command: role.Command{Help: "Look into a mirror.", Flags: func() any { return new(commands) }},
}.Role()

type commands struct {
	Host struct {
		List role.Ask[struct{}, Hosts]        `cmd:"" help:"List the hosts."`
		Mute role.Order[hostArguments, muted] `cmd:"" help:"Have a host answer no more."`
	} `cmd:"" help:"Hosts of the mirror."`
	Stats role.Stats `cmd:"" help:"Show counters."`
}

// Settings are one [[mirror]] section.
type Settings struct {
	Name, Interface string
	Prefix          netip.Prefix
	Announce        bool
	Hosts           []Host
	HopLimit        int
}

// Host is one that answers.
type Host struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
}

func (s *Settings) keys() []key.Key {
	return []key.Key{
		key.Of("name", &s.Name, name, key.InstanceName, key.Identity, "Unique over all instances."),
		key.Of("interface", &s.Interface, &s.Name, key.Interface, key.Restart, "Name of the TUN device."),
		key.Of("prefix", &s.Prefix, key.MustSet("2001:db8:5::/64"), key.Prefix6, key.Restart, "Where the hosts are."),
		key.Of("announce", &s.Announce, false, key.Bool, key.Restart, "Announce the prefix."),
		key.Tables("host", &s.Hosts, "host", `{ name = "a", address = "2001:db8:5::1" }`, (*Host).keys, key.Live, "Hosts that answer."),
		key.Of("hop_limit", &s.HopLimit, 64, key.Integer[int](1, 255), key.Live, "Hop limit of what comes back."),
	}
}

func (h *Host) keys() []key.Key {
	return []key.Key{
		key.Of("name", &h.Name, key.MustSet("a"), key.InstanceName, key.Identity, "Its name."),
		key.Of("address", &h.Address, key.MustSet("2001:db8:5::1"), key.Address6, key.Live, "Its address."),
	}
}

func (s *Settings) check(c *config.Checker) {
	for i, h := range s.Hosts {
		if h.Address.IsValid() && s.Prefix.IsValid() && !s.Prefix.Contains(h.Address) {
			c.Fail(fmt.Sprintf("host[%d].address", i), fmt.Sprintf("%s is not in %s", h.Address, s.Prefix), "write an address of the prefix")
		}
	}
}

func (s *Settings) claims() []config.Claim {
	prefixes := []netip.Prefix{s.Prefix}
	claims := []config.Claim{
		config.Device{Key: "interface", Name: s.Interface},
		config.Route{Key: "prefix", Prefixes: prefixes, Set: true, Remedy: "give each mirror a prefix of its own"},
	}
	if s.Announce {
		claims = append(claims, config.Announced{Key: "announce", Prefixes: prefixes})
	}
	return claims
}

var (
	_ role.Changer[Settings] = (*instance)(nil)
	_ role.Announced         = (*instance)(nil)
)

type instance struct {
	loop  loop.Loop[*packet.Batch]
	ready chan struct{}

	mu       sync.Mutex // guards what follows
	settings Settings
	muted    []string
	mirrored uint64
	dropped  uint64
}

func newInstance(s Settings) *instance {
	i := &instance{settings: s, ready: make(chan struct{})}
	i.loop.Engine = idle{}
	i.loop.NewOutput = func() *packet.Batch { return new(packet.Batch) }
	i.loop.EachDropped = func(f func(string, uint64)) { f("no_host", i.dropped) }
	return i
}

// idle is an engine without timers.
type idle struct{}

func (idle) Tick(time.Time, *packet.Batch) {}
func (idle) Next() time.Time               { return time.Time{} }

func (i *instance) Name() string           { return i.settings.Name }
func (i *instance) Role() string           { return name }
func (i *instance) Ready() <-chan struct{} { return i.ready }

func (i *instance) Status() any {
	i.mu.Lock()
	defer i.mu.Unlock()
	return map[string]any{"state": "serving", "hosts": len(i.settings.Hosts)}
}

func (i *instance) Collect(emit func(role.Metric)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	emit(role.Count("mirrored_total", "Packets sent back.", i.mirrored))
	emit(role.Dropped("no_host", i.dropped))
}

func (i *instance) Prepare(s Settings) (role.Change, error) {
	return func() ([]string, error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.settings = s
		return nil, nil
	}, nil
}

func (i *instance) AnnouncedPrefixes() []netip.Prefix {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.settings.Announce {
		return nil
	}
	return []netip.Prefix{i.settings.Prefix}
}

func (i *instance) CheckSelf(context.Context) error { return nil }

func (i *instance) Run(ctx context.Context) (err error) {
	host, err := port.OpenHost()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	tuns, err := port.OpenTUNQueues(port.TUNConfig{Name: i.settings.Interface, MTU: 1500}, 1)
	if err != nil {
		return err
	}
	tun := tuns[0]
	defer tun.Close()
	if err := host.SetUp(tun.Name()); err != nil {
		return err
	}
	if err := host.AddRoute(port.Route{Dst: i.settings.Prefix, Link: tun.Name()}); err != nil {
		return err
	}
	i.loop.IP = tun
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return i.loop.ReadTun(tun, i.mirror) })
	defer context.AfterFunc(ctx, func() { _ = tun.Close() })()
	close(i.ready)
	return group.Wait()
}

// mirror sends a packet back. Checksums are sums, in which the order of the addresses does
// not matter.
func (i *instance) mirror(ip []byte, _ time.Time, out *packet.Batch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := packet.IPv6(ip)
	if len(ip) < packet.IPv6HeaderLen || ip[0]>>4 != 6 || !i.answers(netip.AddrFrom16(*p.DstBytes())) {
		i.dropped++
		return
	}
	*p.SrcBytes(), *p.DstBytes() = *p.DstBytes(), *p.SrcBytes()
	p[7] = byte(i.settings.HopLimit)
	i.mirrored++
	out.SendIP(p)
}

func (i *instance) answers(a netip.Addr) bool {
	return slices.ContainsFunc(i.settings.Hosts, func(h Host) bool { return h.Address == a && !slices.Contains(i.muted, h.Name) })
}

// Hosts are those of a mirror.
type Hosts struct {
	Hosts []Host `json:"hosts"`
}

// Write implements [role.Table].
func (l Hosts) Write(w io.Writer) {
	fmt.Fprintln(w, "NAME\tADDRESS")
	for _, h := range l.Hosts {
		fmt.Fprintf(w, "%s\t%s\n", h.Name, h.Address)
	}
}

func (i *instance) list() Hosts {
	i.mu.Lock()
	defer i.mu.Unlock()
	return Hosts{slices.Clone(i.settings.Hosts)}
}

type hostArguments struct {
	Host string `arg:"" json:"host" help:"Its name."`
}

type muted struct {
	Muted string `json:"muted"`
}

// Write implements [role.Table].
func (m muted) Write(w io.Writer) { fmt.Fprintf(w, "muted %s\n", m.Muted) }

func (i *instance) mute(a hostArguments) (muted, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !slices.ContainsFunc(i.settings.Hosts, func(h Host) bool { return h.Name == a.Host }) {
		return muted{}, fmt.Errorf("there is no host %q: isthmus mirror host list shows all", a.Host)
	}
	i.muted = append(i.muted, a.Host)
	return muted{a.Host}, nil
}
