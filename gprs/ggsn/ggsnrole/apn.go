// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/link"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// APN is one [[ggsn.apn]] section.
type APN struct {
	Name                             string
	Types                            []PDPType // empty: those that the pools have addresses for
	Pool4, Pool6, Static4, Static6   []netip.Prefix
	Named                            []NamedPool
	Routed                           []netip.Prefix
	LinkPrefixes                     int
	Renumber                         time.Duration // 0: contexts keep their prefixes
	Delegate                         int           // bits; 0: nothing is delegated
	DelegationTime                   time.Duration
	PoolAlarm                        int // percent; 0: none
	Hold                             time.Duration
	DNS, PCSCF                       []netip.Addr
	PCOUnasked                       []Option
	Domains                          []string
	PREF64                           []netip.Prefix
	DHCP                             bool
	AdvertInterval                   time.Duration
	MTU                              int
	MaxUp, MaxDown, AMBRUp, AMBRDown int // kbit/s
	UpgradeQoS                       bool
	DSCP                             []Mark
	DSCPModel                        DSCPModel
	ECN                              ECN
	MarkInner                        bool
	SequenceNumbers                  bool
	UEToUE                           UEToUE
	DirectTunnel, CheckOuter         bool
	ICMPErrors                       bool
	SessionLimit, IdleLimit          time.Duration
	Authenticate                     Authenticate
	RADIUSFallback                   Fallback
	RADIUSUser                       UserName
	Accounting                       AccountTo
	AccountingInterval               time.Duration // 0: as the server says
	ReportLocation                   Report
	ChargingVolume                   int           // octets; 0: any
	ChargingTime                     time.Duration // 0: as long as the context
	ChargingChanges, ChargingSGSNs   int
	TariffTimes                      []time.Duration // since midnight
	Interface, VRF                   string          // empty: those of the section; see [Settings.device]
}

// DSCPModel is where the DSCP of G-PDUs comes from, and where it goes.
type DSCPModel string

// The models.
const (
	Pipe    DSCPModel = "pipe"
	Uniform DSCPModel = "uniform"
)

// ECN is the mode of tunnels for explicit congestion notification, towards SGSNs.
type ECN string

// The modes.
const (
	ECNNormal        ECN = "normal"
	ECNCompatibility ECN = "compatibility"
)

// PDPType is what a context may be of.
type PDPType string

// The types.
const (
	IPv4   PDPType = "ipv4"
	IPv6   PDPType = "ipv6"
	IPv4v6 PDPType = "ipv4v6"
)

var typeBits = map[PDPType]ggsn.Types{IPv4: ggsn.TypeIPv4, IPv6: ggsn.TypeIPv6, IPv4v6: ggsn.TypeIPv4v6}

// Option is what terminals may be told unasked.
type Option string

// The options.
const (
	TellPCSCF Option = "pcscf"
	TellMTU   Option = "mtu"
)

// UEToUE is what becomes of packets from one terminal for another.
type UEToUE string

// The ways.
const (
	Deny     UEToUE = "deny"
	Silent   UEToUE = "silent"
	Allow    UEToUE = "allow"
	External UEToUE = "external"
)

var ueToUE = map[UEToUE]ggsn.UserToUser{Deny: ggsn.UserDeny, Silent: ggsn.UserSilent, Allow: ggsn.UserAllow, External: ggsn.UserExternal}

// Report is what SGSNs are asked to report.
type Report string

// The reports.
const (
	ReportNothing Report = "none"
	ReportCell    Report = "cell"
	ReportArea    Report = "area"
)

var reportActions = map[Report]gtp.InfoChangeAction{ReportNothing: gtp.InfoChangeStop, ReportCell: gtp.InfoChangeCell, ReportArea: gtp.InfoChangeRAI}

// Bounds of what terminals are told.
const (
	minMTU  = 1280
	maxMTU  = 65000
	maxRate = 10_000_000 // TS 24.008 section 10.5.6.5
)

