// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
)

// name is that of the role.
const name = "ggsn"

// Role is the gateway node as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "GGSN (TS 29.060, TS 09.60, TS 29.281): gives mobile terminals behind SGSNs their addresses, and joins them with IPv4 and IPv6 networks. docs/ggsn.md begins at nothing.",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
	},
	Summary: (*Settings).summary,
	Examine: func(s *Settings) []role.Finding { return role.Problems(examine(s)) },
	Files:   examineFiles,
	Way: func(s *Settings) []role.Finding {
		return role.Warnings(name, s.Name, slices.Concat(lacking(s), blocked(s), s.exposed()))
	},
	FastPath: func(s *Settings, taken *role.Seats) []role.Finding { p := plan(s, taken); return p.Findings() },
	Clean:    clean,
	New:      func(s Settings, log *slog.Logger) (role.Instance, error) { return New(s, log) },

	Questions: questions,
	Command:   role.Command{Help: "Look into a running GGSN, and end contexts.", Flags: func() any { return new(commands) }},
}.Role()

// Settings are one [[ggsn]] section; what each means stands where its key is declared.
type Settings struct {
	Name                          string
	GSNAddress4, GSNAddress6      netip.Addr
	Peers, ReversedTID            []netip.Prefix
	T3Response                    time.Duration
	N3Requests                    int
	EchoInterval, PathHold        time.Duration
	DefaultAPN                    string
	SubscribersFile               string // empty: everybody may attach
	MNCDigits                     int
	PLMN                          string // empty: servers are not told
	Interface                     string
	Route                         bool
	Address4, Address6            netip.Addr // not valid: one of this host
	Workers                       int
	FastPath                      fastpath.Mode
	FastPathDevices               []string
	MaxContexts, ContextsPerPeer  int
	MaxPeers, RequestRate         int
	MaxAuthorizing                int
	ErrorRate, ICMPRate           int
	ContextLog, Announce          bool
	KeepState                     bool
	StateFile                     string // empty: one named after the instance
	RADIUS                        []RADIUS
	RADIUSTimeout, RADIUSDeadTime time.Duration
	RADIUSTries                   int
	DynamicPort                   uint16
	AccountingFile                string // empty: one named after the instance
	AccountingSize                int    // octets
	ChargingFile                  string // empty: none
	APNs                          []APN
}

// Bounds of the tables.
const (
	maxContexts = 1 << 24
	maxPeers    = 1 << 20
	maxWorkers  = 64
)

func (s *Settings) keys() []key.Key {
	std := ggsn.Defaults()
	return slices.Concat(s.nodeKeys(std), s.hostKeys(), s.radiusKeys(), []key.Key{
		key.Of("max_contexts", &s.MaxContexts, std.Limits.Contexts, key.Integer[int](1, maxContexts), key.Live,
			"PDP contexts at a time; the next one is refused with cause 199."),
		key.Of("contexts_per_peer", &s.ContextsPerPeer, std.Limits.ContextsPerPeer, key.Integer[int](0, maxContexts), key.Live,
			"The same of one SGSN: those that it has asked for, or moved to itself. 0 is as many as there are."),
		key.Of("max_peers", &s.MaxPeers, std.Limits.Peers, key.Integer[int](1, maxPeers), key.Live,
			"SGSNs, and nodes of the user plane, that are remembered at a time. Those that others name have half of it, each SGSN a share."),
		key.Of("request_rate", &s.RequestRate, std.Limits.Requests, key.Count(1), key.Live,
			"Requests a second of one SGSN; what is above is dropped and counted."),
		key.Of("error_rate", &s.ErrorRate, std.Limits.ErrorRate, key.Count(1), key.Live,
			"Error Indications a second for one SGSN, and as many notifications of extension headers."),
		key.Of("icmp_rate", &s.ICMPRate, std.Limits.ICMPRate, key.Count(1), key.Live, "ICMP errors a second."),
		key.Of("context_log", &s.ContextLog, false, key.Bool, key.Live, "Log each context at its beginning and end, with its addresses."),
		key.Of("announce", &s.Announce, false, key.Bool, key.Restart,
			"Announce the pools to the routers around this host while the node works, as [announce] says."),
		key.Of("keep_state", &s.KeepState, true, key.Bool, key.Restart,
			"Keep contexts while the process restarts in good order. Without it, and after a crash, the restart counter goes up and SGSNs release them."),
		key.Of("state_file", &s.StateFile, "", key.Optional(key.File), key.Restart,
			"File of these, and of the restart counter. Empty: /var/lib/isthmus/NAME.ggsn.state."),
		key.Of("max_authorizing", &s.MaxAuthorizing, std.Limits.Waiting, key.Integer[int](1, maxContexts), key.Live,
			"Requests that wait for RADIUS servers at a time, half of them of one SGSN alone; the next one is refused with cause 199."),
		key.Tables("apn", &s.APNs, "access point", `{ name = "internet", pool6 = ["2001:db8:6000::/40"] }`, (*APN).keys, key.Live,
			"Access points that terminals may ask for: networks, with the addresses there. A section for each.").MustFill(),
	})
}

