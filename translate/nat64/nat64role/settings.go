// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/translate/gateway"
	"github.com/isthmus-net/isthmus/translate/keys"
	"github.com/isthmus-net/isthmus/translate/nat64"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// sizesOf are those of the state of a configuration.
func sizesOf(cfg *Settings) state.Sizes {
	return state.Sizes{
		Sessions: cfg.MaxSessions, Subscribers: cfg.MaxClients, Addresses: cfg.MaxAddresses,
		BlockWords: cfg.BlockSize / state.BlockPorts, SubscriberLength: cfg.ClientLength,
	}
}

// engineSettings turns a configuration into the engine's settings, on a host with the
// given addresses.
func engineSettings(cfg *Settings, at gateway.Own, hosts []netip.Addr) (nat64.Settings, error) {
	s := nat64.Defaults()
	if !at.V4.IsValid() {
		// An address of the pool is the translator's own where the host has none.
		at.V4 = cfg.Pool4[0].Prefix.Addr()
	}
	t, err := gateway.Settings(&cfg.Translation, at)
	if err != nil {
		return s, err
	}
	s.Translate = t
	s.RouterAsInner = cfg.ErrorSource == ErrorSourceInner
	s.Pool4 = poolRanges(cfg.Pool4, hosts)
	s.Clients = cfg.Clients
	if cfg.Deterministic > 0 {
		s.Deterministic = &nat64.Deterministic{Compression: cfg.Deterministic, Dynamic: cfg.DeterministicShares, Reserved: cfg.DeterministicReserved}
	}
	s.FilterTCP, s.FilterUDP, s.FilterICMP = filtering(cfg.FilteringTCP), filtering(cfg.FilteringUDP), filtering(cfg.FilteringICMP)
	s.DropExternalTCP, s.DropICMPInfo, s.DropUnmatchedTCP = cfg.DropExternalTCP, cfg.DropICMPInfo, cfg.DropUnmatchedTCP
	s.OutboundRefreshOnly = !cfg.InboundRefresh
	s.SessionEvents = cfg.SessionLog
	s.Timers = nat64.Timers{
		UDP: cfg.UDPTimeout, TCPEstablished: cfg.TCPEstablishedTimeout,
		TCPOpening: cfg.TCPOpeningTimeout, TCPTransitory: cfg.TCPTransitoryTimeout,
		IncomingSYN: cfg.IncomingSYNTimeout, ICMP: cfg.ICMPTimeout, Fragments: cfg.FragmentTimeout,
		Expected: cfg.ExpectedTimeout, Quarantine: cfg.PortQuarantine,
	}
	s.Limits.ClientSessions, s.Limits.ClientBlocks = cfg.ClientSessions, cfg.ClientBlocks
	s.Limits.StoredSYNs, s.Limits.StoredSYNsSource = cfg.StoredSYNs, cfg.StoredSYNsPerSource
	s.Limits.FragmentPackets, s.Limits.FragmentPacketsSource = cfg.FragmentPackets, cfg.FragmentPacketsPerSource
	s.Limits.FragmentMemory, s.Limits.FragmentMemorySource = cfg.FragmentMemory, cfg.FragmentMemoryPerSource
	s.Errors = nat64.Errors{
		Rate: cfg.ICMPRate, Burst: cfg.ICMPRate,
		SourceRate: cfg.ICMPRatePerSource, SourceBurst: 2 * cfg.ICMPRatePerSource,
	}
	for c := range nat64.ErrorClass(nat64.NumErrorClasses) {
		s.Errors.Off[c] = slices.Contains(cfg.ICMPErrorsOff, keys.ErrorClass(c.String()))
	}
	if cfg.FTP {
		s.DetourPrefix = algPrefix(cfg)
	}
	return s, s.Check()
}

func filtering(f Filtering) nat64.Filtering {
	if f == AddressDependent {
		return nat64.AddressDependent
	}
	return nat64.EndpointIndependent
}

// poolRanges turns the pool into the engine's, with the addresses of this host itself
// apart from others.
func poolRanges(pool []PoolRange, hosts []netip.Addr) (ranges []nat64.Range) {
	for _, r := range pool {
		for _, p := range splitAt(r.Prefix, hosts) {
			ranges = append(ranges, nat64.Range{
				Prefix: p, First: r.First, Last: r.Last, Transports: transportsOf(r.Transports),
				Own: p.Bits() == 32 && slices.Contains(hosts, p.Addr()),
			})
		}
	}
	return ranges
}

// splitAt cuts a prefix into pieces so that each of the addresses in it stands alone.
func splitAt(p netip.Prefix, apart []netip.Addr) []netip.Prefix {
	if p.Bits() == 32 || !slices.ContainsFunc(apart, p.Contains) {
		return []netip.Prefix{p}
	}
	low, high := gateway.Halves(p)
	return append(splitAt(low, apart), splitAt(high, apart)...)
}

func transportsOf(t Transports) (set nat64.Transports) {
	for one, bit := range transportBits {
		if t&one != 0 {
			set |= 1 << bit
		}
	}
	return set
}

var transportBits = map[Transports]state.Transport{TCP: state.TCP, UDP: state.UDP, ICMP: state.ICMP}

// staticOf turns a binding of the configuration into the engine's.
func staticOf(b StaticBinding) nat64.Static {
	return nat64.Static{Transport: transportBits[b.Transport], Inside: b.Inside, Outside: b.Outside}
}

// destinations are the destinations that lead to the device: pool6, and pool4 without
// the addresses of this host, which no route can lead elsewhere.
func destinations(cfg *Settings, hosts []netip.Addr) []netip.Prefix {
	return slices.DeleteFunc(cfg.routes(), func(p netip.Prefix) bool {
		return p.Bits() == 32 && slices.Contains(hosts, p.Addr())
	})
}

// ownInPool are the addresses of this host that the pool has.
func ownInPool(cfg *Settings, hosts []netip.Addr) (list []netip.Addr) {
	for _, a := range hosts {
		if slices.ContainsFunc(cfg.Pool4, func(r PoolRange) bool { return r.Prefix.Contains(a) }) {
			list = append(list, a)
		}
	}
	return list
}
