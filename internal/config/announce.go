// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AnnounceMethod says who tells the routers around this host about its prefixes.
type AnnounceMethod string

// Methods of announcing.
const (
	// AnnounceNone announces nothing.
	AnnounceNone AnnounceMethod = "none"
	// AnnounceBGP speaks BGP itself.
	AnnounceBGP AnnounceMethod = "bgp"
	// AnnounceRoute sets kernel routes for a routing daemon of this host to export.
	AnnounceRoute AnnounceMethod = "route"
)

// Announce says how the prefixes of instances with announce = true are announced,
// and when not.
type Announce struct {
	Method AnnounceMethod `key:"method"`
	// Check are addresses of which one at least must answer an echo request, or
	// nothing is announced; none asks nobody.
	Check []netip.Addr `key:"check"`
	// CheckInterval is the time from one check of an instance to the next, and
	// CheckTimeout how long one may take.
	CheckInterval time.Duration `key:"check_interval"`
	CheckTimeout  time.Duration `key:"check_timeout"`
	// Fall is how many checks in a row fail before a prefix is withdrawn, Rise how
	// many succeed before it is announced again.
	Fall int `key:"fall"`
	Rise int `key:"rise"`
	// HoldDown is the least time that a prefix stays withdrawn after a failure; a
	// relapse doubles it.
	HoldDown time.Duration `key:"hold_down"`
	// DrainTime is how long an instance still serves after the withdrawal, when the
	// process stops.
	DrainTime time.Duration `key:"drain_time"`
	// Table and Protocol are those of the routes of AnnounceRoute.
	Table    int `key:"table"`
	Protocol int `key:"protocol"`
	// LocalAS and RouterID name this speaker (RFC 4271, section 4.2).
	LocalAS  int        `key:"local_as"`
	RouterID netip.Addr `key:"router_id"`
	// Listen are addresses of this host on which neighbors may call; none only
	// calls them.
	Listen []netip.Addr `key:"listen"`
	// NextHop4 and NextHop6 stand in announcements. Not valid: the address of this
	// host in the session.
	NextHop4 netip.Addr `key:"next_hop4"`
	NextHop6 netip.Addr `key:"next_hop6"`
	// MED orders this speaker among others of its AS, lowest first (RFC 4271,
	// section 5.1.4); LocalPref does so for neighbors of the same AS, highest first
	// (section 5.1.5).
	MED       int `key:"med"`
	LocalPref int `key:"local_pref"`
	// Communities mark the announcements (RFC 1997).
	Communities []Community `key:"communities"`
	// HoldTime ends a session of which nothing is heard (RFC 4271, section 6.5).
	HoldTime time.Duration `key:"hold_time"`
	// GracefulRestart is how long neighbors keep the routes of a session that broke
	// off (RFC 4724); 0 is not at all.
	GracefulRestart time.Duration `key:"graceful_restart"`
	// Neighbors are the routers that are told.
	Neighbors []Neighbor `key:"neighbor"`
}

// Neighbor is one BGP session.
type Neighbor struct {
	Address netip.Addr
	// AS of the neighbor; that of the speaker makes an internal session.
	AS int
	// Local is the address of this host in the session. Not valid: the kernel's
	// choice.
	Local netip.Addr
	// Port is the neighbor's TCP port.
	Port uint16
	// Passive waits for the neighbor's call.
	Passive bool
	// PasswordFile holds the password of TCP MD5 signatures (RFC 2385), for
	// [Neighbor.Password]; empty is none.
	PasswordFile string
	// Multihop is the largest number of hops to an external neighbor; 0 is a
	// neighbor on the same link.
	Multihop int
	// TTLSecurity takes packets from the same link only (RFC 5082).
	TTLSecurity bool
}

// maxPassword is the kernel's limit (TCP_MD5SIG_MAXKEYLEN), in bytes.
const maxPassword = 80

// Password reads the password of the session; "" is none. How long it is, is for
// both ends to agree on, and so there is no least length.
func (n *Neighbor) Password() (Secret, error) {
	if n.PasswordFile == "" {
		return "", nil
	}
	text, err := readPrivate(n.PasswordFile, maxSecret)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case password == "":
		return "", fmt.Errorf("%s is empty: write the password of the session with %s into it", n.PasswordFile, n.Address)
	case len(password) > maxPassword:
		return "", fmt.Errorf("the password in %s is longer than %d bytes, which is all that the kernel takes: choose a shorter one at both ends", n.PasswordFile, maxPassword)
	}
	return Secret(password), nil
}

// Community is a mark on announcements (RFC 1997).
type Community uint32

// String returns the community as it is written.
func (c Community) String() string { return fmt.Sprintf("%d:%d", c>>16, c&0xffff) }

