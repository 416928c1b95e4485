// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package serverrole

import (
	"fmt"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/server"
	"github.com/isthmus-net/isthmus/teredo/tunnel"
)

// name is that of the role.
const name = "teredo_server"

// Role is the server as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "Teredo server (RFC 4380, section 5.3): qualifies clients and introduces peers.",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
		Secret: func(s *Settings) bool { return len(s.Keys) > 0 },
	},
	Summary: (*Settings).summary,
	Files: func(s *Settings) []role.Finding {
		_, err := s.allKeys()
		return role.Problems(err)
	},
	New: func(s Settings, log *slog.Logger) (role.Instance, error) { return New(s, log) },
}.Role()

// Settings are one [[teredo_server]] section; what each means stands where its key is
// declared.
type Settings struct {
	Name                          string
	Address, Secondary            netip.Addr // without a secondary one: single-address mode
	Advertise, AdvertiseSecondary netip.Addr // not valid: as the addresses
	Prefixes                      []netip.Prefix
	Port                          uint16
	AllowPrivate                  []netip.Prefix
	RatePerSource, RateTotal      int
	Burst                         int
	MTU                           int
	Keys                          []Key // without those of KeysFile
	KeysFile                      string
	RequireAuth                   bool
	Workers                       int
	Announce                      bool
}

func (s *Settings) keys() []key.Key {
	const addresses = "What clients see as that address, where this host has another one: behind the 1:1 NAT of a cloud. Empty: the same."
	return []key.Key{
		key.Of("name", &s.Name, "server", key.InstanceName, key.Identity,
			"Name in status, logs and metrics: small letters, digits, dots and hyphens, unique over all instances."),
		key.Of("address", &s.Address, key.MustSet("192.0.2.1"), key.Address4, key.Restart,
			`Primary IPv4 address, one of this host. RFC 4380, section 5.2.1: "primary address".`),
		key.Of("advertise", &s.Advertise, "", key.Optional(key.Address4), key.Live,
			addresses+` RFC 4380, section 4: "Server IPv4".`).Unless("address", "secondary", "port"),
		key.Of("secondary", &s.Secondary, "", key.Optional(key.Address4), key.Restart,
			`Second IPv4 address of this host, by which clients learn of a symmetric NAT. Empty: single-address mode, in which that test is left out and requests with the cone bit are not answered. RFC 4380, section 5.2.1: "secondary address".`),
		key.Of("advertise_secondary", &s.AdvertiseSecondary, "", key.Optional(key.Address4), key.Live,
			addresses).Unless("address", "secondary", "port"),
		tunnel.ServicePrefixes(&s.Prefixes, key.Live,
			`Teredo service prefixes; the first one is announced, packets of all are served. RFC 4380, section 2.6: "Global Teredo IPv6 Service Prefix".`),
		key.Of("port", &s.Port, int(teredo.Port), key.Integer[uint16](1, 65535), key.Restart,
			`UDP port on both addresses. Clients know no other than 3544. RFC 4380, section 2.7: "Teredo UDP port".`),
		tunnel.AllowPrivate(&s.AllowPrivate, key.Live),
		// A client needs less than one packet a second, a busy relay some tens.
		key.Of("rate_per_source", &s.RatePerSource, 200, key.Count(0), key.Live,
			"Packets a second from one IPv4 address; 0 is no limit. What is above is dropped and counted. RFC 4380, section 7.3: denial of service."),
		key.Of("burst", &s.Burst, 400, key.Count(1), key.Live,
			"How many of them may come at once."),
		// What one core answers with room to spare.
		key.Of("rate_total", &s.RateTotal, 100_000, key.Count(0), key.Live,
			"Packets a second in all; 0 is no limit."),
		key.Of("mtu", &s.MTU, teredo.MTU, key.Integer[int](teredo.MTU, tunnel.MaxMTU), key.Live,
			"MTU in bytes, announced to clients; larger packets are not carried. RFC 4380, section 5.1.2."),
		key.Tables("key", &s.Keys, "key", `{ id = "…", secret = "…" }`, (*Key).keys, key.Live,
			"Keys of clients, for secure qualification (RFC 4380, section 5.2.2), each in a section [[teredo_server.key]] of its own, with the client's name and a secret:\n"+
				`id = "north"`+"\n"+`secret = "…"`+"\n"+
				`and, if not HMAC-SHA1, algorithm = "hmac-sha256"; and, if it ends, expires = 2030-01-31T00:00:00Z. Whoever may read a secret has the key: a file with secrets must not be open to others (chmod 640).`),
		key.Of("keys_file", &s.KeysFile, "", key.Optional(key.File), key.Live,
			"File with more of them, [[key]] with the same lines. A reload reads it again."),
		key.Of("require_auth", &s.RequireAuth, false, key.Bool, key.Live,
			"Refuse clients without a key."),
		key.Of("workers", &s.Workers, 0, key.Integer[int](0, tunnel.MaxWorkers), key.Restart,
			"Sockets on each address, each served by a core of its own. 0: one for each two CPUs, at most 4."),
		key.Of("announce", &s.Announce, false, key.Bool, key.Restart,
			"Announce the addresses to the routers around this host while the server works, as [announce] says: for addresses that several hosts share."),
	}
}

