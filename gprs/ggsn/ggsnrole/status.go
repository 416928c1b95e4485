// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/driver"
)

// Status is the status of a gateway node.
type Status struct {
	// State is starting, serving, draining while it takes no more contexts, device_down while
	// somebody has set a device down, incomplete while something is missing that the node has
	// set up itself, address_missing while the host lacks one of Addresses, or blocked while it
	// lets no packet pass, for the reasons that Blocked has.
	State   string   `json:"state"`
	Blocked []string `json:"blocked,omitempty"`
	// Missing is what should be on the host and is not, be it to be set up by the node or,
	// with route off, by others.
	Missing []string `json:"missing,omitempty"`
	// MissingAddresses are those of Addresses that have gone from the host, or are on an
	// interface that is switched off.
	MissingAddresses []netip.Addr `json:"missing_addresses,omitempty"`
	// Addresses are the node's towards SGSNs, Peers who may speak to it, Interfaces its TUN
	// devices.
	Addresses  []netip.Addr   `json:"addresses"`
	Peers      []netip.Prefix `json:"peers"`
	Interfaces []string       `json:"interfaces"`
	// VRFs are those of Interfaces that are in one.
	VRFs map[string]string `json:"vrfs,omitempty"`
	// Address4 and Address6 are the sources of ICMP errors, if there are any.
	Address4 netip.Addr `json:"address4,omitzero"`
	Address6 netip.Addr `json:"address6,omitzero"`
	// RestartCounter is what SGSNs are told.
	RestartCounter uint8 `json:"restart_counter"`
	// Contexts are open now, of Sessions, with SGSNs; MaxContexts may be. Releasing are those
	// that wait to be ended.
	Contexts    int `json:"contexts"`
	Sessions    int `json:"sessions"`
	SGSNs       int `json:"sgsns"`
	MaxContexts int `json:"max_contexts"`
	Releasing   int `json:"releasing"`
	// Adopted are contexts that an earlier process has left.
	Adopted int `json:"adopted"`
	// Workers is how many pairs of a socket and a queue serve packets.
	Workers int `json:"workers"`
	// Delegated is how many contexts have delegated prefixes, Former how many prefixes contexts had before, and have
	// until their time is over.
	Delegated int `json:"delegated"`
	Former    int `json:"former"`
	// Pools say how full they are, Parts those of them that have named ones; Leaving are those no
	// longer named whose addresses contexts still have.
	Pools   []PoolUse      `json:"pools"`
	Parts   []PoolUse      `json:"pool_parts,omitempty"`
	Leaving []netip.Prefix `json:"leaving,omitempty"`
	// FastPath says which way packets of plain contexts take.
	FastPath driver.Status `json:"fast_path"`
}

// PoolUse is how full the pools of one access point and family are, or a part of them: that of a
// name, or of "no name", for terminals for which no server says one. Held addresses rest.
type PoolUse struct {
	APN    string `json:"apn"`
	Family string `json:"family"`
	Part   string `json:"part,omitempty"`
	Used   uint64 `json:"used"`
	Held   uint64 `json:"held"`
	Free   uint64 `json:"free"`
	// Leaving are addresses of contexts that the pools no longer have. Alarm says that more are
	// taken than pool_alarm has.
	Leaving uint64 `json:"leaving,omitempty"`
	Alarm   bool   `json:"alarm,omitempty"`
}

// Status implements [role.Instance]; it returns a [Status].
func (g *GGSN) Status() any {
	sizes := g.sizes()
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.cfg.sources(g.own[""])
	st := Status{
		Addresses: g.cfg.addresses(), Peers: slices.Clone(g.cfg.Peers), Interfaces: slices.Clone(g.names),
		Address4: at.v4, Address6: at.v6, Blocked: g.blocked(), MissingAddresses: g.addresses.Missing(),
		Contexts: sizes.Contexts, Sessions: sizes.Sessions, SGSNs: sizes.Peers, Releasing: sizes.Releasing,
		MaxContexts: g.cfg.MaxContexts, Adopted: g.adopted,
		Pools: g.cfg.poolUses(sizes.Pools), Parts: g.cfg.poolUses(sizes.Parts), Delegated: sizes.Delegated, Former: sizes.Former,
	}
	if e := g.engine.Load(); e != nil {
		g.loop.Do(func(time.Time, *ggsn.Output) { st.RestartCounter = e.RestartCounter() })
	}
	for i, vrf := range g.vrfs {
		if vrf != "" {
			if st.VRFs == nil {
				st.VRFs = make(map[string]string)
			}
			st.VRFs[g.names[i]] = vrf
		}
	}
	for _, p := range g.leaving {
		st.Leaving = append(st.Leaving, p.prefix)
	}
	for _, n := range g.networks {
		st.Workers = len(n.device.Queues)
	}
	st.State, st.Missing = g.state(st.Blocked)
	st.FastPath = g.fast.Status()
	return st
}

// state is the word of a status, with what is missing; g.mu is held.
func (g *GGSN) state(blocked []string) (word string, missing []string) {
	if g.host == nil {
		return "starting", nil
	}
	for _, n := range g.networks {
		kept := n.device.State()
		word, missing = cmp.Or(word, kept.Word()), append(missing, kept.All()...)
	}
	switch {
	case word != "":
	case len(g.addresses.Missing()) > 0:
		word = "address_missing"
	case len(blocked) > 0:
		word = "blocked"
	case g.draining:
		word = "draining"
	default:
		word = "serving"
	}
	return word, missing
}

func (s *Settings) poolUses(pools []ggsn.PoolSize) []PoolUse {
	uses := make([]PoolUse, len(pools))
	for i, p := range pools {
		uses[i] = PoolUse{APN: p.APN, Family: family(p.IPv6), Part: p.Part, Used: p.Used, Held: p.Held, Free: p.Free, Leaving: p.Leaving, Alarm: s.alarmed(&p)}
	}
	return uses
}

// alarmed reports whether more of a pool is taken, or rests, than its alarm has.
func (s *Settings) alarmed(p *ggsn.PoolSize) bool {
	for i := range s.APNs {
		if a := &s.APNs[i]; a.Name == p.APN && a.PoolAlarm > 0 {
			size := p.Used + p.Held - p.Leaving + p.Free
			return size > 0 && (size-p.Free)*100 >= size*uint64(a.PoolAlarm)
		}
	}
	return false
}

func family(v6 bool) string {
	if v6 {
		return "ipv6"
	}
	return "ipv4"
}

func (g *GGSN) sizes() (s ggsn.Sizes) {
	g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) { s = e.Sizes() })
	return s
}
