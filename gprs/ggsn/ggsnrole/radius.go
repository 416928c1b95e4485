// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/internal/role"
)

// RADIUS is one [[ggsn.radius]] section: a server that says who may come in, or is told of it.
type RADIUS struct {
	Address              netip.Addr
	Use                  Use
	Port, AccountingPort uint16
	SecretFile           string
	Signed               bool
	Dynamic, Timestamp   bool
}

// Use is what a server is for.
type Use string

// The uses.
const (
	Authentication Use = "authentication"
	Accounting     Use = "accounting"
	BothUses       Use = "both"
	NoUse          Use = "none"
)

func (r *RADIUS) keys() []key.Key {
	return []key.Key{
		key.Of("address", &r.Address, key.MustSet("192.0.2.10"), key.Host, key.Identity, "Its address, of either family."),
		key.Of("use", &r.Use, string(Authentication), key.OneOf(Authentication, Accounting, BothUses, NoUse), key.Live,
			`What it is for: "authentication", "accounting" or "both", or "none" of these, but dynamic.`),
		key.Of("port", &r.Port, 1812, key.Integer[uint16](1, 65535), key.Live, "UDP port of its authentication. RFC 2865, section 3."),
		key.Of("accounting_port", &r.AccountingPort, 1813, key.Integer[uint16](1, 65535), key.Live, "UDP port of its accounting. RFC 2866, section 3."),
		key.Of("secret_file", &r.SecretFile, key.MustSet("/etc/isthmus/radius.secret"), key.File, key.Live,
			"File with the secret that it shares with this node, and nothing else. Others may not read it."),
		key.Of("signed", &r.Signed, true, key.Bool, key.Live,
			"Take answers alone that have a Message-Authenticator. Without it, whoever is on the way can let anybody in (CVE-2024-3596)."),
		key.Of("dynamic", &r.Dynamic, false, key.Bool, key.Live,
			"Let it end and change sessions, by requests from its address to dynamic_port. RFC 5176."),
		key.Of("timestamp", &r.Timestamp, true, key.Bool, key.Live,
			"Take such requests alone that have an Event-Timestamp of the last 300 seconds. Without it, whoever is on the way can send an old one again. RFC 5176, section 6.3."),
	}
}

// radiusKeys declares how servers are asked.
func (s *Settings) radiusKeys() []key.Key {
	std := radius.Defaults()
	return []key.Key{
		key.Of("radius_timeout", &s.RADIUSTimeout, std.Timeout.String(), key.Duration(100*time.Millisecond, 30*time.Second), key.Live,
			"How long the first answer of a RADIUS server is waited for; each time a request is sent again the wait doubles. RFC 5080, section 2.2.1."),
		key.Of("radius_tries", &s.RADIUSTries, std.Tries, key.Integer[int](1, 10), key.Live,
			"How often a request is sent to one server, before the next one is asked."),
		key.Of("radius_dead_time", &s.RADIUSDeadTime, std.DeadTime.String(), key.Duration(time.Second, time.Hour), key.Live,
			"How long a server that has not answered is left alone; then one request tries it."),
		key.Of("dynamic_port", &s.DynamicPort, radius.DynamicPort, key.Integer[uint16](1, 65535), key.Restart,
			"UDP port, at the node's addresses, for requests of RADIUS servers that have dynamic = true. RFC 5176, section 2.3."),
		key.Of("accounting_file", &s.AccountingFile, "", key.Optional(key.File), key.Restart,
			"File in which records for accounting wait until a server has them, also over a crash. Empty: /var/lib/isthmus/NAME.ggsn-accounting.state."),
		key.Of("accounting_size", &s.AccountingSize, 256<<20, key.Count(1<<20), key.Restart,
			"Octets of records that may wait, of about 400 each; what does not fit any more is lost, and counted."),
		key.Of("charging_file", &s.ChargingFile, key.Example("/var/lib/isthmus/charging.jsonl"), key.Optional(key.File), key.Restart,
			"File to which a line of JSON is appended for each charging record of contexts at access points with accounting. It may be moved away at any time. Beside it, with .number behind its name, is a file with the number of the last record. Empty: none."),
		key.Tables("radius", &s.RADIUS, "RADIUS server", `{ address = "192.0.2.10", secret_file = "/etc/isthmus/radius.secret" }`, (*RADIUS).keys, key.Live,
			"RADIUS servers, in their order: the first that answers is asked. Each is a section of its own:\n"+
				"  [[ggsn.radius]]\n  address = \"192.0.2.10\"                       of either family\n"+
				"  use = \"authentication\"                       or accounting, or both\n"+
				"  port = 1812                                  of its authentication\n"+
				"  accounting_port = 1813\n"+
				"  secret_file = \"/etc/isthmus/radius.secret\"   what both sides know\n"+
				"  signed = true                                its answers must be, by a Message-Authenticator\n"+
				"  dynamic = false                              whether it may end and change sessions\n"+
				"  timestamp = true                             and must say when it asks."),
	}
}