// nodeKeys declares what SGSNs see.
func (s *Settings) nodeKeys(std ggsn.Settings) []key.Key {
	prefixes := key.List(key.Network)
	return []key.Key{
		key.Of("name", &s.Name, name, key.InstanceName, key.Identity,
			"Unique over all instances. Small letters, digits, dots and hyphens."),
		key.Of("gsn_address4", &s.GSNAddress4, key.Example("192.0.2.1"), key.Optional(key.Address4), key.Restart,
			"IPv4 address of this host where SGSNs reach the node, on UDP 3386 (GTPv0), 2123 and 2152 (GTPv1). This one or the next must be set."),
		key.Of("gsn_address6", &s.GSNAddress6, key.Example("2001:db8:1::1"), key.Optional(key.Address6), key.Restart,
			"The same of IPv6."),
		key.Of("peers", &s.Peers, key.MustSet([]string{"192.0.2.0/24", "2001:db8:1::/64"}), key.Filled("name the networks of your SGSNs", prefixes), key.Live,
			"Networks of the SGSNs, and RNCs, that may speak to the node. GTP has no other proof of who speaks."),
		key.Of("reversed_tid", &s.ReversedTID, []string{}, prefixes, key.Live,
			"Of these, where the TID of GTPv0 comes with its octets in reverse order, as from OpenGGSN's and Osmocom's programs."),
		key.Of("t3_response", &s.T3Response, "5s", key.Duration(100*time.Millisecond, time.Minute), key.Live,
			"How long an answer is waited for. TS 29.060, section 11: T3-RESPONSE."),
		key.Of("n3_requests", &s.N3Requests, std.N3Requests, key.Integer[int](1, 10), key.Live,
			"How often a request is sent, the first time counted. TS 29.060, section 11: N3-REQUESTS."),
		key.Of("mnc_digits", &s.MNCDigits, 2, key.Integer[int](2, 3), key.Restart, "Digits of the mobile network code in the IMSIs of subscribers, 2 or 3: servers are told country and network. TS 23.003, section 2.2."),
		key.Of("plmn", &s.PLMN, key.Example("24001"), key.Optional(plmn), key.Restart,
			"Code of the node's own network, country and network: servers are told it as 3GPP-GGSN-MCC-MNC. Empty: they are not. TS 23.003, section 12.1."),
		key.Of("echo_interval", &s.EchoInterval, "1m", orZero(key.Duration(time.Minute, 24*time.Hour)), key.Live,
			`Time between two Echo Requests to an SGSN that has contexts, a minute at least; "0s" sends none. TS 29.060, section 7.2.1.`),
		key.Of("path_hold", &s.PathHold, "5m", holdTime, key.Live,
			`How long the contexts of an SGSN that does not answer are kept; "0s" releases them at once, "forever" never.`),
		key.Of("default_apn", &s.DefaultAPN, "", key.Optional(apnName), key.Live,
			"The access point for names that no other has. Empty: they are refused with cause 219."),
		key.Of("subscribers_file", &s.SubscribersFile, key.Example("/etc/isthmus/subscribers.toml"), key.Optional(key.File), key.Live,
			"File with those who may have contexts, by imsi, and at which access points, by which types (docs/sip.md). Others are refused with cause 222. It holds secrets, so others may not read it. A reload reads it again. Empty: everybody may."),
	}
}

