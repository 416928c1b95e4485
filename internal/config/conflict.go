// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"

	"github.com/isthmus-net/isthmus/teredo"
)

// claim is something that only one instance can have.
type claim struct {
	path string // key that claims it
	by   string // role and name, for people
}

// conflicts finds instances that cannot run together: the same name, device, UDP
// socket or route.
func (c *checker) conflicts(config *Config) {
	names := map[string]claim{}
	devices := map[string]claim{}
	var sockets []socketClaim
	// A server has no device: the empty name.
	instance := func(role string, i int, name, device string, binds ...socketClaim) {
		at := fmt.Sprintf("%s[%d]", role, i)
		by := fmt.Sprintf("%s %q", role, name)
		if other, taken := names[name]; taken && !c.failed[at+".name"] {
			c.fail(at+".name", fmt.Sprintf("%q is also the name of a %s", name, other.by), `give each instance a name = "…" of its own`)
		} else {
			names[name] = claim{at + ".name", role}
		}
		if other, taken := devices[device]; taken && device != "" && !c.failed[at+".interface"] {
			c.fail(at+".interface", fmt.Sprintf("%s is also the interface of %s", device, other.by), `give each instance an interface = "…" of its own`)
		} else {
			devices[device] = claim{at + ".interface", by}
		}
		for _, bind := range binds {
			bind.claim = claim{at + "." + bind.path, by}
			sockets = c.bind(sockets, bind)
		}
	}
	for i, s := range config.Servers {
		instance(RoleServer, i, s.Name, "",
			bindTo("address", s.Address, s.Port), bindTo("secondary", s.Secondary, s.Port))
	}
	for i, r := range config.Relays {
		instance(RoleRelay, i, r.Name, r.Interface, bindTo("bind", r.Bind.Addr(), r.Bind.Port()))
	}
	for i, r := range config.Clients {
		address := r.Bind
		if !address.IsValid() {
			address = netip.IPv4Unspecified()
		}
		instance(RoleClient, i, r.Name, r.Interface, bindTo("port", address, r.Port))
	}
	for i, n := range config.NAT64s {
		instance(RoleNAT64, i, n.Name, n.Interface)
	}
	for i, s := range config.SIITs {
		instance(RoleSIIT, i, s.Name, s.Interface)
	}
	for i, s := range config.CLATs {
		instance(RoleCLAT, i, s.Name, s.Interface)
	}
	if len(config.CLATs) > 1 {
		// RFC 7335: the addresses of 192.0.0.0/29 are one host's.
		c.fail(RoleCLAT+"[1]", "a host has one CLAT, since all have the same IPv4 address", "leave one of them out")
	}
	for i, d := range config.DNS64s {
		var binds []socketClaim
		for _, at := range d.Listen {
			binds = append(binds, bindTo("listen", at.Addr(), at.Port()))
		}
		instance(RoleDNS64, i, d.Name, "", binds...)
	}
	c.discovery(config, sockets)
	c.routes(config)
	c.translators(config)
}

// discovery finds sockets that take what clients are to hear from neighbours. The
// clients themselves share it.
func (c *checker) discovery(config *Config, sockets []socketClaim) {
	group := netip.AddrPortFrom(teredo.DiscoveryAddress, teredo.Port)
	for i, r := range config.Clients {
		for _, other := range sockets {
			if r.LocalDiscovery && overlap(other.at, group) {
				c.fail(fmt.Sprintf("%s[%d].local_discovery", RoleClient, i),
					fmt.Sprintf("neighbours are heard on UDP %s, which %s binds as %s", group, other.by, other.at),
					"choose another port there, or name an address to bind")
			}
		}
	}
}

// routes finds relays that would route one prefix to two devices, and clients
// whose default routes would have one metric.
func (c *checker) routes(config *Config) {
	prefixes := map[netip.Prefix]string{}
	for i, r := range config.Relays {
		path := fmt.Sprintf("%s[%d].prefixes", RoleRelay, i)
		for _, p := range r.Prefixes {
			switch other, taken := prefixes[p]; {
			case !r.Route:
			case taken && !c.failed[path]:
				c.fail(path, fmt.Sprintf("%s is also routed to relay %q", p, other), "give each relay prefixes of its own, or set route = false")
			case !taken:
				prefixes[p] = r.Name
			}
		}
	}
	metrics := map[int]string{}
	for i, r := range config.Clients {
		path := fmt.Sprintf("%s[%d].route_metric", RoleClient, i)
		if other, taken := metrics[r.RouteMetric]; taken && !c.failed[path] {
			c.fail(path, fmt.Sprintf("%d is also the metric of client %q", r.RouteMetric, other), "give each client a route_metric of its own; the smallest one wins")
		}
		metrics[r.RouteMetric] = r.Name
	}
}

// translators finds translators that would route one destination to two devices. An
// IPv4 pool may be parted among several by ports only if one has the routes.
func (c *checker) translators(config *Config) {
	claims := map[netip.Prefix]string{}
	claim := func(path, by string, on bool, prefixes []netip.Prefix) {
		if !on || c.failed[path] {
			return
		}
		for _, p := range prefixes {
			for other, owner := range claims {
				if owner != by && p.Overlaps(other) {
					c.fail(path, fmt.Sprintf("%s overlaps %s of %s", p, other, owner), "give each translator prefixes of its own, or set route = false")
					return
				}
			}
			claims[p] = by
		}
	}
	for i, n := range config.NAT64s {
		at, by := fmt.Sprintf("%s[%d]", RoleNAT64, i), fmt.Sprintf("%s %q", RoleNAT64, n.Name)
		claim(at+".pool6", by, n.Route, n.Pool6)
		claim(at+".pool4", by, n.Route, n.Routes()[len(n.Pool6):])
	}
	for i, s := range config.SIITs {
		at, by := fmt.Sprintf("%s[%d]", RoleSIIT, i), fmt.Sprintf("%s %q", RoleSIIT, s.Name)
		claim(at+".pool6", by, s.Route, s.Pool6)
		claim(at+".pool4", by, s.Route, s.Pool4)
		claim(at+".eam", by, s.Route, s.Routes()[len(s.Pool6)+len(s.Pool4):])
	}
}

// socketClaim is a UDP address and port that an instance binds.
type socketClaim struct {
	claim
	at netip.AddrPort
}

func bindTo(key string, address netip.Addr, port uint16) socketClaim {
	return socketClaim{claim: claim{path: key}, at: netip.AddrPortFrom(address, port)}
}

// bind adds a socket to those claimed, or reports the one in its way. An invalid
// address and a port of 0 claim nothing.
func (c *checker) bind(sockets []socketClaim, next socketClaim) []socketClaim {
	if !next.at.Addr().IsValid() || next.at.Port() == 0 || c.failed[next.path] {
		return sockets
	}
	for _, other := range sockets {
		if other.by != next.by && overlap(other.at, next.at) {
			c.fail(next.path, fmt.Sprintf("UDP %s is also bound by %s", other.at, other.by), "choose another port or address")
			return sockets
		}
	}
	return append(sockets, next)
}

// overlap tells whether two UDP sockets cannot exist side by side.
func overlap(a, b netip.AddrPort) bool {
	return a.Port() == b.Port() &&
		(a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}
