// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/translate/nat64"
)

// Status is the status of a stateful translator.
type Status struct {
	// State is starting, serving, device_down while somebody has set the device down,
	// incomplete while something is missing that the translator has set up itself, or
	// blocked while this host lets no packet pass, for the reasons that Blocked has.
	State   string   `json:"state"`
	Blocked []string `json:"blocked,omitempty"`
	// Missing is what should be on the host and is not, be it to be set up by the translator
	// or, with route off, by others.
	Missing []string `json:"missing,omitempty"`
	// Unserved says which addresses of the pool became this host's own and are not served.
	Unserved string `json:"unserved,omitempty"`
	// Interface is the TUN device.
	Interface string `json:"interface"`
	// Pool6 and Pool4 are the pools, Clients who may use them. Leaving is what of former
	// pools sessions still have: it serves them until they end.
	Pool6   []netip.Prefix `json:"pool6"`
	Pool4   []string       `json:"pool4"`
	Clients []netip.Prefix `json:"clients"`
	Leaving []string       `json:"leaving,omitempty"`
	// Address4 and Address6 are the sources of ICMP errors, if there are any.
	Address4 netip.Addr `json:"address4,omitzero"`
	Address6 netip.Addr `json:"address6,omitzero"`
	// Workers is how many queues the device has, once it is open.
	Workers int `json:"workers"`
	// Sessions, Bindings, Subscribers and Blocks are in the tables now; the first three
	// have room for MaxSessions, MaxSessions and MaxClients.
	Sessions    int `json:"sessions"`
	Bindings    int `json:"bindings"`
	Subscribers int `json:"subscribers"`
	Blocks      int `json:"blocks"`
	MaxSessions int `json:"max_sessions"`
	MaxClients  int `json:"max_clients"`
	// Adopted are sessions that an earlier process has left.
	Adopted int `json:"adopted"`
	// FastPath says which way the packets of sessions take.
	FastPath driver.Status `json:"fast_path"`
	// Addresses say how full each address of the pool is.
	Addresses []PoolUse `json:"addresses"`
}

// PoolUse is how full one address of the pool is.
type PoolUse struct {
	Address netip.Addr `json:"address"`
	// Blocks of ports are held by Clients; Bound ports are in use, those of all
	// transports together.
	Blocks  int `json:"blocks"`
	Clients int `json:"clients"`
	Bound   int `json:"ports_bound"`
}

// Status implements [role.Instance]; it returns a [Status].
func (n *NAT64) Status() any {
	uses := n.poolUses()
	n.mu.Lock()
	defer n.mu.Unlock()
	passage := n.passage()
	st := Status{
		Blocked: passage.Closed, Interface: n.cfg.Interface, Pool6: slices.Clone(n.cfg.Pool6), Clients: slices.Clone(n.cfg.Clients),
		MaxSessions: n.cfg.MaxSessions, MaxClients: n.cfg.MaxClients,
		Adopted: n.adopted, Addresses: uses, Leaving: n.leaving.texts(), Unserved: n.unserved(),
	}
	for _, r := range n.cfg.Pool4 {
		st.Pool4 = append(st.Pool4, r.String())
	}
	st.Address4, st.Address6 = n.own.Sources(&n.cfg.Translation)
	st.State, st.Missing = n.device.State(&passage)
	st.Missing = append(st.Missing, n.ftp.missing()...)
	_, st.Workers = n.device.Stats()
	st.FastPath = n.fast.Status()
	sizes := n.sizes()
	st.Sessions, st.Bindings, st.Subscribers, st.Blocks = sizes.Sessions, sizes.Bindings, sizes.Subscribers, sizes.Blocks
	return st
}

func (n *NAT64) sizes() (s nat64.Sizes) {
	n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) { s = e.Sizes() })
	return s
}

// poolUses counts what is in use of each address of the pool that anything is of.
func (n *NAT64) poolUses() []PoolUse {
	uses := map[netip.Addr]*PoolUse{}
	of := func(a netip.Addr) *PoolUse {
		if uses[a] == nil {
			uses[a] = &PoolUse{Address: a}
		}
		return uses[a]
	}
	n.walk(func(e *nat64.Engine, at uint32, _ time.Time) uint32 {
		return e.Bindings(nat64.Selection{}, at, listStep, func(b nat64.BindingInfo) bool {
			of(b.Outside.Addr()).Bound++
			return true
		})
	})
	last := map[netip.Addr]netip.Prefix{}
	n.walk(func(e *nat64.Engine, at uint32, _ time.Time) uint32 {
		return e.Blocks(at, listStep, func(b nat64.Block) bool {
			u := of(b.Pool)
			u.Blocks++
			if last[b.Pool] != b.Client { // a client's blocks come together
				last[b.Pool] = b.Client
				u.Clients++
			}
			return true
		})
	})
	list := make([]PoolUse, 0, len(uses))
	for _, u := range uses {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b PoolUse) int { return a.Address.Compare(b.Address) })
	return list
}

