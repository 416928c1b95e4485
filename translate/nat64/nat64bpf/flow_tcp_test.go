// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// A stored SYN of the IPv4 side keeps the SYN that it waits for from the fast path.
func TestStoredSYNs(t *testing.T) {
	r := newFlowRig(t, someSizes)
	r.client(flowHost, 0)
	w := r.Waiting()
	p := outward(state.TCP, 5000, 80)
	w.Add(flowPeer.As4(), 80)
	r.expect(p, Reason(nat64ReasonREASON_STORED_SYN))
	r.expect(outward(state.TCP, 5000, 81), To4Forwarded)
	r.expect(outward(state.UDP, 5000, 80), To4Forwarded)
	w.Add(flowPeer.As4(), 80)
	w.Remove(flowPeer.As4(), 80)
	r.expect(p, Reason(nat64ReasonREASON_STORED_SYN))
	w.Clear()
	r.expect(p, To4Forwarded)
	w.Add(flowPeer.As4(), 80)
	r.expect(p, To4Forwarded) // the session is there
}

// Stored SYNs of one source, forged ones perhaps, may be many: once they have ended the fast path
// has its connections again.
func TestManyStoredSYNsOfOneSource(t *testing.T) {
	r := newFlowRig(t, someSizes)
	r.client(flowHost, 0)
	w, p := r.Waiting(), outward(state.TCP, 5000, 80)
	for range 1000 {
		w.Add(flowPeer.As4(), 80)
	}
	for range 999 {
		w.Remove(flowPeer.As4(), 80)
	}
	r.expect(p, Reason(nat64ReasonREASON_STORED_SYN))
	w.Remove(flowPeer.As4(), 80)
	w.Remove(flowPeer.As4(), 80) // one that a predecessor has added
	r.expect(p, To4Forwarded)
}

// Every state, side and flag gives what the engine's table gives.
func TestTCPSteps(t *testing.T) {
	r := newFlowRig(t, someSizes)
	r.client(flowHost, 0)
	now := stampNow()
	for status := state.V4Init; status < state.Statuses; status++ {
		for flags := range 64 {
			for _, from := range []nat64.Side{nat64.FromIPv6, nat64.FromIPv4} {
				p := outward(state.TCP, 5000, 80)
				_, s := r.make(p, state.Fresh{Status: status, Stamp: now - 100})
				p.flags = byte(flags)
				reason := To4Forwarded
				if from == nat64.FromIPv4 {
					p = inward(state.TCP, s.PoolPort, 80)
					p.flags = byte(flags)
					reason = To6Forwarded
				}
				r.expect(p, reason)
				after := r.session(outward(state.TCP, 5000, 80))
				got := nat64.Change{Next: after.Word.Status(), Refresh: after.Word.Stamp() != s.Word.Stamp()}
				if diff := cmp.Diff(nat64.Step(status, from, byte(flags)), got); diff != "" {
					t.Errorf("%s, flags %#x from side %d (-want +got):\n%s", status, flags, from, diff)
				}
				if o := r.table.End(&after); o != state.Made {
					t.Fatal(o)
				}
			}
		}
	}
}

// Where the IPv4 side may open nothing, it does not open a connection that is over again.
func TestReopenedFromOutside(t *testing.T) {
	rig := newFlowRig(t, someSizes)
	for _, external := range []bool{true, false} {
		r := rig.renewed(t, func(s *Settings) { s.ExternalTCP = external })
		r.client(flowHost, 0)
		_, s := r.make(outward(state.TCP, 5000, 80), state.Fresh{Status: state.BothFin, Stamp: stampNow() - 100})
		p := inward(state.TCP, s.PoolPort, 80)
		p.flags = 2
		r.expect(p, To6Forwarded)
		want := state.BothFin
		if external {
			want = state.V4Init
		}
		if got := r.session(outward(state.TCP, 5000, 80)).Word.Status(); got != want {
			t.Errorf("external connections %t: state %s, want %s", external, got, want)
		}
	}
}

// While FTP control connections take a detour, the engine judges who begins something from a
// private address: the gateway's is one, and has bindings.
func TestFlowsOfTheDetour(t *testing.T) {
	rig := newFlowRig(t, someSizes)
	for _, detour := range []bool{true, false} {
		r := rig.renewed(t, func(s *Settings) { s.Detour = detour })
		host := netip.MustParseAddr("fd00:1:2:3:0:2::")
		r.client(host, 0)
		p := outward(state.TCP, 5000, 21)
		p.host = host
		r.make(p, state.Fresh{Status: state.Established, Stamp: stampNow()})
		p.z = 80
		want := To4Forwarded
		if detour {
			want = Reason(nat64ReasonREASON_DETOUR)
		}
		r.expect(p, want)
	}
}

// It judges, too, who opens connections to FTP servers that are bound, and to nothing else.
func TestFlowsToServersOfFTP(t *testing.T) {
	rig := newFlowRig(t, someSizes)
	for _, tt := range []struct {
		transport state.Transport
		x         uint16
		detour    bool
		want      Reason
	}{
		{state.TCP, 21, true, Reason(nat64ReasonREASON_NO_SESSION)},
		{state.TCP, 21, false, To6Forwarded},
		{state.TCP, 20, true, To6Forwarded},
		{state.TCP, 0x1500, true, To6Forwarded}, // 21 in the other order
		{state.UDP, 21, true, To6Forwarded},
	} {
		t.Run(fmt.Sprintf("%s port %d, detour %t", tt.transport, tt.x, tt.detour), func(t *testing.T) {
			r := rig.renewed(t, func(s *Settings) { s.Detour = tt.detour })
			r.client(flowHost, 0)
			status := state.Opened
			if tt.transport == state.TCP {
				status = state.Established
			}
			b, _ := r.make(outward(tt.transport, tt.x, 7), state.Fresh{Status: status, Stamp: stampNow()})
			in := inward(tt.transport, b.PoolPort, 99)
			in.peer = netip.MustParseAddr("198.51.100.200")
			r.expect(in, tt.want)
			in.peer, in.z = outward(tt.transport, tt.x, 7).peer, 7 // what the host has begun itself
			r.expect(in, To6Forwarded)
		})
	}
}
