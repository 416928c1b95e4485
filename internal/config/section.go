// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
)

// maxMTU is the largest IPv6 packet that fits into one UDP datagram over IPv4:
// 65535 without the headers of IPv4 (20) and UDP (8).
const maxMTU = 65535 - 20 - 8

// maxWorkers bounds the sockets and TUN queues of an instance.
const maxWorkers = 64

// maxPeers bounds the peer table of a relay, which takes its memory at once: 4 GiB.
const maxPeers = 1 << 26

// maxRandomPorts keeps the sockets of a client well below the usual limit of open
// files.
const maxRandomPorts = 512

// config builds the checked configuration; faults stand in c.errs afterwards.
// Its file is what the declared sections are read from.
func (c *checker) config(raw rawFile, file map[string]any) *Config {
	config := Default()
	c.singles(&config, file)
	config.Instances = c.declared(file)
	for i, one := range raw.Server {
		config.Servers = append(config.Servers, c.server(fmt.Sprintf("%s[%d]", RoleServer, i), one))
	}
	for i, one := range raw.Relay {
		config.Relays = append(config.Relays, c.relay(fmt.Sprintf("%s[%d]", RoleRelay, i), one))
	}
	for i, one := range raw.Client {
		config.Clients = append(config.Clients, c.client(fmt.Sprintf("%s[%d]", RoleClient, i), one))
	}
	for i, one := range raw.NAT64 {
		config.NAT64s = append(config.NAT64s, c.nat64(fmt.Sprintf("%s[%d]", RoleNAT64, i), one))
	}
	for i, one := range raw.SIIT {
		config.SIITs = append(config.SIITs, c.siit(fmt.Sprintf("%s[%d]", RoleSIIT, i), one))
	}
	c.announced(&config)
	config.share()
	c.conflicts(&config)
	return &config
}

func (c *checker) server(at string, raw rawServer) Server {
	s := DefaultServer()
	set(c, at, "name", raw.Name, &s.Name, instanceName)
	set(c, at, "address", raw.Address, &s.Address, address4)
	set(c, at, "secondary", raw.Secondary, &s.Secondary, optional(address4))
	set(c, at, "advertise", raw.Advertise, &s.Advertise, optional(address4))
	set(c, at, "advertise_secondary", raw.AdvertiseSecondary, &s.AdvertiseSecondary, optional(address4))
	set(c, at, "prefixes", raw.Prefixes, &s.Prefixes, filled("name at least one prefix, or leave the key out", listOf(servicePrefix)))
	set(c, at, "port", raw.Port, &s.Port, integer[uint16](1, 65535))
	set(c, at, "allow_private", raw.AllowPrivate, &s.AllowPrivate, listOf(privateRange))
	set(c, at, "rate_per_source", raw.RatePerSource, &s.RatePerSource, count(0))
	set(c, at, "rate_total", raw.RateTotal, &s.RateTotal, count(0))
	set(c, at, "burst", raw.Burst, &s.Burst, count(1))
	set(c, at, "mtu", raw.MTU, &s.MTU, integer[int](teredo.MTU, maxMTU))
	set(c, at, "workers", raw.Workers, &s.Workers, integer[int](0, maxWorkers))
	set(c, at, "announce", raw.Announce, &s.Announce, boolean)
	c.serverKeys(at, raw, &s)
	c.serverAddresses(at, &s)
	return s
}

// serverAddresses completes the advertised addresses and checks that clients can
// use them.
func (c *checker) serverAddresses(at string, s *Server) {
	if !s.Address.IsValid() {
		if !c.failed[at+".address"] {
			c.fail(at, "this server has no address", `add address = "192.0.2.1" with an IPv4 address of this host`)
		}
		return
	}
	if !s.Advertise.IsValid() && !c.failed[at+".advertise"] {
		s.Advertise = s.Address
		c.reachable(at+".address", s.Advertise, s.AllowPrivate,
			"set advertise to the public address in front of it, or open the range with allow_private in a closed network")
	} else {
		c.reachable(at+".advertise", s.Advertise, s.AllowPrivate,
			"write the public address, or open the range with allow_private in a closed network")
	}
	c.secondaryAddresses(at, s)
}

