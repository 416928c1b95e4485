// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"net/netip"
	"reflect"
	"strings"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/teredo/relay"
	"github.com/isthmus-net/isthmus/teredo/teredobpf"
)

// What the programs may leave to the engine, for each reason: a quarter of what one
// core of it does, so that a flood of one kind leaves room for all others, and new
// clients get through beside one that fits; and of that, what one IPv6 /64 or IPv4
// address may have.
const (
	puntRate  = 120_000
	puntShare = 3_000
)

// shapeOf names what of a configuration the tables of peers depend on, beside their
// size: the tag of a peer is the place of its prefix in the list.
func shapeOf(cfg *Settings) string {
	words := []string{string(cfg.Mode)}
	for _, p := range cfg.Prefixes {
		words = append(words, p.String())
	}
	return strings.Join(words, " ")
}

// apply tells the programs what has changed of configuration and host.
func (f *fast) apply() error {
	f.mu.Lock()
	cfg, at := f.cfg, f.local
	f.mu.Unlock()
	s := f.settings(&cfg, &at)
	if reflect.DeepEqual(s, f.applied) {
		return nil // programs pass packets by while settings change
	}
	if err := f.table.Set(s); err != nil {
		return err
	}
	f.applied = s
	return nil
}

// settings is what the programs must know. What the engine knows too is the same.
func (f *fast) settings(cfg *Settings, at *local) teredobpf.Settings {
	engine := engineConfig(cfg, at)
	send, receive := engine.Ages()
	return teredobpf.Settings{
		Seed: f.peerSeed, Prefixes: cfg.Prefixes, Serve: cfg.Serve,
		Own: reachedAt(cfg, at), Source: f.source(cfg, at), Port: at.port, MTU: cfg.MTU,
		Refresh: send, Memory: receive, Host: engine.Host, Carry: cfg.CarryClients,
		// Who asks for tc knows what is behind his veths.
		Unfinished: cfg.FastPath == fastpath.ModeTC,
		Tunnel:     f.Tunnel(), PuntRate: puntRate, PuntShare: puntShare,
	}
}

// reachedAt are the addresses to which clients send.
func reachedAt(cfg *Settings, at *local) []netip.Addr {
	if a := cfg.Bind.Addr(); !a.IsUnspecified() {
		return []netip.Addr{a}
	}
	return at.own
}

// source is the address that datagrams are sent from: the one that is bound, or else
// what the route says. Where the kernel does not tell the programs, the host must
// have only one.
func (f *fast) source(cfg *Settings, at *local) netip.Addr {
	if a := cfg.Bind.Addr(); !a.IsUnspecified() {
		return a
	}
	var only netip.Addr
	for _, a := range at.own {
		switch {
		case f.Features().FibSource, !a.IsGlobalUnicast():
		case only.IsValid():
			return netip.Addr{}
		default:
			only = a
		}
	}
	return only
}

// shared is what the engine shares with the programs.
func (f *fast) shared() *relay.Shared {
	f.table.UnderTest().Clear() // of a process before this one: no one waits for them
	return &relay.Shared{Seed: f.peerSeed, Foreign: f.table.Foreign(), UnderTest: f.table.UnderTest()}
}
