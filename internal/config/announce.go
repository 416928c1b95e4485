// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/key"
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
	Method AnnounceMethod
	// Check are addresses of which one at least must answer an echo request, or
	// nothing is announced; none asks no one.
	Check []netip.Addr
	// CheckInterval is the time from one check of an instance to the next, and
	// CheckTimeout how long one may take.
	CheckInterval time.Duration
	CheckTimeout  time.Duration
	// Fall is how many checks in a row fail before a prefix is withdrawn, Rise how
	// many succeed before it is announced again.
	Fall int
	Rise int
	// HoldDown is the least time that a prefix stays withdrawn after a failure; a
	// relapse doubles it.
	HoldDown time.Duration
	// DrainTime is how long an instance still serves after the withdrawal, when the
	// process stops.
	DrainTime time.Duration
	// Table and Protocol are those of the routes of AnnounceRoute.
	Table    int
	Protocol int
	// LocalAS and RouterID name this speaker (RFC 4271, section 4.2).
	LocalAS  int
	RouterID netip.Addr
	// Listen are addresses of this host on which neighbors may call; none only
	// calls them.
	Listen []netip.Addr
	// NextHop4 and NextHop6 stand in announcements. Not valid: the address of this
	// host in the session.
	NextHop4 netip.Addr
	NextHop6 netip.Addr
	// MED orders this speaker among others of its AS, lowest first (RFC 4271,
	// section 5.1.4); LocalPref does so for neighbors of the same AS, highest first
	// (section 5.1.5).
	MED       int
	LocalPref int
	// Communities mark the announcements (RFC 1997).
	Communities []Community
	// HoldTime ends a session of which nothing is heard (RFC 4271, section 6.5).
	HoldTime time.Duration
	// GracefulRestart is how long neighbors keep the routes of a session that broke
	// off (RFC 4724); 0 is not at all.
	GracefulRestart time.Duration
	// Neighbors are the routers that are told.
	Neighbors []Neighbor
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
	text, err := ReadPrivate(n.PasswordFile, maxSecret)
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

const (
	maxAS          = 1<<32 - 2
	maxRestartTime = 4095 * time.Second // RFC 4724, section 3: 12 bits
)

// DefaultAnnounce returns the section as it is where the file says nothing.
func DefaultAnnounce() Announce { return Default().Announce }

// announceSection is the path of the section.
const announceSection = "announce"

