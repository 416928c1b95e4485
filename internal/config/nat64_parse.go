// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"
)

func (c *checker) nat64(at string, raw rawNAT64) NAT64 {
	n := DefaultNAT64()
	c.translation(at, raw.rawTranslation, &n.Translation, ErrorUnreachable, ErrorTooBig, ErrorHopLimit, ErrorParameter,
		ErrorProhibited, ErrorProtocol, ErrorAddress, ErrorFiltered, ErrorStoredSYN)
	if len(n.Pool6) == 0 && !c.failed[at+".pool6"] {
		c.fail(at+".pool6", "this list is empty", "name at least one prefix, or leave the key out")
	}
	set(c, at, "clients", raw.Clients, &n.Clients, filled("name the networks of your clients", listOf(prefix6)))
	set(c, at, "open", raw.Open, &n.Open, boolean)
	set(c, at, "allow_host", raw.AllowHost, &n.AllowHost, boolean)
	set(c, at, "pool4", raw.Pool4, &n.Pool4, filled("name at least one address", listOf(poolRange)))
	set(c, at, "static", raw.Static, &n.Static, listOf(staticBinding))
	c.nat64Filtering(at, raw, &n)
	c.nat64Times(at, raw, &n)
	c.nat64Limits(at, raw, &n)
	set(c, at, "block_log", raw.BlockLog, &n.BlockLog, boolean)
	set(c, at, "session_log", raw.SessionLog, &n.SessionLog, boolean)
	set(c, at, "ftp", raw.FTP, &n.FTP, boolean)
	set(c, at, "alg_prefix", raw.AlgPrefix, &n.AlgPrefix, optional(algPrefix))
	set(c, at, "announce_pref64", raw.AnnouncePREF64, &n.AnnouncePREF64, listOf(interfaceName))
	set(c, at, "keep_state", raw.KeepState, &n.KeepState, boolean)
	set(c, at, "state_file", raw.StateFile, &n.StateFile, optional(filePath))
	set(c, at, "fast_path", raw.FastPath, &n.FastPath, oneOf(FastPathAuto, FastPathXDP, FastPathTC, FastPathOff))
	set(c, at, "fast_path_devices", raw.FastPathDevices, &n.FastPathDevices, listOf(interfaceName))
	set(c, at, "fast_path_linger", raw.FastPathLinger, &n.FastPathLinger, duration(minLinger, maxLinger))
	c.devices(at, n.FastPathDevices, n.Interface)
	c.pref64Interfaces(at, &n)
	c.nat64Clients(at, &n)
	c.nat64Pools(at, &n)
	return n
}

func (c *checker) nat64Filtering(at string, raw rawNAT64, n *NAT64) {
	kind := oneOf(EndpointIndependent, AddressDependent)
	set(c, at, "filtering", raw.Filtering, &n.Filtering, kind)
	n.FilteringTCP, n.FilteringUDP, n.FilteringICMP = n.Filtering, n.Filtering, n.Filtering
	set(c, at, "filtering_tcp", raw.FilteringTCP, &n.FilteringTCP, kind)
	set(c, at, "filtering_udp", raw.FilteringUDP, &n.FilteringUDP, kind)
	set(c, at, "filtering_icmp", raw.FilteringICMP, &n.FilteringICMP, kind)
	set(c, at, "drop_external_tcp", raw.DropExternalTCP, &n.DropExternalTCP, boolean)
	set(c, at, "drop_icmp_info", raw.DropICMPInfo, &n.DropICMPInfo, boolean)
	set(c, at, "drop_unmatched_tcp", raw.DropUnmatchedTCP, &n.DropUnmatchedTCP, boolean)
	set(c, at, "inbound_refresh", raw.InboundRefresh, &n.InboundRefresh, boolean)
	set(c, at, "error_source", raw.ErrorSource, &n.ErrorSource, oneOf(ErrorSourceRouter, ErrorSourceInner))
}

func (c *checker) nat64Times(at string, raw rawNAT64, n *NAT64) {
	const day = 24 * time.Hour
	lifetime := duration(time.Second, 7*day)
	set(c, at, "udp_timeout", raw.UDPTimeout, &n.UDPTimeout, lifetime)
	set(c, at, "tcp_established_timeout", raw.TCPEstablishedTimeout, &n.TCPEstablishedTimeout, lifetime)
	set(c, at, "tcp_opening_timeout", raw.TCPOpeningTimeout, &n.TCPOpeningTimeout, lifetime)
	set(c, at, "tcp_transitory_timeout", raw.TCPTransitoryTimeout, &n.TCPTransitoryTimeout, lifetime)
	set(c, at, "incoming_syn_timeout", raw.IncomingSYNTimeout, &n.IncomingSYNTimeout, lifetime)
	set(c, at, "icmp_timeout", raw.ICMPTimeout, &n.ICMPTimeout, lifetime)
	set(c, at, "fragment_timeout", raw.FragmentTimeout, &n.FragmentTimeout, lifetime)
	set(c, at, "expected_timeout", raw.ExpectedTimeout, &n.ExpectedTimeout, lifetime)
	set(c, at, "port_quarantine", raw.PortQuarantine, &n.PortQuarantine, duration(0, day))
}