func (c *checker) secondaryAddresses(at string, s *Server) {
	if !s.Secondary.IsValid() {
		if s.AdvertiseSecondary.IsValid() && !c.failed[at+".secondary"] {
			c.fail(at+".advertise_secondary", "there is no secondary address to advertise", "set secondary too, or leave this out")
		}
		return
	}
	if s.Secondary == s.Address {
		c.fail(at+".secondary", "this is the primary address again", `write a second address of this host, or "" for single-address mode`)
		return
	}
	key := at + ".advertise_secondary"
	if !s.AdvertiseSecondary.IsValid() {
		s.AdvertiseSecondary = s.Secondary
		key = at + ".secondary"
	}
	c.reachable(key, s.AdvertiseSecondary, s.AllowPrivate,
		"set advertise_secondary to the public address in front of it, or open the range with allow_private in a closed network")
	if s.AdvertiseSecondary == s.Advertise {
		c.fail(key, "clients would see the same address twice", "advertise two different addresses")
	}
}

// reachable checks an address that clients must be able to send to (RFC 4380,
// section 5.2.4).
func (c *checker) reachable(path string, a netip.Addr, allow []netip.Prefix, remedy string) {
	global := teredo.GlobalCheck{Allow: allow}
	if a.IsValid() && !c.failed[path] && !global.OK(a) {
		c.fail(path, fmt.Sprintf("clients refuse %s, because it is not a global address", a), remedy)
	}
}

func (c *checker) relay(at string, raw rawRelay) Relay {
	r := DefaultRelay()
	set(c, at, "name", raw.Name, &r.Name, instanceName)
	set(c, at, "mode", raw.Mode, &r.Mode, oneOf(ModeRelay, ModeHost))
	set(c, at, "bind", raw.Bind, &r.Bind, bind4)
	set(c, at, "prefixes", raw.Prefixes, &r.Prefixes, filled("name at least one prefix, or leave the key out", listOf(servicePrefix)))
	set(c, at, "serve", raw.Serve, &r.Serve, filled("name at least one prefix, or leave the key out", listOf(prefix6)))
	set(c, at, "interface", raw.Interface, &r.Interface, interfaceName)
	set(c, at, "mtu", raw.MTU, &r.MTU, integer[int](teredo.MTU, maxMTU))
	set(c, at, "route", raw.Route, &r.Route, boolean)
	set(c, at, "address", raw.Address, &r.Address, optional(address6))
	set(c, at, "max_peers", raw.MaxPeers, &r.MaxPeers, integer[int](1, maxPeers))
	set(c, at, "peer_timeout", raw.PeerTimeout, &r.PeerTimeout, duration(time.Second, time.Hour))
	set(c, at, "queue_packets", raw.QueuePackets, &r.QueuePackets, count(1))
	set(c, at, "queue_bytes", raw.QueueBytes, &r.QueueBytes, count(1))
	set(c, at, "queue_total_bytes", raw.QueueTotalBytes, &r.QueueTotalBytes, count(1))
	set(c, at, "bubble_rate", raw.BubbleRate, &r.BubbleRate, count(0))
	set(c, at, "icmp_rate", raw.ICMPRate, &r.ICMPRate, count(0))
	set(c, at, "behind_nat", raw.BehindNAT, &r.BehindNAT, boolean)
	set(c, at, "echo_through_server", raw.EchoThroughServer, &r.EchoThroughServer, boolean)
	set(c, at, "carry_clients", raw.CarryClients, &r.CarryClients, boolean)
	set(c, at, "carry_rate", raw.CarryRate, &r.CarryRate, count(0))
	set(c, at, "carry_client_rate", raw.CarryClientRate, &r.CarryClientRate, count(0))
	set(c, at, "allow_private", raw.AllowPrivate, &r.AllowPrivate, listOf(privateRange))
	set(c, at, "workers", raw.Workers, &r.Workers, integer[int](0, maxWorkers))
	set(c, at, "announce", raw.Announce, &r.Announce, boolean)
	set(c, at, "keep_state", raw.KeepState, &r.KeepState, boolean)
	set(c, at, "state_file", raw.StateFile, &r.StateFile, optional(filePath))
	c.relayFastPath(at, raw, &r)
	c.queues(at, r.MTU, r.QueueBytes, r.QueueTotalBytes)
	return r
}