// Implementation defaults.
const (
	announceProtocol = 119 // Used by no known routing program; likewise the table.
	announceTable    = 119
	checkInterval    = time.Second
	checkFall        = 3
	checkRise        = 3
	holdDown         = 5 * time.Second         // A neighbor's minimum interval between two advertisements (RFC 4271, section 10) is near it.
	drainTime        = 2500 * time.Millisecond // A client notices within 2 s that its hosts' packets come by another relay.
	holdTime         = 30 * time.Second
	localPref        = 100
	bgpPort          = 179 // RFC 4271, section 8: the port of BGP
	maxAS            = 1<<32 - 2
	maxRestartTime   = 4095 * time.Second // RFC 4724, section 3: 12 bits
)

// DefaultAnnounce returns the section as it is where the file says nothing.
func DefaultAnnounce() Announce {
	return Announce{
		Method: AnnounceNone, CheckInterval: checkInterval, CheckTimeout: checkInterval,
		Fall: checkFall, Rise: checkRise, HoldDown: holdDown, DrainTime: drainTime,
		Table: announceTable, Protocol: announceProtocol, LocalPref: localPref, HoldTime: holdTime,
	}
}

type rawAnnounce struct {
	Method          any `toml:"method"`
	Check           any `toml:"check"`
	CheckInterval   any `toml:"check_interval"`
	CheckTimeout    any `toml:"check_timeout"`
	Fall            any `toml:"fall"`
	Rise            any `toml:"rise"`
	HoldDown        any `toml:"hold_down"`
	DrainTime       any `toml:"drain_time"`
	Table           any `toml:"table"`
	Protocol        any `toml:"protocol"`
	LocalAS         any `toml:"local_as"`
	RouterID        any `toml:"router_id"`
	Listen          any `toml:"listen"`
	NextHop4        any `toml:"next_hop4"`
	NextHop6        any `toml:"next_hop6"`
	MED             any `toml:"med"`
	LocalPref       any `toml:"local_pref"`
	Communities     any `toml:"communities"`
	HoldTime        any `toml:"hold_time"`
	GracefulRestart any `toml:"graceful_restart"`
	Neighbor        any `toml:"neighbor"`
}

// announceSection is the path of the section.
const announceSection = "announce"

// announce reads the section.
func (c *checker) announce(raw rawAnnounce) Announce {
	const at = announceSection
	a := DefaultAnnounce()
	set(c, at, "method", raw.Method, &a.Method, oneOf(AnnounceNone, AnnounceBGP, AnnounceRoute))
	set(c, at, "check", raw.Check, &a.Check, listOf(anyHost))
	set(c, at, "check_interval", raw.CheckInterval, &a.CheckInterval, duration(100*time.Millisecond, time.Hour))
	set(c, at, "check_timeout", raw.CheckTimeout, &a.CheckTimeout, duration(50*time.Millisecond, time.Minute))
	set(c, at, "fall", raw.Fall, &a.Fall, integer[int](1, 1000))
	set(c, at, "rise", raw.Rise, &a.Rise, integer[int](1, 1000))
	set(c, at, "hold_down", raw.HoldDown, &a.HoldDown, duration(0, time.Hour))
	set(c, at, "drain_time", raw.DrainTime, &a.DrainTime, duration(0, time.Minute))
	set(c, at, "table", raw.Table, &a.Table, integer[int](1, 1<<31-1))
	set(c, at, "protocol", raw.Protocol, &a.Protocol, integer[int](5, 255))
	set(c, at, "local_as", raw.LocalAS, &a.LocalAS, integer[int](0, maxAS))
	set(c, at, "router_id", raw.RouterID, &a.RouterID, optional(address4))
	set(c, at, "listen", raw.Listen, &a.Listen, listOf(anyAddress))
	set(c, at, "next_hop4", raw.NextHop4, &a.NextHop4, optional(address4))
	set(c, at, "next_hop6", raw.NextHop6, &a.NextHop6, optional(address6))
	set(c, at, "med", raw.MED, &a.MED, integer[int](0, 1<<32-1))
	set(c, at, "local_pref", raw.LocalPref, &a.LocalPref, integer[int](0, 1<<32-1))
	set(c, at, "communities", raw.Communities, &a.Communities, listOf(community))
	set(c, at, "hold_time", raw.HoldTime, &a.HoldTime, duration(3*time.Second, 65535*time.Second))
	set(c, at, "graceful_restart", raw.GracefulRestart, &a.GracefulRestart, duration(0, maxRestartTime))
	a.Neighbors = c.neighbors(at+".neighbor", raw.Neighbor)
	if reservedTable(a.Table) {
		c.fail(at+".table", fmt.Sprintf("%d is a table of the kernel's own", a.Table), "choose another number, like 119")
	}
	c.speaker(at, &a)
	return a
}

// reservedTable tells the tables default, main and local, from which hosts route.
func reservedTable(n int) bool { return n >= 253 && n <= 255 }

