// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/teredo"
)

// leastWire is the MTU that a device needs to take the largest packet in its
// tunnel header; the kernel would fragment for a smaller one.
const leastWire = teredo.MTU + 28

// maxWays bounds the ways that are remembered.
const maxWays = 4096

// resolve finds the ways that are missing. It runs on the thread of the fast path,
// and holds no lock while it asks the kernel.
func (m *fastMember) resolve() {
	m.fast.mu.Lock()
	missing, via, changes := m.missing, m.c.via, m.changes
	m.missing = nil
	held := m.held || !m.fast.carries
	m.fast.mu.Unlock()
	if held || len(missing) == 0 {
		return
	}
	found := map[netip.Addr]fastWay{}
	refused := ""
	for _, to := range missing {
		if _, done := found[to]; done {
			continue
		}
		way, err := m.wayTo(to, via)
		if err != nil {
			refused = err.Error()
		}
		found[to] = way
	}
	m.fast.mu.Lock()
	defer m.fast.mu.Unlock()
	if m.changes != changes {
		return // whoever released it again has asked again
	}
	if len(m.ways)+len(found) > maxWays {
		clear(m.ways)
	}
	m.refused = refused
	for to, way := range found {
		m.ways[to] = way
	}
	for _, c := range m.peers {
		if _, now := found[c.Mapping.Addr()]; now {
			m.place(&c)
		}
	}
}

// wayTo asks the kernel by which device and from which address packets leave. The
// error says why the engine has to send them.
func (m *fastMember) wayTo(to netip.Addr, via string) (fastWay, error) {
	e, err := m.fast.kernel.EgressBy(to, via)
	if err != nil {
		return fastWay{}, err
	}
	if own := m.c.conn.LocalAddr().Addr(); !own.IsUnspecified() {
		e.Source = own
	}
	name, attached := m.fast.Attached(e.Link)
	if !attached {
		return fastWay{}, fmt.Errorf("the way to %s leads by a device that the fast path is not attached to", to)
	}
	wire, err := m.fast.kernel.WireAt(e.Link)
	if err != nil {
		return fastWay{}, err
	}
	if err := m.fast.accepts(name, wire); err != nil {
		return fastWay{}, err
	}
	return fastWay{device: e.Link, source: e.Source}, nil
}

// accepts returns why packets must not leave by a device.
func (f *fastPath) accepts(name string, w port.Wire) error {
	switch {
	case w.MTU < leastWire:
		return fmt.Errorf("%s has an MTU of %d bytes, and the fast path needs %d: it does not fragment", name, w.MTU, leastWire)
	case f.cfg.FastPath == fastpath.ModeAuto:
		return driver.Finishes(name, w)
	}
	return nil
}
