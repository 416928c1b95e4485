// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
)

// FastPath is the status of the fast path of a client.
type FastPath struct {
	// Mode is what the configuration asks for.
	Mode fastpath.Mode `json:"mode"`
	// Path is what data of proved peers may take: tc or engine.
	Path string `json:"path"`
	// Why returns why the engine carries all packets, or those of the peers whose way
	// was looked at last.
	Why string `json:"why,omitempty"`
	// Devices are those that the programs are attached to, and those left out.
	Devices []driver.Device `json:"devices,omitempty"`
	// Bypassed is what packets of the fast path do not meet, or would not.
	Bypassed []driver.Bypassed `json:"bypassed,omitempty"`
	// Peers are on the fast path now.
	Peers int `json:"peers"`
	// Packets counts by verdict and reason. TCP that is not yet cut into segments
	// counts as one packet.
	Packets map[string]map[string]uint64 `json:"packets,omitempty"`
}

// status tells people about the fast path.
func (f *fastPath) status() FastPath {
	v := f.Status()
	s := FastPath{Mode: v.Mode, Path: v.Path, Why: v.Why, Devices: v.Devices, Bypassed: v.Bypassed, Packets: v.Packets}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.carries {
		s.Why = ""
	}
	for _, m := range f.members {
		s.Peers += m.placed()
		if s.Why == "" {
			s.Why = m.refused
		}
	}
	return s
}

// placed counts the peers that have a way.
func (m *fastMember) placed() (n int) {
	if m.held || !m.fast.carries {
		return 0
	}
	for _, c := range m.peers {
		if m.ways[c.Mapping.Addr()].device != 0 {
			n++
		}
	}
	return n
}

// collect gives the metrics of the fast path.
func (f *fastPath) collect(emit func(role.Metric)) {
	driver.EmitCounters(f.Counters(), emit)
	s, tc := f.status(), 0.0
	if s.Path != driver.EnginePath {
		tc = 1
	}
	emit(role.Level("fastpath_peers", "Peers whose data takes the fast path.", float64(s.Peers)))
	emit(role.Level("fastpath_tc", "1 while tc carries the data of proved peers.", tc))
}
