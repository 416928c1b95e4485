// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relayrole

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/trace"
	"github.com/isthmus-net/isthmus/teredo/relay"
)

// Status is the status of a relay.
type Status struct {
	// State is starting, serving, device_down while someone has set the device
	// down, or incomplete while something is missing that the relay has set up.
	State string `json:"state"`
	// Missing is what should be on the host and is not, be it to be set up by the
	// relay or, with route off, by others.
	Missing []string `json:"missing,omitempty"`
	// Mode is relay or host.
	Mode Mode `json:"mode"`
	// Listen is the UDP socket, once it is open.
	Listen netip.AddrPort `json:"listen,omitzero"`
	// Interface is the TUN device.
	Interface string `json:"interface"`
	// Prefixes are the Teredo prefixes that it reaches.
	Prefixes []netip.Prefix `json:"prefixes"`
	// Serve are the ranges that clients may send to.
	Serve []netip.Prefix `json:"serve"`
	// Address is the source of ICMPv6 errors, if there is one.
	Address netip.Addr `json:"address,omitzero"`
	// Forwarding reports whether the kernel forwarded IPv6 when the relay started.
	Forwarding bool `json:"forwarding"`
	// Workers is how many pairs of ports serve packets, once they are open.
	Workers int `json:"workers"`
	// Peers are all clients in the table, Trusted those with a proved mapping.
	Peers   int `json:"peers"`
	Trusted int `json:"trusted_peers"`
	// QueuedBytes wait for clients that have not answered yet.
	QueuedBytes int `json:"queued_bytes"`
	// CarryClients reports whether the relay carries between clients, and Bound
	// how many are bound to it for that.
	CarryClients bool `json:"carry_clients"`
	Bound        int  `json:"bound_clients"`
	// FastPath says which way the packets of established peers take.
	FastPath driver.Status `json:"fast_path"`
}

// Status implements [role.Instance]; it returns a [Status].
func (r *Relay) Status() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.device.State()
	st := Status{
		State: r.state(&kept), Missing: kept.All(), Mode: r.cfg.Mode, Interface: r.cfg.Interface, Address: r.address(), Forwarding: r.forwarding,
		Prefixes: slices.Clone(r.cfg.Prefixes), Serve: slices.Clone(r.cfg.Serve),
	}
	if st.Workers = len(r.conns); st.Workers > 0 {
		st.Listen = r.conns[0].LocalAddr()
	}
	st.FastPath = r.fast.Status()
	sizes := r.sizes()
	st.Peers, st.Trusted, st.QueuedBytes = sizes.Peers, sizes.Trusted, sizes.QueuedBytes
	st.CarryClients, st.Bound = r.cfg.CarryClients, sizes.Bound
	return st
}

// state is the word for Status.State; r.mu is held.
func (r *Relay) state(kept *host.State) string {
	if r.host == nil {
		return "starting"
	}
	return cmp.Or(kept.Word(), "serving")
}

func (r *Relay) sizes() (s relay.Sizes) {
	r.loop.Do(func(time.Time, *packet.Batch) { s = r.engine.Sizes() })
	return s
}

// Peers implements [role.PeerLister].
func (r *Relay) Peers(limit int) (peers []role.Peer, total int) {
	list := relay.Listing{Limit: limit}
	for done := false; !done; { // packets pass in between
		r.loop.Do(func(now time.Time, _ *packet.Batch) {
			done, total = r.engine.List(&list, now), r.engine.Sizes().Peers
		})
	}
	for _, p := range list.Peers {
		peers = append(peers, role.Peer{
			Address: p.Address, Mapped: p.Mapped, Trusted: p.Trusted,
			LastReceived: p.Received, LastSent: p.Sent, Queued: p.Queued,
		})
	}
	return peers, total
}

// Prepare implements [role.Changer].
func (r *Relay) Prepare(next Settings) (role.Change, error) {
	return func() (needsRestart []string, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.host == nil {
			return nil, errors.New("the relay is not running, so it cannot take new settings: restart it")
		}
		if next.FastPath != r.cfg.FastPath && !r.fast.Loaded() {
			next.FastPath = r.cfg.FastPath // the peers lie where no program can read them
			needsRestart = []string{"fast_path"}
		}
		if err := r.reconfigure(&next); err != nil {
			return nil, err
		}
		r.cfg = next
		return needsRestart, nil
	}, nil
}

// Trace implements [role.Tracer]: it shows the packets of both paths.
func (r *Relay) Trace(ctx context.Context, sampling trace.Sampling, emit func(*trace.Sample)) error {
	return r.fast.Trace(ctx, sampling, emit, func(ctx context.Context, emit func(*trace.Sample)) error {
		return r.loop.Trace(ctx, r.name, sampling, emit)
	})
}

func (r *Relay) eachDropped(f func(reason string, n uint64)) {
	s := r.engine.Stats()
	s.EachDropped(func(why relay.Reason, n uint64) { f(why.String(), n) })
}