func (a *APN) keys() []key.Key {
	const week = 7 * 24 * time.Hour
	addresses := key.List(key.Host)
	return []key.Key{
		key.Of("name", &a.Name, key.MustSet("internet"), apnName, key.Identity, "Name that terminals ask for; capitals do not matter."),
		key.Of("types", &a.Types, []string{}, key.List(key.OneOf(IPv4, IPv6, IPv4v6)), key.Live,
			`PDP types: "ipv4", "ipv6" and "ipv4v6", both at once. Empty: those that there are pools for.`),
		key.Of("pool4", &a.Pool4, key.Example([]string{"10.45.0.0/16"}), key.List(prefix4), key.Live,
			"IPv4 addresses that contexts get in turn. Where others outside must be reached, translate them (docs/ggsn.md)."),
		key.Of("pool6", &a.Pool6, key.Example([]string{"2001:db8:6000::/40"}), key.List(prefix64), key.Live,
			"IPv6 prefixes of which each context gets a /64. RFC 3314, section 2.3."),
		key.Of("static4", &a.Static4, []string{}, key.List(prefix4), key.Live, "IPv4 addresses that terminals may ask for."),
		key.Of("static6", &a.Static6, []string{}, key.List(prefix64), key.Live, "The same of IPv6, each with its /64."),
		key.Of("named_pools", &a.Named, key.Example([]string{"gold 10.45.8.0/21", "gold 2001:db8:6008::/46"}), key.List(namedPool), key.Live,
			"Parts of pool4 and pool6 with names: only terminals for which a RADIUS server says so get addresses of them, by Framed-Pool and Framed-IPv6-Pool. RFC 2869, section 5.18; RFC 3162, section 2.6."),
		key.Of("routed", &a.Routed, key.Example([]string{"172.20.0.0/16", "2001:db8:9000::/40"}), key.List(routedPrefix), key.Live,
			"Prefixes of either family, apart from the pools, of which RADIUS servers give networks behind terminals: Framed-Route, Framed-IPv6-Route, and Delegated-IPv6-Prefix for DHCPv6. RFC 2865, section 5.22; RFC 3162, section 2.5; RFC 4818."),
		key.Of("link_prefixes", &a.LinkPrefixes, 1, linkPrefixes, key.Restart,
			"How many /64 of pool6 a terminal has on its link, 1, 2, 4, 8 or 16, each told by advertisements of its own: a host may use several networks at once. Telephones by TS 23.060 may take the first alone."),
		key.Of("renumber", &a.Renumber, "0s", orZero(key.Duration(ggsn.MinRenumber, 4*week)), key.Live,
			`What becomes of contexts whose prefix is of a pool6 that was taken away: they get one of those that there are now, within five minutes, and the former lasts for so long beside it, deprecated, 2 h at least. "0s": they keep theirs until they end. RFC 4192; RFC 4862, section 5.5.3.`),
		key.Of("delegate", &a.Delegate, 0, orNone(key.Integer[int](32, 63)), key.Restart,
			"Length of the prefix of pool6 that each context has for routers behind its terminal, such as 56: the first /64 is that of the link, the rest DHCPv6 delegates. 0: a /64 alone. RFC 6459, section 5.3; RFC 6603."),
		key.Of("delegation_time", &a.DelegationTime, "24h", key.Duration(time.Minute, 365*24*time.Hour), key.Live,
			"How long a delegated prefix lasts; routers extend it after half of this."),
		key.Of("pool_alarm", &a.PoolAlarm, 90, key.Integer[int](0, 100), key.Live,
			"Alarm when so many percent of the addresses of a family are taken or rest: in the log, the status and the metrics. 0: none."),
		key.Of("hold", &a.Hold, "2m", key.Duration(0, week), key.Live, "How long an address rests before another context gets it."),
		key.Of("dns", &a.DNS, []string{}, addresses, key.Live, "Name servers that terminals are told, of either family."),
		key.Of("pcscf", &a.PCSCF, []string{}, addresses, key.Live, "SIP proxies (P-CSCF) that terminals are told, of either family."),
		key.Of("pco_unasked", &a.PCOUnasked, []string{}, key.List(key.OneOf(TellPCSCF, TellMTU)), key.Live,
			`What new contexts are told in protocol configuration options though they have not asked for it: "pcscf", and "mtu" of IPv4.`),
		key.Of("domains", &a.Domains, []string{}, key.List(domain), key.Live, "Search list that terminals with IPv6 are told. RFC 8106."),
		key.Of("pref64", &a.PREF64, []string{}, key.List(keys.Prefix), key.Live,
			"Prefixes of the NAT64s on the way, which terminals with IPv6 are told, and so CLATs on them. RFC 8781."),
		key.Of("dhcp", &a.DHCP, true, key.Bool, key.Live, "Tell terminals name servers by stateless DHCPv6, too. RFC 8415, section 6.1."),
		key.Of("advert_interval", &a.AdvertInterval, "10m", key.Duration(link.MinInterval, link.MaxInterval), key.Live,
			"The longest time between two router advertisements to a terminal. RFC 4861, section 6.2.1; RFC 8319."),
		key.Of("mtu", &a.MTU, ggsn.DefaultMTU, key.Integer[int](minMTU, maxMTU), key.Live,
			"Largest packet for terminals, in bytes: told to them, and kept by errors and by the MSS of TCP."),
		key.Of("max_up", &a.MaxUp, 0, key.Integer[int](0, maxRate), key.Live,
			"The highest rate from a terminal by a context, in kbit/s: granted, and enforced by drops (over_rate), as is what the SGSN asked for below it. 0: any, and nothing is enforced."),
		key.Of("max_down", &a.MaxDown, 0, key.Integer[int](0, maxRate), key.Live, "The same to a terminal."),
		key.Of("ambr_up", &a.AMBRUp, 0, key.Integer[int](0, maxRate), key.Live,
			"The highest rate from a terminal by all its contexts here that have no guaranteed rate, in kbit/s. 0: any. TS 29.060, section 7.7.98."),
		key.Of("ambr_down", &a.AMBRDown, 0, key.Integer[int](0, maxRate), key.Live, "The same to a terminal."),
		key.Of("upgrade_qos", &a.UpgradeQoS, false, key.Bool, key.Live,
			"Grant max_up and max_down, or those of the subscriber, also where an SGSN asks for less, if it says that it can have more; not to conversational and streaming traffic. TS 29.060, section 7.7.48."),
		key.Of("dscp", &a.DSCP, []string{}, key.List(markOf), key.Live,
			`DSCP of G-PDUs by traffic class, other than usual: ["streaming af31", "background 8"]. Usual are conversational ef, streaming af41, interactive1 af31, interactive2 af21, interactive3 af11, background 0.`),
		key.Of("mark_inner", &a.MarkInner, false, key.Bool, key.Live, "Give the packets inside the same DSCP, in both directions. Otherwise theirs stays."),
		key.Of("dscp_model", &a.DSCPModel, string(Pipe), key.OneOf(Pipe, Uniform), key.Live,
			`"pipe": G-PDUs have the DSCP of their class, by dscp. "uniform": that of the packet inside, and packets of terminals get that of their G-PDU. RFC 2983, section 3.1.`),
		key.Of("ecn", &a.ECN, string(ECNNormal), key.OneOf(ECNNormal, ECNCompatibility), key.Live,
			`ECN field of G-PDUs: "normal" copies that of the packet inside; "compatibility" clears it, for SGSNs that do not bring marks of their network to terminals. RFC 6040, section 4.`),
		key.Of("sequence_numbers", &a.SequenceNumbers, false, key.Bool, key.Live, "Number the G-PDUs for each terminal."),
		key.Of("ue_to_ue", &a.UEToUE, string(Deny), key.OneOf(Deny, Silent, Allow, External), key.Live,
			`Packets from one terminal for another: "deny" refuses them with an ICMP error, "silent" without one, "allow" carries them, "external" leaves them to the network behind the access point. Link-local ones never pass.`),
		key.Of("direct_tunnel", &a.DirectTunnel, false, key.Bool, key.Live, "Let the user plane end at nodes that are not among the peers, such as RNCs."),
		key.Of("check_outer", &a.CheckOuter, true, key.Bool, key.Live, "Take packets of a context from the node alone that has its user plane."),
		key.Of("icmp_errors", &a.ICMPErrors, true, key.Bool, key.Live, "Send ICMP errors other than those of path MTU discovery, which are always sent."),
		key.Of("session_limit", &a.SessionLimit, "0s", orZero(key.Duration(time.Second, 365*24*time.Hour)), key.Live, `How long contexts last at most; "0s" is no limit.`),
		key.Of("idle_limit", &a.IdleLimit, "0s", orZero(key.Duration(time.Second, week)), key.Live, "How long they last without a packet of the terminal; the same."),
		key.Of("authenticate", &a.Authenticate, string(ByNobody), key.OneOf(ByNobody, ByRADIUS), key.Live,
			`Who says which terminals may come in: "radius" asks the servers of [[ggsn.radius]]; "none" lets all in that the SGSN does. A terminal that they refuse gets cause 209.`),
		key.Of("radius_fallback", &a.RADIUSFallback, string(FallbackReject), key.OneOf(FallbackReject, FallbackLocal), key.Live,
			`What becomes of a terminal for which no server answers in time: "reject" refuses it with cause 204; "local" lets it in as "none" does, whatever its password.`),
		key.Of("radius_user", &a.RADIUSUser, string(UserOfTerminal), key.OneOf(UserOfTerminal, UserOfMSISDN, UserOfIMSI), key.Live,
			`What they are called there: "terminal" is the name that they give, with their password, and if they give none their MSISDN, or IMSI; "msisdn" and "imsi" are always these, and the password is the same.`),
		key.Of("accounting", &a.Accounting, string(ToNobody), key.OneOf(ToNobody, ToRADIUS, ToFile), key.Live,
			`Who is told of contexts, what they carry and why they end: "radius" tells the servers of [[ggsn.radius]] that are for accounting, and charging_file, "file" that alone, "none" nobody. Sessions that there are stay as they began.`),
		key.Of("accounting_interval", &a.AccountingInterval, "0s", orZero(key.Duration(time.Minute, 24*time.Hour)), key.Live,
			`How often they are told of a context that lasts; "0s" as the server says that lets the terminal in. RFC 2869, section 5.16.`),
		key.Of("report_location", &a.ReportLocation, string(ReportNothing), key.OneOf(ReportNothing, ReportCell, ReportArea), key.Live,
			`What SGSNs that can are asked to report of where terminals are, for accounts and charging records: each "cell", or service area, each routeing "area", or "none". TS 29.060, section 7.7.80.`),
		key.Of("charging_volume", &a.ChargingVolume, 1<<30, orNone(key.Integer[int](1000, 1<<50)), key.Live,
			"Octets of both directions with which the charging record of a context is closed, and the next one begun. 0: any. TS 32.251, section 5.2.3.4."),
		key.Of("charging_time", &a.ChargingTime, "24h", orZero(key.Duration(time.Minute, 30*24*time.Hour)), key.Live,
			`The same by time; "0s": none. A crash takes what is in the records that are open.`),
		key.Of("charging_changes", &a.ChargingChanges, ggsn.DefaultChanges, key.Integer[int](1, ggsn.MaxChanges), key.Live,
			"The same by changes of profile, SGSN, radio access, cell, time zone and tariff, each of which a record lists with what was carried until then. It bounds what a context needs."),
		key.Of("charging_sgsns", &a.ChargingSGSNs, 5, key.Integer[int](1, ggsn.MaxChanges), key.Live,
			"SGSNs that a record lists; the next one begins the next record."),
		key.Of("tariff_times", &a.TariffTimes, key.Example([]string{"06:00", "20:00"}), key.List(timeOfDay), key.Live,
			"Times of the day, by the clock of this host, at which records list what was carried until then."),
		key.Of("interface", &a.Interface, "", key.Optional(key.Interface), key.Restart,
			"TUN device to the network of this access point, which several may share. Empty: that of the section, or of the vrf."),
		key.Of("vrf", &a.VRF, "", key.Optional(key.Interface), key.Restart,
			"VRF of this host (ip link add NAME type vrf table N) whose routes lead to and from the terminals: addresses may be those of other networks. All access points of one share a TUN device, named after the section's and the VRF. Empty: none."),
	}
}

