// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/gprs/pool"
)

// APN is an access point: a network behind this node, and how terminals get into it.
type APN struct {
	Name string
	// VRF is the number of the network, from 0: that of the device by which packets come
	// and go. Access points may share one.
	VRF uint8
	// Apart tells that the network is another one than that of the node's own packets, so that
	// its addresses may be those of SGSNs, too.
	Apart bool
	// EngineOnly has programs of a fast path carry none of its packets: they come and go by another device than
	// the one that programs know.
	EngineOnly bool
	// Types are the PDP types that contexts may have.
	Types Types

	// Pools4 and Pools6 are the addresses that contexts get; of IPv6 each context gets a /64.
	// Static4 and Static6 are those that terminals may ask for.
	Pools4, Pools6, Static4, Static6 []netip.Prefix
	// Delegate is the length of the prefixes that contexts have of Pools6, in whose first /64 their
	// links are and the rest of which DHCPv6 delegates; 0: contexts have the /64 of their link alone.
	Delegate int
	// LinkPrefixes is how many /64 the link of a context has of Pools6, each with advertisements of its own:
	// a power of 2; 0: one.
	LinkPrefixes int
	// Renumber has contexts whose prefix is of Pools6 no longer get another one, while the former lasts for
	// so long; 0: they keep theirs.
	Renumber time.Duration
	// DelegationTime is how long a delegated prefix lasts without being extended.
	DelegationTime time.Duration
	// Named are parts of Pools4 and Pools6 that contexts get only where [Grant] names them.
	Named []pool.Part
	// Routed are the prefixes, apart from the pools, of which [Grant] may have routes to what is behind terminals.
	Routed []netip.Prefix
	// Hold is how long an address is not given to another after its context ended.
	Hold time.Duration

	// Router4 and Router6 are the node's addresses in the network, the source of ICMP errors;
	// without one, none of its family are sent.
	Router4, Router6 netip.Addr
	// DNS4, DNS6, PCSCF4 and PCSCF6 are told to terminals that ask for them, and the name
	// servers to all that have IPv6.
	DNS4, DNS6, PCSCF4, PCSCF6 []netip.Addr
	// TellPCSCF and TellMTU have new sessions told of proxies and MTU that have not asked for them (TS 24.008
	// section 10.5.6.3).
	TellPCSCF, TellMTU bool
	// Domains are the search list. DHCP serves stateless DHCPv6 to terminals with IPv6.
	Domains []string
	DHCP    bool
	// PREF64 are the prefixes of NAT64s on the way, which terminals with IPv6 are told (RFC 8781).
	PREF64 []netip.Prefix
	// AdvertInterval is the longest time between two router advertisements that nobody asked
	// for; 0: link.DefaultInterval.
	AdvertInterval time.Duration
	// MTU is the largest packet for terminals and from them, told and enforced: 1280 to 65000.
	MTU int
	// MaxUp and MaxDown are the highest rates of a context, AMBRUp and AMBRDown those of a terminal's
	// contexts here without a guaranteed rate together, in kbit/s; 0: any, and nothing is enforced.
	MaxUp, MaxDown, AMBRUp, AMBRDown uint32
	// UpgradeQoS grants MaxUp and MaxDown, or those of the subscription, to contexts without guaranteed rates
	// also where less is asked for, if their SGSN can have that (TS 29.060 section 7.7.48).
	UpgradeQoS bool
	// Marks are the code points of packets, outside of G-PDUs, and with MarkInner inside, too. With
	// Uniform there is one code point instead, which is handed on in both directions (RFC 2983 section
	// 3.1): from inside to the outside of G-PDUs, and from there to the inside.
	Marks              Marks
	MarkInner, Uniform bool
	// ClearECN has no ECN field outside of G-PDUs, for SGSNs that do not bring its marks inside (the
	// compatibility mode of RFC 6040 section 4.3). Without it the field inside is copied.
	ClearECN bool

	// SequenceNumbers puts one into each G-PDU for a terminal.
	SequenceNumbers bool
	UserToUser      UserToUser
	// DirectTunnel lets user planes end at nodes that are not among the peers, such as RNCs.
	DirectTunnel bool
	// AnyOuterSource takes G-PDUs of a context from wherever they come, not only from the
	// node that has its user plane.
	AnyOuterSource bool
	// SessionLimit ends contexts after so much time, IdleLimit those without a packet of
	// the terminal's for so long; 0: no limit.
	SessionLimit, IdleLimit time.Duration
	// Authorize lets a terminal in that somebody else has granted it: see [Engine.Authorize].
	Authorize bool
	// Fallback lets terminals in where nobody says whether they may, as if nobody were to be asked.
	Fallback bool
	// Account has events of contexts tell of the [Account] of their session, which notes whether there were Servers
	// to be told when it began. Interim is how often ContextCounted tells of a session; 0: as [Grant] says.
	Account, Servers bool
	Interim          time.Duration
	// Report is what SGSNs are asked to report of where terminals are; InfoChangeStop: nothing.
	Report gtp.InfoChangeAction
	// Charging closes the charging records of contexts that last.
	Charging Charging
	// SilentICMP sends no ICMP errors but those that path MTU discovery needs.
	SilentICMP bool
}