func (s *Settings) check(c *config.Checker) {
	keys := make([]*Key, len(s.Keys))
	for i := range s.Keys {
		keys[i] = &s.Keys[i]
	}
	checkKeys(keys, c)
	if s.RequireAuth && len(s.Keys) == 0 && s.KeysFile == "" && c.OK("keys_file", "key") {
		c.Fail("require_auth", "no client could qualify, because this server has no keys", "name a keys_file, or add a [[teredo_server.key]]")
	}
	s.checkAddress(c)
}

// checkAddress checks that clients can use the addresses that they see.
func (s *Settings) checkAddress(c *config.Checker) {
	switch {
	case !s.Address.IsValid():
		if c.OK("address") {
			c.Fail("", "this server has no address", `add address = "192.0.2.1" with an IPv4 address of this host`)
		}
		return
	case s.Advertise.IsValid() || !c.OK("advertise"):
		tunnel.CheckReachable(c, "advertise", s.Advertise, s.AllowPrivate,
			"write the public address, or open the range with allow_private in a closed network")
	default:
		tunnel.CheckReachable(c, "address", s.Address, s.AllowPrivate,
			"set advertise to the public address in front of it, or open the range with allow_private in a closed network")
	}
	s.checkSecondary(c)
}

func (s *Settings) checkSecondary(c *config.Checker) {
	if !s.Secondary.IsValid() {
		if s.AdvertiseSecondary.IsValid() && c.OK("secondary") {
			c.Fail("advertise_secondary", "there is no secondary address to advertise", "set secondary too, or leave this out")
		}
		return
	}
	if s.Secondary == s.Address {
		c.Fail("secondary", "this is the primary address again", `write a second address of this host, or "" for single-address mode`)
		return
	}
	of := "advertise_secondary"
	if !s.AdvertiseSecondary.IsValid() {
		of = "secondary"
	}
	primary, second := s.advertised()
	tunnel.CheckReachable(c, of, second, s.AllowPrivate,
		"set advertise_secondary to the public address in front of it, or open the range with allow_private in a closed network")
	if second == primary {
		c.Fail(of, "clients would see the same address twice", "advertise two different addresses")
	}
}

// advertised are the addresses that clients see; the second is not valid in single-address
// mode.
func (s *Settings) advertised() (primary, secondary netip.Addr) {
	first := func(a, b netip.Addr) netip.Addr {
		if a.IsValid() {
			return a
		}
		return b
	}
	return first(s.Advertise, s.Address), first(s.AdvertiseSecondary, s.Secondary)
}

func (s *Settings) claims() []config.Claim {
	claims := []config.Claim{config.Right{Capability: unix.CAP_NET_RAW, Name: "CAP_NET_RAW", Purpose: "send IPv6 packets of others, as a server must"}}
	for i, p := range s.own() {
		key := []string{"address", "secondary"}[i]
		claims = append(claims, config.Socket{Key: key, Protocol: "UDP", At: netip.AddrPortFrom(p.Addr(), s.Port)})
	}
	if s.Announce {
		claims = append(claims, config.Announced{Key: "announce", Prefixes: s.own()})
	}
	return claims
}

// own are the addresses of the server, the primary one first: the prefixes by which routers
// find it.
func (s *Settings) own() (list []netip.Prefix) {
	for _, a := range []netip.Addr{s.Address, s.Secondary} {
		if a.IsValid() {
			list = append(list, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return list
}

// allKeys are those of the section and of its file, which a server can have together.
func (s *Settings) allKeys() ([]Key, error) {
	all := s.Keys[:len(s.Keys):len(s.Keys)]
	if s.KeysFile != "" {
		more, err := readKeys(s.KeysFile)
		if err != nil {
			return nil, err
		}
		for _, k := range more {
			all = append(all, *k)
		}
	}
	if err := server.CheckKeys(engineKeys(all)); err != nil {
		return nil, fmt.Errorf("the keys of the server %q, with those of keys_file: %w", s.Name, err)
	}
	return all, nil
}

func (s *Settings) summary() string {
	what := fmt.Sprintf("listens on UDP %s:%d", s.Address, s.Port)
	if s.Secondary.IsValid() {
		what += fmt.Sprintf(" and %s:%d", s.Secondary, s.Port)
	} else {
		what += ", single-address mode"
	}
	if primary, _ := s.advertised(); primary != s.Address {
		what += fmt.Sprintf(", known as %s", primary)
	}
	return what
}