// pools are all addresses that contexts may have.
func (a *APN) pools() []netip.Prefix { return slices.Concat(a.Pool4, a.Pool6, a.Static4, a.Static6) }

// routedPrefix parses one of which networks behind terminals are.
var routedPrefix = key.Text("172.20.0.0/16", func(s string) (netip.Prefix, *key.Fault) {
	p, f := key.PrefixLike(s, "172.20.0.0/16 or 2001:db8:9000::/40")
	if f == nil && p.Addr().Is6() && p.Bits() > 64 {
		f = key.Wrong(fmt.Sprintf("write %s, or a shorter prefix", netip.PrefixFrom(p.Addr(), 64).Masked()), "%s is no network that can be behind a terminal", p)
	}
	return p, f
})

// types are the PDP types that contexts may have.
func (a *APN) types() (set ggsn.Types) {
	for _, t := range a.Types {
		set |= typeBits[t]
	}
	if set != 0 {
		return set
	}
	four, six := len(a.Pool4)+len(a.Static4) > 0, len(a.Pool6)+len(a.Static6) > 0
	if four {
		set |= ggsn.TypeIPv4
	}
	if six {
		set |= ggsn.TypeIPv6
	}
	if four && six {
		set |= ggsn.TypeIPv4v6
	}
	return set
}

