// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import "net/netip"

// Claims are what instances have of a host.
type Claims struct {
	// Routes are destinations that lead to devices of theirs.
	Routes []netip.Prefix
	// Sockets are the addresses and ports that they bind.
	Sockets []netip.AddrPort
}

// Beside returns what all instances but the one of that name claim.
func (c *Config) Beside(name string) (claims Claims) {
	routes := func(by string, list []netip.Prefix) {
		if by != name {
			claims.Routes = append(claims.Routes, list...)
		}
	}
	for _, n := range c.NAT64s {
		routes(n.Name, n.Routes())
	}
	for _, s := range c.SIITs {
		routes(s.Name, s.Routes())
	}
	for _, r := range c.Relays {
		routes(r.Name, r.Prefixes)
		claims.Sockets = append(claims.Sockets, r.Bind)
	}
	for _, s := range c.Servers {
		claims.Sockets = append(claims.Sockets, netip.AddrPortFrom(s.Address, s.Port))
		if s.Secondary.IsValid() {
			claims.Sockets = append(claims.Sockets, netip.AddrPortFrom(s.Secondary, s.Port))
		}
	}
	for _, i := range c.Instances {
		for _, claim := range i.Claims() {
			if socket, ok := claim.(Socket); ok && i.Name != name {
				claims.Sockets = append(claims.Sockets, socket.At)
			}
		}
	}
	if c.Metrics.Listen.IsValid() {
		claims.Sockets = append(claims.Sockets, c.Metrics.Listen)
	}
	return claims
}
