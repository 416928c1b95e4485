// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/special"
)

func (s *Settings) check(c *config.Checker) {
	if !s.GSNAddress4.IsValid() && !s.GSNAddress6.IsValid() && c.OK("gsn_address4", "gsn_address6") {
		c.Fail("", "this node has no address that SGSNs could reach", `add gsn_address4 = "192.0.2.1" or gsn_address6 with an address of this host`)
	}
	s.checkPeers(c)
	driver.CheckDevices(c, s.FastPathDevices, s.interfaces()...)
	if len(s.APNs) == 0 && c.OK("apn") {
		c.Fail("", "no terminal can be served, because this node has no access point", "add a [[ggsn.apn]] with a name and a pool")
	}
	for i := range s.APNs {
		s.checkAPN(c, i)
	}
	for i := range s.APNs {
		s.checkNetwork(c, i)
	}
	s.checkDefault(c)
	s.checkRADIUS(c)
	s.checkPools(c)
	s.checkAnnounce(c)
	for i := range s.APNs {
		s.APNs[i].checkEngine(c, fmt.Sprintf("apn[%d]", i))
	}
}

// checkPeers wants SGSNs named: whoever may speak can have any context, and end those of others.
func (s *Settings) checkPeers(c *config.Checker) {
	if len(s.Peers) == 0 && c.OK("peers") {
		c.Fail("", "nobody may speak to this node, because it has no peers", `add peers = ["192.0.2.0/24"] with the networks of your SGSNs`)
	}
	if own := s.addresses(); len(own) > 0 && len(s.Peers) > 0 && c.OK("peers", "gsn_address4", "gsn_address6") &&
		!slices.ContainsFunc(s.Peers, func(p netip.Prefix) bool {
			return slices.ContainsFunc(own, func(a netip.Addr) bool { return a.Is4() == p.Addr().Is4() })
		}) {
		c.Fail("peers", fmt.Sprintf("none of the peers has an address of the family of %s, where this node is reached", role.Join(own)), "name networks of that family, or add a gsn_address of theirs")
	}
	for i, p := range s.Peers {
		if p.Bits() == 0 {
			c.Fail(fmt.Sprintf("peers[%d]", i), "everybody could open contexts here, and end those of others", "name the networks of your SGSNs")
		}
	}
	for i, p := range s.ReversedTID {
		if c.OK("peers") && !slices.ContainsFunc(s.Peers, p.Overlaps) {
			c.Fail(fmt.Sprintf("reversed_tid[%d]", i), fmt.Sprintf("no peer is in %s", p), "name networks of peers")
		}
	}
}

// checkDefault wants the default access point among those that there are.
func (s *Settings) checkDefault(c *config.Checker) {
	known := slices.ContainsFunc(s.APNs, func(a APN) bool { return strings.EqualFold(a.Name, s.DefaultAPN) })
	if s.DefaultAPN == "" || known || !c.OK("default_apn", "apn") {
		return
	}
	var names []string
	for i := range s.APNs {
		if s.APNs[i].Name != "" {
			names = append(names, s.APNs[i].Name)
		}
	}
	c.Fail("default_apn", fmt.Sprintf("there is no access point %s", s.DefaultAPN), "write one of "+strings.Join(names, ", "))
}