// linkPrefixes parses how many prefixes a link has.
func linkPrefixes(raw any) (int, *key.Fault) {
	n, f := key.Integer[int](1, 16)(raw)
	if f == nil && n&(n-1) != 0 {
		f = key.Wrong("write 1, 2, 4, 8 or 16", "%d is no power of 2", n)
	}
	return n, f
}

// orNone lets 0 stand beside what a parser takes.
func orNone(in key.Parser[int]) key.Parser[int] {
	return func(raw any) (int, *key.Fault) {
		if n, ok := raw.(int64); ok && n == 0 {
			return 0, nil
		}
		return in(raw)
	}
}

// timeOfDay parses one, as a time since midnight.
var timeOfDay = key.Text("20:00", func(s string) (time.Duration, *key.Fault) {
	t, err := time.Parse("15:04", s)
	if err != nil || len(s) != len("15:04") {
		return 0, key.Wrong("write one like 20:00", "%q is no time of the day", s)
	}
	return t.Sub(t.Truncate(24 * time.Hour)), nil
})

// domain parses a domain of a search list.
var domain = key.Text("example.org", func(s string) (string, *key.Fault) {
	if !key.IsHostName(s) {
		return s, key.Wrong("write one like example.org", "%q cannot be the name of a domain", s)
	}
	return s, nil
})