// speaker checks what BGP needs.
func (c *checker) speaker(at string, a *Announce) {
	if a.Method != AnnounceBGP {
		if len(a.Neighbors) > 0 && !c.failed[at+".method"] {
			c.fail(at+".neighbor", "neighbors are told by BGP only", `write method = "bgp" in [announce], or leave the neighbors out`)
		}
		return
	}
	if a.LocalAS == 0 && !c.failed[at+".local_as"] {
		c.fail(at, "this speaker has no AS number", "add local_as = 64512 with the number of your network, or a private one")
	}
	if !a.RouterID.IsValid() && !c.failed[at+".router_id"] {
		c.fail(at, "this speaker has no identifier", `add router_id = "192.0.2.1" with an IPv4 address of this host`)
	}
	if len(a.Neighbors) == 0 && !c.failed[at+".neighbor"] {
		c.fail(at, "there is nobody to tell", `add [[announce.neighbor]] with address = "2001:db8::1" and as = 64513`)
	}
	for i, n := range a.Neighbors {
		path := fmt.Sprintf("%s.neighbor[%d]", at, i)
		if n.Passive && !slices.ContainsFunc(a.Listen, func(l netip.Addr) bool { return l.Is4() == n.Address.Is4() }) && !c.failed[at+".listen"] {
			c.fail(path+".passive", "nobody would take this neighbor's call", "name the address that it calls under listen, in [announce]")
		}
		if internal := n.AS == a.LocalAS && n.AS != 0; internal && (n.Multihop > 0 || n.TTLSecurity) {
			c.fail(path, "a neighbor of the same AS may be any number of hops away", "leave multihop and ttl_security out")
		}
	}
}

// neighborNames are the keys of a neighbor, in the order of the reference.
var neighborNames = []string{"address", "as", "local", "port", "passive", "password_file", "multihop", "ttl_security"}

// neighbors reads the list of neighbors.
func (c *checker) neighbors(path string, raw any) []Neighbor {
	if raw == nil {
		return nil
	}
	list, ok := raw.([]any)
	if !ok {
		c.fail(path, fmt.Sprintf("this is %s where a list of neighbors is wanted", kindOf(raw)), "write "+arrayHeader(path)+" on a line of its own, once for each neighbor")
		return nil
	}
	var neighbors []Neighbor
	for i, one := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		n, ok := c.neighbor(at, one)
		if ok && slices.ContainsFunc(neighbors, func(o Neighbor) bool { return o.Address == n.Address }) {
			c.fail(at+".address", fmt.Sprintf("%s is a neighbor already", n.Address), "name each neighbor once")
		}
		neighbors = append(neighbors, n)
	}
	return neighbors
}

// neighbor reads one neighbor; ok is false if something is wrong with it.
func (c *checker) neighbor(path string, raw any) (n Neighbor, ok bool) {
	table, isTable := raw.(map[string]any)
	if !isTable {
		c.fail(path, fmt.Sprintf("this is %s where a neighbor is wanted", kindOf(raw)), `write { address = "2001:db8::1", as = 64513 }`)
		return n, false
	}
	before := len(c.errs)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(neighborNames, name) {
			remedy := "known ones are " + strings.Join(neighborNames, ", ")
			if near := nearest(name, neighborNames); near != "" {
				remedy = fmt.Sprintf("did you mean %s?", near)
			}
			c.fail(path+"."+name, "there is no such key", remedy)
		}
	}
	n.Port = bgpPort
	set(c, path, "address", table["address"], &n.Address, anyHost)
	set(c, path, "as", table["as"], &n.AS, integer[int](1, maxAS))
	set(c, path, "local", table["local"], &n.Local, optional(anyHost))
	set(c, path, "port", table["port"], &n.Port, integer[uint16](1, 65535))
	set(c, path, "passive", table["passive"], &n.Passive, boolean)
	set(c, path, "password_file", table["password_file"], &n.PasswordFile, optional(filePath))
	set(c, path, "multihop", table["multihop"], &n.Multihop, integer[int](0, 255))
	set(c, path, "ttl_security", table["ttl_security"], &n.TTLSecurity, boolean)
	if len(c.errs) > before {
		return n, false
	}
	switch {
	case !n.Address.IsValid():
		c.fail(path, "this neighbor has no address", `add address = "2001:db8::1"`)
	case n.AS == 0:
		c.fail(path, "this neighbor has no AS number", "add as = 64513")
	case n.Local.IsValid() && n.Local.Is4() != n.Address.Is4():
		c.fail(path+".local", "a session has one family at both ends", fmt.Sprintf("write an address of the family of %s", n.Address))
	case n.Multihop > 0 && n.TTLSecurity:
		c.fail(path+".multihop", "ttl_security is for neighbors on the same link", "leave one of the two out")
	}
	return n, len(c.errs) == before
}