func (a *Announce) keys() []key.Key {
	return []key.Key{
		key.Of("method", &a.Method, string(AnnounceNone), oneOf(AnnounceNone, AnnounceBGP, AnnounceRoute), key.Restart,
			`"bgp" speaks BGP itself; "route" sets kernel routes that a routing daemon of this host exports; "none" does neither.`),
		key.Of("check", &a.Check, []string{}, listOf(key.Host), key.Live,
			`Hosts of which one at least must answer an echo request, or nothing is announced: ["2001:db8::1"]. An instance always checks itself.`),
		key.Of("check_interval", &a.CheckInterval, "1s", duration(100*time.Millisecond, time.Hour), key.Live,
			"Time from one check to the next."),
		key.Of("check_timeout", &a.CheckTimeout, "1s", duration(50*time.Millisecond, time.Minute), key.Live,
			"The longest that a check may take."),
		key.Of("fall", &a.Fall, 3, integer[int](1, 1000), key.Live,
			"Checks in a row that must fail before a prefix is withdrawn."),
		key.Of("rise", &a.Rise, 3, integer[int](1, 1000), key.Live,
			"Checks in a row that must succeed before a prefix is announced again."),
		// A neighbor's minimum interval between two advertisements (RFC 4271, section 10) is
		// near it.
		key.Of("hold_down", &a.HoldDown, "5s", duration(0, time.Hour), key.Live,
			"How long a prefix stays withdrawn at least after a failure; each relapse within ten times that doubles it, up to 16 times."),
		// A client notices within 2 s that its hosts' packets come by another relay.
		key.Of("drain_time", &a.DrainTime, "2.5s", duration(0, time.Minute), key.Live,
			"When isthmus stops: how long it goes on serving after it has withdrawn. Clients of a tunnel go on sending here until they notice that packets come by another way, which takes those of Isthmus up to 2 s."),
		// Used by no known routing program; likewise the protocol.
		key.Of("table", &a.Table, 119, integer[int](1, 1<<31-1), key.Restart,
			`With method "route": the kernel's table of the routes.`),
		key.Of("protocol", &a.Protocol, 119, integer[int](5, 255), key.Restart,
			`With method "route": the protocol number of the routes.`),
		key.Of("local_as", &a.LocalAS, 0, integer[int](0, maxAS), key.Restart,
			`With method "bgp": AS number, which must be set then; 0 is none. RFC 4271, section 4.2.`),
		key.Of("router_id", &a.RouterID, "", optional(address4), key.Restart,
			`With method "bgp": identifier, an IPv4 address of this host, which must be set then. RFC 4271, section 4.2.`),
		key.Of("listen", &a.Listen, []string{}, listOf(anyAddress), key.Restart,
			"Addresses of this host on which neighbors may call, on TCP port 179. Empty: this host calls them."),
		key.Of("next_hop4", &a.NextHop4, "", optional(address4), key.Live,
			"Next hop of IPv4 prefixes in announcements. Empty: this host's address in the session, which must then be of that family."),
		key.Of("next_hop6", &a.NextHop6, "", optional(address6), key.Live,
			"The same for IPv6 prefixes."),
		key.Of("med", &a.MED, 0, integer[int](0, 1<<32-1), key.Live,
			"Order among several hosts that announce one prefix: neighbors of other networks take the lowest. RFC 4271, section 5.1.4."),
		key.Of("local_pref", &a.LocalPref, 100, integer[int](0, 1<<32-1), key.Live,
			"The same for neighbors of the same AS, which take the highest. RFC 4271, section 5.1.5."),
		key.Of("communities", &a.Communities, []string{}, listOf(community), key.Live,
			`Marks on announcements: ["64512:100", "no-export"]. RFC 1997.`),
		key.Of("hold_time", &a.HoldTime, "30s", duration(3*time.Second, 65535*time.Second), key.Restart,
			"How long a neighbor may be silent. RFC 4271, section 6.5."),
		key.Of("graceful_restart", &a.GracefulRestart, "0s", duration(0, maxRestartTime), key.Restart,
			`How long neighbors keep the routes when the session breaks off without a word, as in a restart that leaves the fast path in place; "0s" is not at all. It also keeps the routes of a host that crashed: not more than fast_path_linger. RFC 4724.`),
		key.Tables("neighbor", &a.Neighbors, "neighbor", `{ address = "2001:db8::1", as = 64513 }`, (*Neighbor).keys, key.Restart,
			"Whom to tell. Each neighbor is a section of its own."),
	}
}

func (n *Neighbor) keys() []key.Key {
	return []key.Key{
		key.Of("address", &n.Address, key.MustSet("2001:db8::1"), key.Host, key.Restart, "Its address."),
		key.Of("as", &n.AS, key.MustSet(64513), integer[int](1, maxAS), key.Restart, "Its AS number; that of local_as for the same network."),
		key.Of("local", &n.Local, "", optional(key.Host), key.Restart, "Address of this host; empty is the kernel's choice."),
		key.Of("port", &n.Port, 179, integer[uint16](1, 65535), key.Restart, "Its TCP port. RFC 4271, section 8."),
		key.Of("passive", &n.Passive, false, boolean, key.Restart, "Wait for its call."),
		key.Of("password_file", &n.PasswordFile, "", optional(filePath), key.Restart, "File with the password of TCP MD5 signatures (RFC 2385); empty is none."),
		key.Of("multihop", &n.Multihop, 0, integer[int](0, 255), key.Restart, "Largest number of hops to it; 0 is a neighbor on the same link."),
		key.Of("ttl_security", &n.TTLSecurity, false, boolean, key.Restart, "Take packets from the same link only (RFC 5082)."),
	}
}