// listStep is how many records are looked at between two packets.
const listStep = 8192

// walk calls f with the engine to itself until it returns 0, where packets pass in
// between. f is told where to go on.
func (n *NAT64) walk(f func(e *nat64.Engine, at uint32, now time.Time) uint32) {
	for at := uint32(0); ; {
		if !n.do(func(e *nat64.Engine, now time.Time, _ *nat64.Out) { at = f(e, at, now) }) || at == 0 {
			return
		}
	}
}

// Collect implements [role.Instance].
func (n *NAT64) Collect(emit func(role.Metric)) {
	var s nat64.Stats
	var sizes nat64.Sizes
	n.do(func(e *nat64.Engine, _ time.Time, _ *nat64.Out) { s, sizes = e.Stats(), e.Sizes() })
	emit(role.Count("to_ipv4_total", "Packets translated to IPv4 by the engine.", s.Translated6to4))
	emit(role.Count("to_ipv6_total", "Packets translated to IPv6 by the engine.", s.Translated4to6))
	emit(role.Count("hairpinned_total", "Packets between two clients.", s.Hairpinned))
	emit(role.Count("sessions_made_total", "Sessions that the engine has made.", s.SessionsMade))
	emit(role.Count("sessions_ended_total", "Sessions that have ended.", s.SessionsEnded))
	emit(role.Count("bindings_made_total", "Bindings that the engine has made.", s.BindingsMade))
	emit(role.Count("blocks_leased_total", "Blocks of ports given to clients.", s.BlocksLeased))
	emit(role.Count("blocks_ended_total", "Blocks of ports that clients gave back.", s.BlocksEnded))
	emit(role.Count("probes_total", "Probes of idle TCP connections.", s.Probes))
	emit(role.Count("fragments_stored_total", "Fragments that waited for others.", s.FragmentsStored))
	emit(role.Count("assemblies_evicted_total", "Packets in fragments that gave way to others.", s.AssembliesEvicted))
	emit(role.Count("reassembled_total", "Packets put together from fragments.", s.Reassembled))
	emit(role.Count("detoured_total", "Packets of FTP control connections by way of the proxy.", s.Detoured))
	emit(role.Level("sessions", "Sessions in the table.", float64(sizes.Sessions)))
	emit(role.Level("bindings", "Bindings in the table.", float64(sizes.Bindings)))
	emit(role.Level("subscribers", "Clients in the table.", float64(sizes.Subscribers)))
	emit(role.Level("blocks", "Blocks of ports that clients hold.", float64(sizes.Blocks)))
	emit(role.Level("stored_syns", "SYNs from the IPv4 side that wait.", float64(sizes.StoredSYNs)))
	emit(role.Level("assemblies", "Packets of which fragments are remembered.", float64(sizes.Assemblies)))
	emit(role.Count("log_lines_lost_total", "Events that the log was too slow for.", n.events.Lost()))
	for c := range nat64.ErrorClass(nat64.NumErrorClasses) {
		emit(role.Metric{Name: "icmp_errors_total", Kind: role.Counter, Help: "ICMP errors sent by the translator itself, by class.", Reason: c.String(), Value: float64(s.ErrorsSent[c])})
		emit(role.Metric{Name: "icmp_errors_withheld_total", Kind: role.Counter, Help: "ICMP errors not sent, by their rate or because they are off, by class.", Reason: c.String(), Value: float64(s.ErrorsWithheld[c])})
	}
	eachDropped(&s, func(reason string, count uint64) { emit(role.Dropped(reason, count)) })
	n.fast.Collect(emit)
	tun, _ := n.device.Stats()
	loop.CollectPort(emit, "tun", tun)
	n.mu.Lock()
	ftp, advertisers := n.ftp, n.advertisers
	n.mu.Unlock()
	ftp.collect(emit)
	advertisers.collect(emit)
}

// eachDropped calls f for every drop reason, in a fixed order.
func eachDropped(s *nat64.Stats, f func(reason string, n uint64)) {
	for r := 1; r < nat64.NumReasons; r++ {
		f(nat64.Reason(r).String(), s.Dropped[r])
	}
}

func (n *NAT64) eachDropped(f func(reason string, n uint64)) {
	s := n.engine.Load().Stats()
	eachDropped(&s, f)
}

// Trace implements [role.Tracer].
func (n *NAT64) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	return n.fast.Trace(ctx, sampling, emit, func(ctx context.Context, emit func(*trace.Sample)) error {
		return n.loop.Trace(ctx, n.name, sampling, emit)
	})
}

// algPrefix is the private prefix of the FTP gateway: that of the configuration, or one
// made of the instance's name.
func algPrefix(cfg *Settings) netip.Prefix {
	if cfg.AlgPrefix.IsValid() {
		return cfg.AlgPrefix
	}
	return madePrefix(cfg.Name)
}