// Bounds of the table, those of package translate/nat64/state.
const (
	maxSessions     = 1 << 26
	maxClients      = 1 << 24
	maxAddresses    = 1 << 14
	maxClientBlocks = 16
	maxWaiting      = 1 << 20
	maxFTP          = 4096 // The translator numbers no more of them,
	maxFTPOfClient  = 256  // nor of one client.
	maxWaitingBytes = 1 << 30
)

func (c *checker) nat64Limits(at string, raw rawNAT64, n *NAT64) {
	set(c, at, "max_sessions", raw.MaxSessions, &n.MaxSessions, integer[int](1, maxSessions))
	set(c, at, "max_clients", raw.MaxClients, &n.MaxClients, integer[int](1, maxClients))
	set(c, at, "max_addresses", raw.MaxAddresses, &n.MaxAddresses, integer[int](1, maxAddresses))
	set(c, at, "client_length", raw.ClientLength, &n.ClientLength, integer[int](1, 128))
	set(c, at, "block_size", raw.BlockSize, &n.BlockSize, blockSize)
	set(c, at, "client_blocks", raw.ClientBlocks, &n.ClientBlocks, integer[int](1, maxClientBlocks))
	set(c, at, "client_sessions", raw.ClientSessions, &n.ClientSessions, count(0))
	set(c, at, "deterministic", raw.Deterministic, &n.Deterministic, integer[int](0, 64512))
	set(c, at, "deterministic_shares", raw.DeterministicShares, &n.DeterministicShares, integer[int](0, 64512))
	set(c, at, "deterministic_reserved", raw.DeterministicReserved, &n.DeterministicReserved, integer[int](1024, 65535))
	set(c, at, "stored_syns", raw.StoredSYNs, &n.StoredSYNs, integer[int](0, maxWaiting))
	set(c, at, "stored_syns_per_source", raw.StoredSYNsPerSource, &n.StoredSYNsPerSource, integer[int](0, maxWaiting))
	set(c, at, "fragment_packets", raw.FragmentPackets, &n.FragmentPackets, integer[int](0, maxWaiting))
	set(c, at, "fragment_packets_per_source", raw.FragmentPacketsPerSource, &n.FragmentPacketsPerSource, integer[int](0, maxWaiting))
	set(c, at, "fragment_memory", raw.FragmentMemory, &n.FragmentMemory, integer[int](0, maxWaitingBytes))
	set(c, at, "fragment_memory_per_source", raw.FragmentMemoryPerSource, &n.FragmentMemoryPerSource, integer[int](0, maxWaitingBytes))
	set(c, at, "ftp_connections", raw.FTPConnections, &n.FTPConnections, integer[int](1, maxFTP))
	set(c, at, "ftp_connections_per_client", raw.FTPConnectionsPerClient, &n.FTPConnectionsPerClient, integer[int](1, maxFTPOfClient))
	set(c, at, "icmp_rate_per_source", raw.ICMPRatePerSource, &n.ICMPRatePerSource, count(0))
}

// nat64Clients wants clients named, and open use spelled out.
func (c *checker) nat64Clients(at string, n *NAT64) {
	path := at + ".clients"
	switch {
	case c.failed[path]:
	case len(n.Clients) == 0:
		c.fail(at, "nobody may use this NAT64, because it has no clients", `add clients = ["2001:db8:1::/48"] with the networks of your clients`)
	case !n.Open:
		for i, p := range n.Clients {
			if p.Bits() == 0 {
				c.fail(fmt.Sprintf("%s[%d]", path, i), "everybody in the IPv6 Internet could send in the name of your IPv4 addresses",
					"name the networks of your clients, or spell it out with open = true")
			}
		}
	}
}