// apnName parses the name of an access point.
var apnName = key.Text("internet", func(s string) (string, *key.Fault) {
	if _, err := gtp.ParseAPN(s); err != nil || !key.IsHostName(s) {
		return s, key.Wrong("write labels of letters, digits and hyphens with dots between them, like internet or ims.example", "%q cannot be the name of an access point", s)
	}
	// The rest is the operator's part, which terminals may leave out (TS 23.003 section 9.1).
	if strings.HasSuffix(strings.ToLower(s), ".gprs") {
		return s, key.Wrong("write the part before .mnc, like internet", "%q ends as the name of an operator does", s)
	}
	return s, nil
})

// prefix4 parses an IPv4 prefix, or one address.
var prefix4 = key.Text("10.45.0.0/16", func(s string) (netip.Prefix, *key.Fault) {
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return netip.PrefixFrom(a, 32), nil
	}
	p, f := key.PrefixLike(s, "10.45.0.0/16")
	if f == nil && !p.Addr().Is4() {
		return p, key.Wrong("write one like 10.45.0.0/16, and those of IPv6 in pool6 or static6", "%s is not an IPv4 prefix", p)
	}
	return p, f
})

// prefix64 parses an IPv6 prefix that has a /64 for a context.
var prefix64 = key.Text("2001:db8:6000::/40", func(s string) (netip.Prefix, *key.Fault) {
	p, f := key.PrefixLike(s, "2001:db8:6000::/40")
	switch {
	case f != nil:
	case !p.Addr().Is6():
		f = key.Wrong("write one like 2001:db8:6000::/40, and those of IPv4 in pool4 or static4", "%s is not an IPv6 prefix", p)
	case p.Bits() > 64:
		f = key.Wrong(fmt.Sprintf("write %s, or a shorter prefix", netip.PrefixFrom(p.Addr(), 64).Masked()), "%s has no /64 for a context", p)
	}
	return p, f
})