// announced checks the instances that are to be announced.
func (c *checker) announced(config *Config) {
	claims := map[netip.Prefix]string{}
	check := func(at, by string, on bool, prefixes []netip.Prefix) {
		path := at + ".announce"
		if !on || c.failed[path] {
			return
		}
		if config.Announce.Method == AnnounceNone && !c.failed[announceSection+".method"] {
			c.fail(path, "nothing says how to announce it", `add [announce] with method = "bgp" or "route"`)
		}
		for _, p := range prefixes {
			if other := claims[p]; other != "" {
				c.fail(path, fmt.Sprintf("%s is also announced for %s", p, other), "announce each prefix for one instance")
				return
			}
			claims[p] = by
		}
		c.nextHops(path, config.Announce, prefixes)
	}
	for i, s := range config.Servers {
		check(fmt.Sprintf("%s[%d]", RoleServer, i), fmt.Sprintf("%s %q", RoleServer, s.Name), s.Announce, s.Announced())
	}
	for i, r := range config.Relays {
		at := fmt.Sprintf("%s[%d]", RoleRelay, i)
		if r.Announce && r.Mode == ModeHost && !c.failed[at+".mode"] && !c.failed[at+".announce"] {
			c.fail(at+".announce", `a relay with mode = "host" serves nobody else`, "leave announce out")
			continue
		}
		check(at, fmt.Sprintf("%s %q", RoleRelay, r.Name), r.Announce, r.Announced())
	}
	for i, n := range config.NAT64s {
		check(fmt.Sprintf("%s[%d]", RoleNAT64, i), fmt.Sprintf("%s %q", RoleNAT64, n.Name), n.Announce, n.Announced())
	}
	for i, s := range config.SIITs {
		check(fmt.Sprintf("%s[%d]", RoleSIIT, i), fmt.Sprintf("%s %q", RoleSIIT, s.Name), s.Announce, s.Announced())
	}
}

// nextHops checks that each session can name a next hop for each prefix: its own
// address has the session's family only.
func (c *checker) nextHops(path string, a Announce, prefixes []netip.Prefix) {
	if a.Method != AnnounceBGP {
		return
	}
	for _, p := range prefixes {
		key, hop := "next_hop6", a.NextHop6
		if p.Addr().Is4() {
			key, hop = "next_hop4", a.NextHop4
		}
		other := slices.IndexFunc(a.Neighbors, func(n Neighbor) bool { return n.Address.IsValid() && n.Address.Is4() != p.Addr().Is4() })
		if other < 0 || hop.IsValid() || c.failed[announceSection+"."+key] {
			continue
		}
		c.fail(path, fmt.Sprintf("the session with %s has no address that could be the next hop of %s", a.Neighbors[other].Address, p),
			fmt.Sprintf("set %s in [announce] to an address of this host that its routers reach", key))
		return
	}
}

// Announced are the prefixes by which routers find the server: its addresses.
func (s *Server) Announced() []netip.Prefix {
	var prefixes []netip.Prefix
	for _, a := range []netip.Addr{s.Address, s.Secondary} {
		if a.IsValid() {
			prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return prefixes
}

// Announced are the prefixes by which routers find the relay.
func (r *Relay) Announced() []netip.Prefix { return slices.Clone(r.Prefixes) }

// anyHost parses the address of a host of either family.
var anyHost = text("2001:db8::1", func(s string) (netip.Addr, *fault) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, wrong("write it like 2001:db8::1 or 192.0.2.1", "%q is not an address", s)
	}
	if a.Is4() {
		return address4(s)
	}
	return address6(s)
})

// anyAddress is anyHost that takes the unspecified addresses for all of the host.
var anyAddress = text("::", func(s string) (netip.Addr, *fault) {
	if a, err := netip.ParseAddr(s); err == nil && a.IsUnspecified() && a.Zone() == "" {
		return a, nil
	}
	return anyHost(s)
})

// wellKnown are communities with a name (RFC 1997).
var wellKnown = map[string]Community{
	"no-export": 0xffffff01, "no-advertise": 0xffffff02, "no-export-subconfed": 0xffffff03,
}

// community parses two numbers, or the name of a well-known one.
var community = text("64512:100", func(s string) (Community, *fault) {
	if c, ok := wellKnown[s]; ok {
		return c, nil
	}
	high, low, _ := strings.Cut(s, ":")
	h, errHigh := strconv.ParseUint(high, 10, 16)
	l, errLow := strconv.ParseUint(low, 10, 16)
	if cmp.Or(errHigh, errLow) != nil {
		return 0, wrong(`write two numbers up to 65535, like "64512:100", or "no-export"`, "%q is not a community", s)
	}
	return Community(h<<16 | l), nil
})
