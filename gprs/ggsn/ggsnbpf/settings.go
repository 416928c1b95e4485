// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/fastpath"
)

// Settings is what the programs are told of a GGSN's configuration.
type Settings struct {
	// Address is the node's own IPv4 address, to which G-PDUs come and from which they go. Without one
	// there is nothing to carry.
	Address netip.Addr
	// Tunnel is the interface index of the device of the terminals' network: routes are asked as if
	// packets came from there.
	Tunnel int
	// PuntRate bounds what is left to the engine, a second and for each reason that may be bounded;
	// PuntShare the part of that of one source. 0: no bound.
	PuntRate, PuntShare int
}

// defaultTTL is the outer time to live, as of packets that the kernel sends.
const defaultTTL = 64

// Set applies settings. While they change programs pass all packets; then next hops are asked for
// again.
func (p *Path) Set(s Settings) error {
	if !s.Address.Is4() {
		return fmt.Errorf("the fast path needs an IPv4 address of the node, not %q", s.Address)
	}
	p.change.Lock()
	defer p.change.Unlock()
	p.Change(func() {
		c := p.settings
		c.Source, c.Tun, c.Ttl = fastpath.IPv4Word(s.Address), uint32(s.Tunnel), defaultTTL
		c.PuntTotal, c.PuntSource = fastpath.PerWindow(s.PuntRate), fastpath.PerWindow(s.PuntShare)
	})
	return nil
}
