// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"crypto/sha256"
	"net/netip"
	"os"
	"slices"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
)

// own are the addresses of this host that ICMP errors come from; not valid: there is none.
type own struct{ v4, v6 netip.Addr }

// sources are these, where the configuration may name others.
func (s *Settings) sources(at own) own {
	if s.Address4.IsValid() {
		at.v4 = s.Address4
	}
	if s.Address6.IsValid() {
		at.v6 = s.Address6
	}
	return at
}

// engineSettings turns a configuration into the engine's settings. at are the addresses of this
// host by VRF.
func engineSettings(s *Settings, who *ggsn.Subscribers, at map[string]own, counter uint8) (ggsn.Settings, error) {
	e := ggsn.Defaults()
	e.Address4, e.Address6, e.Peers, e.ReversedTID = s.GSNAddress4, s.GSNAddress6, s.Peers, s.ReversedTID
	e.T3Response, e.N3Requests, e.EchoInterval, e.PathHold = s.T3Response, s.N3Requests, s.EchoInterval, s.PathHold
	e.RestartCounter, e.Default, e.UUID = counter, s.DefaultAPN, uuid(s.Name)
	e.Limits = ggsn.Limits{
		Contexts: s.MaxContexts, Waiting: s.MaxAuthorizing, ContextsPerPeer: s.ContextsPerPeer, Peers: s.MaxPeers,
		Requests: s.RequestRate, ErrorRate: s.ErrorRate, ICMPRate: s.ICMPRate,
	}
	devices := s.interfaces()
	for i := range s.APNs {
		a := s.APNs[i].engine(uint8(slices.Index(devices, s.device(&s.APNs[i]))))
		a.Apart, a.EngineOnly = s.APNs[i].VRF != "", s.device(&s.APNs[i]) != s.sharedDevice()
		from := s.sources(at[s.APNs[i].VRF])
		a.Router4, a.Router6 = from.v4, from.v6
		e.APNs = append(e.APNs, a)
	}
	e.Subscribers, e.Records = who, s.ChargingFile != ""
	return e, e.Check()
}

// fits returns why a configuration cannot be, or subscribers not have what is theirs at its access points.
func fits(s *Settings, who *ggsn.Subscribers) error {
	e, err := engineSettings(s, who, nil, 0)
	if err != nil {
		return err
	}
	return e.CheckSubscribers()
}

// engine turns an access point into the engine's, with the number of its network.
func (a *APN) engine(vrf uint8) ggsn.APN {
	e := ggsn.APN{
		Name: a.Name, VRF: vrf, Types: a.types(),
		Pools4: a.Pool4, Pools6: a.Pool6, Static4: a.Static4, Static6: a.Static6, Hold: a.Hold,
		Named: a.named(), Routed: a.Routed, LinkPrefixes: a.LinkPrefixes, Renumber: a.Renumber, Delegate: a.Delegate, DelegationTime: a.DelegationTime,
		Domains: a.Domains, PREF64: a.PREF64, DHCP: a.DHCP, AdvertInterval: a.AdvertInterval, MTU: a.MTU,
		MaxUp: uint32(a.MaxUp), MaxDown: uint32(a.MaxDown), AMBRUp: uint32(a.AMBRUp), AMBRDown: uint32(a.AMBRDown),
		UpgradeQoS: a.UpgradeQoS, Marks: a.marks(), MarkInner: a.MarkInner, Uniform: a.DSCPModel == Uniform, ClearECN: a.ECN == ECNCompatibility,
		SequenceNumbers: a.SequenceNumbers, UserToUser: ueToUE[a.UEToUE],
		DirectTunnel: a.DirectTunnel, AnyOuterSource: !a.CheckOuter, SilentICMP: !a.ICMPErrors, Authorize: a.Authenticate == ByRADIUS, Fallback: a.RADIUSFallback == FallbackLocal,
		Account: a.Accounting != ToNobody, Servers: a.Accounting == ToRADIUS, Interim: a.AccountingInterval,
		SessionLimit: a.SessionLimit, IdleLimit: a.IdleLimit,
		Report:   reportActions[a.ReportLocation],
		Charging: ggsn.Charging{Volume: uint64(a.ChargingVolume), Time: a.ChargingTime, Changes: a.ChargingChanges, SGSNs: a.ChargingSGSNs, Tariffs: a.TariffTimes},
	}
	e.DNS4, e.DNS6 = families(a.DNS)
	e.PCSCF4, e.PCSCF6 = families(a.PCSCF)
	e.TellPCSCF, e.TellMTU = slices.Contains(a.PCOUnasked, TellPCSCF), slices.Contains(a.PCOUnasked, TellMTU)
	return e
}

// families parts addresses.
func families(list []netip.Addr) (four, six []netip.Addr) {
	for _, a := range list {
		if a.Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	return four, six
}

// uuid is what terminals know the node's DHCPv6 by, the same after a restart (RFC 6355).
func uuid(name string) (id [16]byte) {
	machine, _ := os.ReadFile("/etc/machine-id") // without one, nodes of a name share it
	sum := sha256.Sum256(append(machine, name...))
	copy(id[:], sum[:])
	return id
}

// maxNetworks is how many devices a node may have.
const maxNetworks = 256
