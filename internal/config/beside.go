// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import "net/netip"

// Claims are what instances have of a host. Who takes them (see [SectionOf]) gets those of
// all others.
type Claims struct {
	// Routes are destinations that lead to devices of theirs, but for those of VRFs.
	Routes []netip.Prefix
	// Sockets are the addresses and ports that they bind.
	Sockets []netip.AddrPort
}

// beside returns what all instances but the one of that name claim.
func (c *Config) beside(name string) (claims Claims) {
	for _, one := range c.claimants() {
		if one.name == name {
			continue
		}
		for _, claim := range one.claims {
			switch claim := claim.(type) {
			case Route:
				if claim.VRF == "" {
					claims.Routes = append(claims.Routes, claim.Prefixes...)
				}
			case Socket:
				if claim.At.Addr().IsValid() && claim.At.Port() != 0 {
					claims.Sockets = append(claims.Sockets, claim.At)
				}
			}
		}
	}
	if c.Metrics.Listen.IsValid() {
		claims.Sockets = append(claims.Sockets, c.Metrics.Listen)
	}
	for _, s := range c.SpeakerSockets() {
		claims.Sockets = append(claims.Sockets, s.At)
	}
	return claims
}