// nat64Pools wants an IPv4 pool that is apart from others and fits the table.
func (c *checker) nat64Pools(at string, n *NAT64) {
	path := at + ".pool4"
	if c.failed[path] {
		return
	}
	if len(n.Pool4) == 0 {
		c.fail(at, "this NAT64 has no IPv4 address", `add pool4 = ["192.0.2.10"] with an address that is routed to this host, or one of its own and a range of ports`)
		return
	}
	addresses := 0
	for i, r := range n.Pool4 {
		one := fmt.Sprintf("%s[%d]", path, i)
		known := false
		for _, other := range n.Pool4[:i] {
			if r.Overlaps(other) {
				c.fail(one, fmt.Sprintf("%s overlaps %s", r, other), "keep one of the two, or choose ports apart")
				return
			}
			known = known || other.Prefix == r.Prefix
		}
		if !known && r.Prefix.Bits() >= 16 {
			addresses += 1 << (32 - r.Prefix.Bits())
		}
	}
	if addresses > n.MaxAddresses && !c.failed[at+".max_addresses"] {
		c.fail(path, fmt.Sprintf("the pool has %d addresses, and max_addresses is %d", addresses, n.MaxAddresses), fmt.Sprintf("set max_addresses = %d", addresses))
	}
	c.nat64Statics(at, n)
}

func (c *checker) nat64Statics(at string, n *NAT64) {
	for i, s := range n.Static {
		one := fmt.Sprintf("%s.static[%d]", at, i)
		switch {
		case !slices.ContainsFunc(n.Pool4, func(r PoolRange) bool { return r.Prefix.Contains(s.Outside.Addr()) }):
			c.fail(one, fmt.Sprintf("%s is not in pool4", s.Outside.Addr()), "choose an address of the pool")
		case !slices.ContainsFunc(n.Pool4, func(r PoolRange) bool { return r.has(s) }):
			c.fail(one, fmt.Sprintf("port %d of %s is not in pool4 for %s", s.Outside.Port(), s.Outside.Addr(), s.Transport),
				fmt.Sprintf(`choose a port of the pool, or add "%s %s %d" to pool4`, s.Outside.Addr(), s.Transport, s.Outside.Port()))
		}
		if !c.failed[at+".clients"] && len(n.Clients) > 0 && !slices.ContainsFunc(n.Clients, func(p netip.Prefix) bool { return p.Contains(s.Inside.Addr()) }) {
			c.fail(one, fmt.Sprintf("%s is in no network of clients", s.Inside.Addr()), "add its network to clients, or bind a host that is in one")
		}
		for _, other := range n.Static[:i] {
			if s.Transport == other.Transport && (s.Inside == other.Inside || s.Outside == other.Outside) {
				c.fail(one, fmt.Sprintf("%s and %s share an end", s, other), "bind each end once")
			}
		}
	}
}

// pref64Interfaces refuses interfaces that pool6 cannot be announced on.
func (c *checker) pref64Interfaces(at string, n *NAT64) {
	if c.failed[at+".announce_pref64"] {
		return
	}
	for i, name := range n.AnnouncePREF64 {
		path := fmt.Sprintf("%s.announce_pref64[%d]", at, i)
		if slices.Contains(n.AnnouncePREF64[:i], name) {
			c.fail(path, fmt.Sprintf("%s is listed twice", name), "name each interface once")
		}
		if name == n.Interface {
			c.fail(path, name+" is the TUN device of this instance", "name interfaces that have clients behind them")
		}
	}
}

// devices checks the list of a fast path's devices.
func (c *checker) devices(at string, list []string, own string) {
	if c.failed[at+".fast_path_devices"] {
		return
	}
	for i, name := range list {
		path := fmt.Sprintf("%s.fast_path_devices[%d]", at, i)
		if slices.Contains(list[:i], name) {
			c.fail(path, fmt.Sprintf("%s is listed twice", name), "name each device once")
		}
		if name == own {
			c.fail(path, name+" is the TUN device of this instance", "name devices that have IPv4 or IPv6 networks behind them")
		}
	}
}

func blockSize(raw any) (int, *fault) {
	n, f := integer[int](64, 65536)(raw)
	if f == nil && bits.OnesCount(uint(n)) != 1 {
		return n, wrong("write 64, 128, 256, 512, 1024 or a larger power of two", "%d is not a power of two", n)
	}
	return n, f
}

// algPrefix parses a private /64 (RFC 4193).
var algPrefix = text("fd00:6384::/64", func(s string) (netip.Prefix, *fault) {
	p, f := prefix(s, "fd00:6384::/64")
	if f == nil && (p.Bits() != 64 || !p.Addr().IsPrivate()) {
		return p, wrong("write one like fd00:6384::/64", "%s is not a /64 of private IPv6 addresses", p)
	}
	return p, f
})