// UserToUser is what becomes of packets from one terminal for another. Between access points
// they pass only by a way that both have.
type UserToUser uint8

// The ways.
const (
	UserDeny     UserToUser = iota // refused, and the terminal is told
	UserSilent                     // refused in silence
	UserAllow                      // handed to the other
	UserExternal                   // handed to the network behind the access point, which may send them back
)

// Types is a set of PDP types.
type Types uint8

// The types. A terminal that asks for two families gets one address of each only with
// TypeIPv4v6.
const (
	TypeIPv4 Types = 1 << iota
	TypeIPv6
	TypeIPv4v6
)

// has reports whether contexts may have IPv4, or IPv6, alone.
func (t Types) has(one Types) bool { return t&one != 0 }

// String returns the types as configurations name them.
func (t Types) String() string {
	var names []string
	for i, name := range []string{"ipv4", "ipv6", "ipv4v6"} {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// Sizes of packets for terminals.
const (
	minMTU     = 1280 // RFC 8200 section 5
	maxMTU     = 65000
	DefaultMTU = 1400 // leaves room for GTP in 1500 octets, outer IPv6 and extension headers included
)

// prefixBits is the length of the prefix that a context has (RFC 3314 section 2.3).
const prefixBits = 64

// nameKey is a name as [gtp.APN.AppendKey] writes it.
func nameKey(name string) string { return strings.ToLower(name) }

func (a *APN) key() string { return nameKey(a.Name) }

// ranges are those of its pools, in the order of [access.all].
func (a *APN) ranges() [4][]netip.Prefix {
	return [4][]netip.Prefix{a.Pools4, a.Pools6, a.Static4, a.Static6}
}

// pools are all prefixes that its terminals have addresses of, or that are behind them.
func (a *APN) pools() (all []netip.Prefix) {
	for _, list := range a.ranges() {
		all = append(all, list...)
	}
	return append(all, a.Routed...)
}

func (a *APN) check() error {
	if _, err := gtp.ParseAPN(a.Name); err != nil {
		return err
	}
	four, six := a.Types&(TypeIPv4|TypeIPv4v6) != 0, a.Types&(TypeIPv6|TypeIPv4v6) != 0
	switch {
	case !four && !six:
		return errors.New("it has no PDP type")
	case four && len(a.Pools4)+len(a.Static4) == 0:
		return errors.New("it has IPv4 and no pool of IPv4 addresses")
	case six && len(a.Pools6)+len(a.Static6) == 0:
		return errors.New("it has IPv6 and no pool of IPv6 prefixes")
	case a.MTU < minMTU || a.MTU > maxMTU:
		return fmt.Errorf("an MTU of %d is impossible: it is %d to %d", a.MTU, minMTU, maxMTU)
	case a.MarkInner && a.Uniform:
		return errors.New("packets cannot have the code point of their class and keep their own")
	case a.Hold < 0 || a.SessionLimit < 0 || a.IdleLimit < 0 || a.Interim < 0:
		return errors.New("a time is negative")
	}
	if err := a.checkDelegation(); err != nil {
		return err
	}
	if err := a.checkRouted(); err != nil {
		return err
	}
	if err := a.checkRenumber(); err != nil {
		return err
	}
	if err := a.checkLinkPrefixes(); err != nil {
		return err
	}
	if err := a.Charging.check(); err != nil {
		return err
	}
	if err := a.Marks.check(); err != nil {
		return err
	}
	if err := a.CheckLink(); err != nil {
		return err
	}
	return a.checkPools()
}

// CheckLink returns why terminals cannot be told what the settings of the link say.
func (a *APN) CheckLink() error {
	_, err := link.New(a.linkSettings([16]byte{}))
	return err
}

// checkPools wants pools that the engine can make, so that nothing stands in the way of a
// change of settings once it has begun.
func (a *APN) checkPools() error {
	for _, p := range append(append([]netip.Prefix(nil), a.Pools4...), a.Static4...) {
		if !p.Addr().Is4() || p != p.Masked() {
			return fmt.Errorf("%s is no IPv4 prefix", p)
		}
	}
	for _, p := range append(append([]netip.Prefix(nil), a.Pools6...), a.Static6...) {
		if !p.Addr().Is6() || p != p.Masked() || p.Bits() > prefixBits {
			return fmt.Errorf("%s is no IPv6 prefix that holds a /%d", p, prefixBits)
		}
	}
	for _, part := range a.Named {
		if !slices.ContainsFunc(slices.Concat(a.Pools4, a.Pools6), func(q netip.Prefix) bool { return q.Bits() <= part.Prefix.Bits() && q.Contains(part.Prefix.Addr()) }) {
			return fmt.Errorf("%s, named %s, is in no pool", part.Prefix, part.Name)
		}
	}
	for of, prefixes := range a.ranges() {
		if err := a.CheckRanges(of, prefixes); err != nil {
			return err
		}
	}
	return nil
}

// CheckRanges returns why prefixes of one family cannot be a pool of the access point: of its
// Pools4, Pools6, Static4 or Static6, counted from 0.
func (a *APN) CheckRanges(of int, prefixes []netip.Prefix) error {
	if len(prefixes) == 0 {
		return nil
	}
	return a.leaseSettings(of, prefixes).Check()
}
