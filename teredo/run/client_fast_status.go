// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"slices"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/role"
)

// FastPathStatus is the status of the fast path of a client.
type FastPathStatus struct {
	// Hook is tc, or off where the engine carries all packets.
	Hook string `json:"hook"`
	// Why tells why the engine carries all packets, or those of the peers whose way
	// was looked at last.
	Why string `json:"why,omitempty"`
	// Devices are those whose packets the programs see.
	Devices []string `json:"devices,omitempty"`
	// Peers are on the fast path now.
	Peers int `json:"peers"`
	// Sent and Received are packets of the host that took it. TCP that is not yet
	// cut into segments counts as one packet.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	// Warnings say what packets do not meet any more.
	Warnings []string `json:"warnings,omitempty"`
}

// status tells people about the fast path.
func (f *fastPath) status() FastPathStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := FastPathStatus{Hook: "off", Why: f.why, Warnings: slices.Clone(f.warnings)}
	if f.host == nil {
		return s
	}
	s.Hook = "tc"
	s.Devices = slices.Sorted(maps.Values(f.devices))
	for _, m := range f.members {
		s.Peers += m.placed()
		if s.Why == "" {
			s.Why = m.refused
		}
	}
	for _, c := range f.counters() {
		switch c.Reason {
		case fastpath.HostEncapForwarded:
			s.Sent = c.Packets
		case fastpath.HostDecapForwarded:
			s.Received = c.Packets
		}
	}
	return s
}

// placed counts the peers that have a way.
func (m *fastMember) placed() (n int) {
	if m.held {
		return 0
	}
	for _, c := range m.peers {
		if m.ways[c.Mapping.Addr()].device != 0 {
			n++
		}
	}
	return n
}

// counters reads those of the programs; f.mu is held.
func (f *fastPath) counters() []fastpath.Counter {
	if f.host == nil {
		return nil
	}
	list, err := f.host.Counters()
	if err != nil {
		return nil // it is the end of the fast path
	}
	return list
}

// collect gives the metrics of the fast path.
func (f *fastPath) collect(emit func(role.Metric)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	peers := 0
	for _, m := range f.members {
		peers += m.placed()
	}
	emit(role.Level("fast_path_peers", "Peers whose data takes the fast path.", float64(peers)))
	for _, c := range f.counters() {
		switch {
		case c.Reason == fastpath.HostEncapForwarded:
			emit(role.Count("fast_path_sent_total", "IPv6 packets of the host sent by the fast path; TCP that is not yet cut counts as one.", c.Packets))
		case c.Reason == fastpath.HostDecapForwarded:
			emit(role.Count("fast_path_received_total", "IPv6 packets given to the host by the fast path.", c.Packets))
		}
	}
}