// checkAPN makes the checks of one access point.
func (s *Settings) checkAPN(c *config.Checker, i int) {
	a, path := &s.APNs[i], fmt.Sprintf("apn[%d]", i)
	switch {
	case a.Name == "" && !c.Failed(path+".name"):
		c.Fail(path, "this access point has no name", `add name = "internet" with the name that terminals ask for`)
	case slices.ContainsFunc(s.APNs[:i], func(b APN) bool { return a.Name != "" && strings.EqualFold(a.Name, b.Name) }):
		c.Fail(path+".name", fmt.Sprintf("%s is there twice", a.Name), "give each access point a name of its own")
	}
	if !c.OK(path+".pool4", path+".static4", path+".pool6", path+".static6") {
		return
	}
	a.checkDelegate(c, path)
	if a.MarkInner && a.DSCPModel == Uniform && c.OK(path+".dscp_model", path+".mark_inner") {
		c.Fail(path+".dscp_model", "packets cannot have the DSCP of their class and keep their own", `leave mark_inner out, or dscp_model`)
	}
	a.checkNamed(c, path)
	four, six := len(a.Pool4)+len(a.Static4) > 0, len(a.Pool6)+len(a.Static6) > 0
	if !four && !six {
		c.Fail(path, "contexts would get no address here", `add pool4 = ["10.45.0.0/16"], or pool6 = ["2001:db8:6000::/40"] with prefixes that are routed to this host`)
		return
	}
	for j, t := range a.Types {
		bits, one := typeBits[t], fmt.Sprintf("%s.types[%d]", path, j)
		switch {
		case bits&(ggsn.TypeIPv4|ggsn.TypeIPv4v6) != 0 && !four:
			c.Fail(one, fmt.Sprintf("%s needs IPv4 addresses, and there are none", t), "add a pool4, or leave the type out")
		case bits&(ggsn.TypeIPv6|ggsn.TypeIPv4v6) != 0 && !six:
			c.Fail(one, fmt.Sprintf("%s needs IPv6 prefixes, and there are none", t), "add a pool6, or leave the type out")
		}
	}
}

// checkDelegate wants a pool and a server where prefixes are delegated.
func (a *APN) checkDelegate(c *config.Checker, path string) {
	at := path + ".delegate"
	if a.LinkPrefixes > 1 && len(a.Pool6) == 0 && c.OK(path+".link_prefixes", path+".pool6") {
		c.Fail(path+".link_prefixes", "there are no prefixes for links", `add pool6 = ["2001:db8:6000::/40"] with prefixes that are routed to this host`)
	}
	if a.Renumber > 0 && a.Delegate > 0 && c.OK(path+".renumber", at) {
		c.Fail(path+".renumber", "delegated prefixes cannot be renumbered", "leave renumber out, or delegate")
	}
	switch {
	case a.Delegate == 0 || !c.OK(at, path+".dhcp"):
	case len(a.Pool6) == 0:
		c.Fail(at, "there is no prefix to delegate", `add pool6 = ["2001:db8:6000::/40"] with prefixes that are routed to this host`)
	case a.LinkPrefixes > 1:
		c.Fail(path+".link_prefixes", "what follows the first prefix of a link is delegated", "leave link_prefixes out, or delegate")
	case !a.DHCP:
		c.Fail(at, "prefixes are delegated by DHCPv6, which is switched off", "leave dhcp = false out, or delegate")
	}
}

// checkEngine has the engine say what it cannot make: pools, and what terminals are told.
func (a *APN) checkEngine(c *config.Checker, path string) {
	e := a.engine(0)
	for n, of := range []struct {
		key  string
		list []netip.Prefix
	}{{"pool4", a.Pool4}, {"pool6", a.Pool6}, {"static4", a.Static4}, {"static6", a.Static6}} {
		at, well := path+"."+of.key, true
		for i := range of.list {
			well = well && !c.Failed(fmt.Sprintf("%s[%d]", at, i))
		}
		if err := e.CheckRanges(n, of.list); err != nil && well && c.OK(at) {
			c.Fail(at, err.Error(), "name fewer prefixes, or longer ones")
		}
	}
	if dns, domains, prefixes := path+".dns", path+".domains", path+".pref64"; c.OK(dns, domains, prefixes, path+".mtu", path+".advert_interval") {
		if err := e.CheckLink(); err != nil {
			at := domains
			without := e
			without.PREF64 = nil
			switch {
			case without.CheckLink() == nil:
				at = prefixes
			case len(a.Domains) == 0:
				at = dns
			}
			c.Fail(at, err.Error(), "leave some out, the last first")
		}
	}
}

// pool is a prefix that contexts have addresses of, or that is behind their terminals.
type pool struct {
	key, apn, device, vrf string
	prefix                netip.Prefix
}