func (c *checker) client(at string, raw rawClient) Client {
	r := DefaultClient()
	set(c, at, "name", raw.Name, &r.Name, instanceName)
	set(c, at, "server", raw.Server, &r.Servers, filled("name at least one server", listOf(host)))
	set(c, at, "secondary", raw.Secondary, &r.Secondary, secondary)
	set(c, at, "port", raw.Port, &r.Port, integer[uint16](0, 65535))
	set(c, at, "bind", raw.Bind, &r.Bind, optional(address4))
	set(c, at, "interface", raw.Interface, &r.Interface, interfaceName)
	set(c, at, "prefixes", raw.Prefixes, &r.Prefixes, filled("name at least one prefix, or leave the key out", listOf(servicePrefix)))
	set(c, at, "refresh_interval", raw.RefreshInterval, &r.RefreshInterval, duration(time.Second, time.Hour))
	set(c, at, "interfaces", raw.Interfaces, &r.Interfaces, listOf(interfaceName))
	set(c, at, "probe_after", raw.ProbeAfter, &r.ProbeAfter, orNever(duration(100*time.Millisecond, time.Minute)))
	set(c, at, "on_change", raw.OnChange, &r.OnChange, command)
	set(c, at, "on_change_timeout", raw.OnChangeTimeout, &r.OnChangeTimeout, duration(100*time.Millisecond, time.Hour))
	set(c, at, "qualification_timeout", raw.QualificationTimeout, &r.QualificationTimeout, duration(100*time.Millisecond, time.Minute))
	set(c, at, "qualification_attempts", raw.QualificationAttempts, &r.QualificationAttempts, integer[int](1, 100))
	set(c, at, "refresh_search", raw.RefreshSearch, &r.RefreshSearch, boolean)
	set(c, at, "local_discovery", raw.LocalDiscovery, &r.LocalDiscovery, boolean)
	set(c, at, "fallback", raw.Fallback, &r.Fallback, optional(endpoint4))
	set(c, at, "unsolicited", raw.Unsolicited, &r.Unsolicited, oneOf(UnsolicitedAllow, UnsolicitedEstablished))
	set(c, at, "native", raw.Native, &r.Native, oneOf(NativeAside, NativeIgnore))
	set(c, at, "random_ports", raw.RandomPorts, &r.RandomPorts, integer[int](0, maxRandomPorts))
	set(c, at, "hairpin", raw.Hairpin, &r.Hairpin, boolean)
	set(c, at, "hairpin_allow", raw.HairpinAllow, &r.HairpinAllow, listOf(privateRange))
	set(c, at, "load_reduction", raw.LoadReduction, &r.LoadReduction, boolean)
	set(c, at, "opening_ttl", raw.OpeningTTL, &r.OpeningTTL, integer[uint8](0, 255))
	set(c, at, "route_metric", raw.RouteMetric, &r.RouteMetric, count(1))
	set(c, at, "max_peers", raw.MaxPeers, &r.MaxPeers, count(1))
	set(c, at, "queue_packets", raw.QueuePackets, &r.QueuePackets, count(1))
	set(c, at, "queue_bytes", raw.QueueBytes, &r.QueueBytes, count(1))
	set(c, at, "queue_total_bytes", raw.QueueTotalBytes, &r.QueueTotalBytes, count(1))
	set(c, at, "allow_private", raw.AllowPrivate, &r.AllowPrivate, listOf(privateRange))
	c.clientKey(at, raw, &r)
	set(c, at, "port_mapping", raw.PortMapping, &r.PortMapping, oneOf(PortMappingNone, PortMappingAuto, PortMappingUPnP, PortMappingNATPMP))
	set(c, at, "port_mapping_file", raw.PortMappingFile, &r.PortMappingFile, optional(filePath))
	set(c, at, "fast_path", raw.FastPath, &r.FastPath, oneOf(FastPathAuto, FastPathTC, FastPathOff))
	c.queues(at, teredo.MTU, r.QueueBytes, r.QueueTotalBytes)
	c.clientInterfaces(at, &r)
	if len(r.Servers) == 0 && !c.failed[at+".server"] {
		c.fail(at, "this client has no server", `add server = "192.0.2.1" with the address or name of a Teredo server`)
	}
	c.reachable(at+".fallback", r.Fallback.Addr(), r.AllowPrivate,
		"write the public address of the relay, or open the range with allow_private in a closed network")
	for i, server := range r.Servers {
		c.reachable(fmt.Sprintf("%s.server[%d]", at, i), server.Addr, r.AllowPrivate,
			"write the public address of a server, or open the range with allow_private in a closed network")
	}
	return r
}

// queues checks that a queue can hold a packet and the total a queue.
func (c *checker) queues(at string, mtu, each, total int) {
	if each < mtu && !c.failed[at+".queue_bytes"] && !c.failed[at+".mtu"] {
		c.fail(at+".queue_bytes", fmt.Sprintf("%d bytes cannot hold one full packet", each), fmt.Sprintf("write %d or more", mtu))
	}
	if total < each && !c.failed[at+".queue_total_bytes"] && !c.failed[at+".queue_bytes"] {
		c.fail(at+".queue_total_bytes", fmt.Sprintf("%d bytes in all are less than queue_bytes for one peer", total), fmt.Sprintf("write %d or more", each))
	}
}
