// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/isthmus-net/isthmus/teredo"
)

// claimant is an instance with what it has of the host alone.
type claimant struct {
	role, name, path string
	claims           []Claim
}

// by names the instance for people.
func (c claimant) by() string { return fmt.Sprintf("%s %q", c.role, c.name) }

// claimants are all instances, in the order of the file's roles.
func (c *Config) claimants() (all []claimant) {
	add := func(role string, i int, name string, claims ...Claim) {
		all = append(all, claimant{role, name, fmt.Sprintf("%s[%d]", role, i), claims})
	}
	udp := func(key string, address netip.Addr, port uint16) Socket {
		return Socket{key, "UDP", netip.AddrPortFrom(address, port)}
	}
	for i, s := range c.Servers {
		add(RoleServer, i, s.Name, udp("address", s.Address, s.Port), udp("secondary", s.Secondary, s.Port))
	}
	for i, r := range c.Relays {
		add(RoleRelay, i, r.Name, Device{"interface", r.Interface}, Socket{"bind", "UDP", r.Bind})
	}
	for i, r := range c.Clients {
		address := r.Bind
		if !address.IsValid() {
			address = netip.IPv4Unspecified()
		}
		add(RoleClient, i, r.Name, Device{"interface", r.Interface}, udp("port", address, r.Port))
	}
	for i, n := range c.NAT64s {
		add(RoleNAT64, i, n.Name, Device{"interface", n.Interface})
	}
	for i, s := range c.SIITs {
		add(RoleSIIT, i, s.Name, Device{"interface", s.Interface})
	}
	for _, i := range c.Instances {
		all = append(all, claimant{i.Section.Name, i.Name, i.path, i.Claims()})
	}
	return all
}

// conflicts finds instances that cannot run together: of the same name, or with claims
// against one another.
func (c *checker) conflicts(config *Config) {
	all := config.claimants()
	names := map[string]string{}
	for i, one := range all {
		if other, taken := names[one.name]; taken && !c.failed[one.path+".name"] {
			c.fail(one.path+".name", fmt.Sprintf("%q is also the name of a %s", one.name, other), `give each instance a name = "…" of its own`)
		} else {
			names[one.name] = one.role
		}
		for _, claim := range one.claims {
			c.against(all[:i], one, claim)
		}
	}
	c.discovery(config, all)
	c.routes(config)
	c.translators(config)
}

// against reports what first stands against a claim.
func (c *checker) against(others []claimant, one claimant, claim Claim) {
	path := strings.TrimSuffix(one.path+"."+claim.key(), ".")
	if c.failed[path] {
		return
	}
	for _, other := range others {
		for _, theirs := range other.claims {
			if other.by() == one.by() || c.failed[other.path+"."+theirs.key()] {
				continue
			}
			if f := claim.against(theirs, other.by()); f != nil {
				c.fail(path, f.Problem, f.Remedy)
				return
			}
		}
	}
}

// discovery finds sockets that take what clients are to hear from neighbours. The
// clients themselves share it.
func (c *checker) discovery(config *Config, all []claimant) {
	group := netip.AddrPortFrom(teredo.DiscoveryAddress, teredo.Port)
	for i, r := range config.Clients {
		for _, other := range all {
			for _, claim := range other.claims {
				if socket, ok := claim.(Socket); ok && r.LocalDiscovery && socket.Protocol == "UDP" && overlap(socket.At, group) {
					c.fail(fmt.Sprintf("%s[%d].local_discovery", RoleClient, i),
						fmt.Sprintf("neighbours are heard on UDP %s, which %s binds as %s", group, other.by(), socket.At),
						"choose another port there, or name an address to bind")
				}
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