// allPools are those of all access points.
func (s *Settings) allPools() (list []pool) {
	for i := range s.APNs {
		a := &s.APNs[i]
		for _, of := range []struct {
			key  string
			list []netip.Prefix
		}{{"pool4", a.Pool4}, {"pool6", a.Pool6}, {"static4", a.Static4}, {"static6", a.Static6}, {"routed", a.Routed}} {
			for j, p := range of.list {
				list = append(list, pool{fmt.Sprintf("apn[%d].%s[%d]", i, of.key, j), a.Name, s.device(a), a.VRF, p})
			}
		}
	}
	return list
}

// checkPools wants the addresses of one network apart, and none of the node's own among them.
func (s *Settings) checkPools(c *config.Checker) {
	all := s.allPools()
	for i, p := range all {
		if no := special.NotForwarded(p.prefix); no != nil {
			c.Fail(p.key, fmt.Sprintf("%s holds addresses of %s, %s, which no terminal can have", p.prefix, no.Prefix, no.Name), "choose a prefix of addresses that packets are forwarded from")
			continue
		}
		for _, a := range s.addresses() {
			if p.prefix.Contains(a) {
				c.Fail(p.key, fmt.Sprintf("%s holds %s, the node's own address", p.prefix, a), "choose a prefix that no network uses")
			}
		}
		for _, q := range s.Peers {
			// Who takes all is told above, and from a VRF no one comes to the node's sockets.
			if q.Bits() > 0 && p.vrf == "" && p.prefix.Overlaps(q) {
				c.Fail(p.key, fmt.Sprintf("terminals of %s could end contexts of others, since %s are peers", p.prefix, q), "keep the networks of terminals and of SGSNs apart")
				break
			}
		}
		for _, q := range all[:i] {
			if p.device == q.device && p.prefix.Overlaps(q.prefix) && !c.Failed(q.key) {
				c.Fail(p.key, fmt.Sprintf("%s overlaps %s of %s", p.prefix, q.prefix, q.apn), "choose prefixes apart, or give one access point a vrf or an interface of its own")
				break
			}
		}
	}
}

// claims are what the node has of this host alone.
func (s *Settings) claims() (claims []config.Claim) {
	interfaces := s.interfaces()
	for _, link := range interfaces {
		key := "interface"
		for i := range s.APNs {
			switch a := &s.APNs[i]; {
			case a.Interface == link:
				key = fmt.Sprintf("apn[%d].interface", i)
			case a.VRF != "" && s.device(a) == link:
				key = fmt.Sprintf("apn[%d].vrf", i)
			}
		}
		claims = append(claims, config.Device{Key: key, Name: link})
	}
	for _, a := range s.addresses() {
		key := "gsn_address4"
		if a.Is6() {
			key = "gsn_address6"
		}
		for n := range ggsn.Socket(ggsn.NumSockets) {
			if n.IPv6() == a.Is6() {
				claims = append(claims, config.Socket{Key: key, Protocol: "UDP", Fixed: true, At: netip.AddrPortFrom(a, n.Port())})
			}
		}
	}
	claims = append(claims, s.dynamicClaims()...)
	for _, p := range s.allPools() {
		claims = append(claims, config.Route{Key: p.key, Prefixes: []netip.Prefix{p.prefix}, VRF: p.vrf, Set: s.Route, Remedy: "give each node pools of its own, or set route = false"})
	}
	if s.Announce {
		claims = append(claims, config.Announced{Key: "announce", Prefixes: announced(s.allPools())})
	}
	return claims
}

// announced are the prefixes of which the routers around this host can be told. Those of a VRF
// are of another network than the sessions with these.
func announced(pools []pool) (list []netip.Prefix) {
	for _, p := range pools {
		if p.vrf == "" {
			list = append(list, p.prefix)
		}
	}
	return list
}

// checkAnnounce wants something to announce.
func (s *Settings) checkAnnounce(c *config.Checker) {
	if pools := s.allPools(); s.Announce && len(pools) > 0 && len(announced(pools)) == 0 {
		c.Fail("announce", "nothing would be announced, since all pools are in VRFs, and BGP is spoken outside of them", "set announce = false, and let a routing daemon of the VRF read its table, where the routes to the pools are")
	}
}