// hostKeys declares what the node has of this host.
func (s *Settings) hostKeys() []key.Key {
	return []key.Key{
		key.Of("interface", &s.Interface, "ggsn", key.Interface, key.Restart, "Name of the TUN device to the networks of access points that name none."),
		key.Of("route", &s.Route, true, key.Bool, key.Restart, "Install the routes to the pools by these devices."),
		key.Of("address4", &s.Address4, "", key.Optional(key.Address4), key.Live, "IPv4 source of ICMP errors. Empty: an address of this host."),
		key.Of("address6", &s.Address6, "", key.Optional(key.Address6), key.Live, "The same for IPv6."),
		key.Of("workers", &s.Workers, 0, key.Integer[int](0, maxWorkers), key.Restart,
			"Pairs of a socket and a TUN queue, each pair served by two cores. 0: one for each two CPUs, at most 4."),
		driver.ModeKey(&s.FastPath, `What carries packets of plain contexts: "xdp", "tc", "off" or "auto", as for a relay. From "off" it takes a restart. It has room for max_contexts as of the start, 1048576 at most. docs/ggsn.md says more.`),
		driver.DevicesKey(&s.FastPathDevices),
	}
}

// plmn parses the code of a network.
var plmn = key.Text("24001", func(s string) (string, *key.Fault) {
	if len(s) < 5 {
		return s, key.Wrong("write three digits of the country and two or three of the network, like 24001", "%q is no code of a network", s)
	}
	if _, err := gtp.MakePLMN(s[:3], s[3:]); err != nil {
		return s, key.Wrong("write three digits of the country and two or three of the network, like 24001", "%q is no code of a network", s)
	}
	return s, nil
})

// orZero takes "0s", too.
func orZero(parse key.Parser[time.Duration]) key.Parser[time.Duration] {
	return func(raw any) (time.Duration, *key.Fault) {
		if raw == "0s" || raw == "0" {
			return 0, nil
		}
		d, f := parse(raw)
		if f != nil {
			f.Remedy += `, or "0s"`
		}
		return d, f
	}
}

// forever is a hold time without an end.
const forever = time.Duration(-1)

// holdTime parses a time, or "forever".
func holdTime(raw any) (time.Duration, *key.Fault) {
	if raw == "forever" {
		return forever, nil
	}
	d, f := key.Duration(0, 7*24*time.Hour)(raw)
	if f != nil {
		f.Remedy += `, or "forever"`
	}
	return d, f
}

// addresses are those of the node, one of each family at most.
func (s *Settings) addresses() (list []netip.Addr) {
	for _, a := range []netip.Addr{s.GSNAddress4, s.GSNAddress6} {
		if a.IsValid() {
			list = append(list, a)
		}
	}
	return list
}

func (s *Settings) summary() string {
	words := make([]string, len(s.APNs))
	for i := range s.APNs {
		words[i] = fmt.Sprintf("%s (%s)", s.APNs[i].Name, role.Join(s.APNs[i].pools()))
	}
	return fmt.Sprintf("listens on %s for the SGSNs of %s, access points %s", role.Join(s.addresses()), role.Join(s.Peers), strings.Join(words, ", "))
}