// check makes the checks that take more than one key.
func (a *Announce) check(c *Checker) {
	if reservedTable(a.Table) {
		c.Fail("table", fmt.Sprintf("%d is a table of the kernel's own", a.Table), "choose another number, like 119")
	}
	for i, n := range a.Neighbors {
		path := fmt.Sprintf("neighbor[%d]", i)
		if c.OK(path) {
			n.check(c, path)
		}
		if c.OK(path) && slices.ContainsFunc(a.Neighbors[:i], func(o Neighbor) bool { return o.Address == n.Address }) {
			c.Fail(path+".address", fmt.Sprintf("%s is a neighbor already", n.Address), "name each neighbor once")
		}
	}
	a.checkListen(c)
	a.checkSpeaker(c)
}

func (n *Neighbor) check(c *Checker, path string) {
	switch {
	case !n.Address.IsValid():
		c.Fail(path, "this neighbor has no address", `add address = "2001:db8::1"`)
	case n.AS == 0:
		c.Fail(path, "this neighbor has no AS number", "add as = 64513")
	case n.Local.IsValid() && n.Local.Is4() != n.Address.Is4():
		c.Fail(path+".local", "a session has one family at both ends", fmt.Sprintf("write an address of the family of %s", n.Address))
	case n.Multihop > 0 && n.TTLSecurity:
		c.Fail(path+".multihop", "ttl_security is for neighbors on the same link", "leave one of the two out")
	}
}

// reservedTable tells the tables default, main and local, from which hosts route.
func reservedTable(n int) bool { return n >= 253 && n <= 255 }

// checkSpeaker checks what BGP needs.
func (a *Announce) checkSpeaker(c *Checker) {
	if a.Method != AnnounceBGP {
		if len(a.Neighbors) > 0 && c.OK("method") {
			c.Fail("neighbor", "neighbors are told by BGP only", `write method = "bgp" in [announce], or leave the neighbors out`)
		}
		return
	}
	if a.LocalAS == 0 && c.OK("local_as") {
		c.Fail("", "this speaker has no AS number", "add local_as = 64512 with the number of your network, or a private one")
	}
	if !a.RouterID.IsValid() && c.OK("router_id") {
		c.Fail("", "this speaker has no identifier", `add router_id = "192.0.2.1" with an IPv4 address of this host`)
	}
	if len(a.Neighbors) == 0 && c.OK("neighbor") {
		c.Fail("", "there is no one to tell", `add [[announce.neighbor]] with address = "2001:db8::1" and as = 64513`)
	}
	for i, n := range a.Neighbors {
		path := fmt.Sprintf("neighbor[%d]", i)
		if n.Passive && !slices.ContainsFunc(a.Listen, func(l netip.Addr) bool { return l.Is4() == n.Address.Is4() }) && c.OK("listen") {
			c.Fail(path+".passive", "no one would take this neighbor's call", "name the address that it calls under listen, in [announce]")
		}
		if internal := n.AS == a.LocalAS && n.AS != 0; internal && (n.Multihop > 0 || n.TTLSecurity) {
			c.Fail(path, "a neighbor of the same AS may be any number of hops away", "leave multihop and ttl_security out")
		}
	}
}

// announced checks the instances that are to be announced.
func (c *checker) announced(config *Config) {
	each(config.claimants(), func(one claimant, a Announced) {
		path := one.path + "." + a.Key
		switch {
		case c.failed[path]:
		case config.Announce.Method == AnnounceNone && !c.failed[announceSection+".method"]:
			c.fail(path, "nothing says how to announce it", `add [announce] with method = "bgp" or "route"`)
		default:
			c.nextHops(path, config.Announce, a.Prefixes)
		}
	})
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

// anyAddress is [key.Host] that takes the unspecified addresses for all of the host.
var anyAddress = text("::", func(s string) (netip.Addr, *fault) {
	if a, err := netip.ParseAddr(s); err == nil && a.IsUnspecified() && a.Zone() == "" {
		return a, nil
	}
	return key.Host(s)
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