// Authenticate is who says which terminals may come in.
type Authenticate string

// Those who do.
const (
	ByNobody Authenticate = "none"
	ByRADIUS Authenticate = "radius"
)

// Fallback is what becomes of terminals that no server answers for.
type Fallback string

// The policies.
const (
	FallbackReject Fallback = "reject"
	FallbackLocal  Fallback = "local"
)

// AccountTo is who is told of contexts.
type AccountTo string

// Those who may be.
const (
	ToNobody AccountTo = "none"
	ToRADIUS AccountTo = "radius"
	ToFile   AccountTo = "file"
)

// UserName is what a terminal is called where a server is asked.
type UserName string

// The names.
const (
	UserOfTerminal UserName = "terminal"
	UserOfMSISDN   UserName = "msisdn"
	UserOfIMSI     UserName = "imsi"
)

// radiusSettings are those of the client for a use, with the secrets; there may be no server for it.
func (s *Settings) radiusSettings(of Use) (r radius.Settings, err error) {
	r = radius.Defaults()
	r.Timeout, r.Tries, r.DeadTime = s.RADIUSTimeout, s.RADIUSTries, s.RADIUSDeadTime
	for _, one := range s.RADIUS {
		if one.Use != of && one.Use != BothUses {
			continue
		}
		at := one.Port
		if of == Accounting {
			at = one.AccountingPort
		}
		secret, err := one.secret()
		if err != nil {
			return r, err
		}
		r.Servers = append(r.Servers, radius.Server{Address: netip.AddrPortFrom(one.Address, at), Secret: secret, AnySigned: !one.Signed})
	}
	return r, r.Check()
}

// maxRADIUSSecret bounds a secret, in octets.
const maxRADIUSSecret = 256

// examineFiles tells what is wrong with the files that the section names, or may be.
func examineFiles(s *Settings) []role.Finding {
	found := examineSubscribers(s)
	_, err := s.readServers()
	return append(found, role.Problems(err)...)
}

// serves reports whether there is a server of a use.
func (s *Settings) serves(of Use) bool {
	return slices.ContainsFunc(s.RADIUS, func(r RADIUS) bool { return r.Use == of || r.Use == BothUses })
}

// checkRADIUS wants servers where somebody is to be asked, or told, and each once.
func (s *Settings) checkRADIUS(c *config.Checker) {
	for i := range s.APNs {
		if s.APNs[i].Authenticate == ByRADIUS && !s.serves(Authentication) && c.OK("radius") {
			c.Fail(fmt.Sprintf("apn[%d].authenticate", i), "nobody would be let in, because there is no RADIUS server", "add a [[ggsn.radius]] with an address and a secret_file")
		}
		if s.APNs[i].Accounting == ToFile && s.ChargingFile == "" && c.OK("charging_file") {
			c.Fail(fmt.Sprintf("apn[%d].accounting", i), "nothing would be written, because there is no charging_file", `add charging_file = "/var/lib/isthmus/charging.jsonl" to the section`)
		}
		if s.APNs[i].Accounting == ToRADIUS && !s.serves(Accounting) && c.OK("radius") {
			c.Fail(fmt.Sprintf("apn[%d].accounting", i), "nobody would be told, because there is no RADIUS server for accounting", `add a [[ggsn.radius]] with an address, a secret_file and use = "accounting", or use = "both" to one that there is`)
		}
	}
	for i, a := range s.RADIUS {
		at := fmt.Sprintf("radius[%d]", i)
		if a.Use == NoUse && !a.Dynamic && c.OK(at+".dynamic") {
			c.Fail(at+".use", "this server would be for nothing", "add dynamic = true, or name another use")
		}
		if !a.Address.IsValid() && !c.Failed(at+".address") {
			c.Fail(at, "this server has no address", `add address = "192.0.2.10"`)
		}
		for _, b := range s.RADIUS[:i] {
			if a.Address.IsValid() && a.Address == b.Address && c.OK(at+".address") {
				c.Fail(at+".address", fmt.Sprintf("the server %s is there twice", a.Address), "keep one of the two")
			}
		}
	}
}
