// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64role

import (
	"fmt"
	"log/slog"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/driver"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/keys"
	"github.com/isthmus-net/isthmus/translate/pref64"
)

// name is the name of the role of a [NAT64].
const name = "nat64"

// Role is the stateful translator as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "NAT64 (RFC 6146): hosts with IPv6 alone share IPv4 addresses. docs/nat64.md begins at nothing.",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
		Offers: func(s *Settings) []any { return []any{pref64.Local(s.Pool6)} }, Take: (*Settings).take,
	},
	Summary: (*Settings).summary,
	Examine: func(s *Settings) []role.Finding {
		return append(role.Problems(examine(*s)), role.Warnings(name, s.Name, advise(*s))...)
	},
	Way:       func(s *Settings) []role.Finding { return passageOf(*s).Findings(name, s.Name) },
	FastPath:  func(s *Settings, taken *role.Seats) []role.Finding { plan := plan(*s, taken); return plan.Findings() },
	New:       func(s Settings, log *slog.Logger) (role.Instance, error) { return New(s, log) },
	Clean:     clean,
	Questions: questions,
	Command:   role.Command{Help: "Look into a running NAT64.", Flags: func() any { return new(commands) }},
}.Role()

// Settings are one [[nat64]] section; what each means stands where its key is
// declared.
type Settings struct {
	keys.Translation
	Clients                                              []netip.Prefix
	Open, AllowHost                                      bool
	Pool4                                                []PoolRange
	Static                                               []StaticBinding
	Filtering, FilteringTCP, FilteringUDP, FilteringICMP Filtering
	DropExternalTCP, DropICMPInfo, DropUnmatchedTCP      bool
	InboundRefresh                                       bool
	ErrorSource                                          ErrorSource
	UDPTimeout, TCPEstablishedTimeout                    time.Duration
	TCPOpeningTimeout, TCPTransitoryTimeout              time.Duration
	IncomingSYNTimeout, ICMPTimeout                      time.Duration
	FragmentTimeout, ExpectedTimeout, PortQuarantine     time.Duration
	MaxSessions, MaxClients, MaxAddresses, ClientLength  int
	BlockSize, ClientBlocks, ClientSessions              int
	Deterministic, DeterministicShares                   int
	DeterministicReserved                                int
	StoredSYNs, StoredSYNsPerSource                      int
	FragmentPackets, FragmentPacketsPerSource            int
	FragmentMemory, FragmentMemoryPerSource              int // in octets
	ICMPRatePerSource                                    int
	BlockLog, SessionLog                                 bool
	FTP                                                  bool
	AlgPrefix                                            netip.Prefix // not valid: one made of the name
	FTPConnections, FTPConnectionsPerClient              int
	AnnouncePREF64                                       []string
	KeepState                                            bool
	StateFile                                            string // empty: one named after the instance
	FastPath                                             fastpath.Mode
	FastPathDevices                                      []string
	FastPathLinger                                       time.Duration

	// Beside is what other instances claim, which kept sessions do not take.
	Beside config.Claims
}

// Filtering is of packets from the IPv4 side (RFC 6146, section 1.2.3).
type Filtering string

// The kinds of filtering.
const (
	EndpointIndependent Filtering = "endpoint-independent"
	AddressDependent    Filtering = "address-dependent"
)

// ErrorSource chooses the IPv6 source of a translated ICMPv4 error.
type ErrorSource string

// The choices: the router that sent the error, as far as it has an IPv6 form, or, by
// the letter of RFC 6146, section 3.6.1, the destination of the quoted packet.
const (
	ErrorSourceRouter ErrorSource = "router"
	ErrorSourceInner  ErrorSource = "inner"
)

// Classes of errors that only a stateful translator sends.
const (
	ErrorProhibited keys.ErrorClass = "prohibited"
	ErrorProtocol   keys.ErrorClass = "protocol"
	ErrorAddress    keys.ErrorClass = "address"
	ErrorFiltered   keys.ErrorClass = "filtered"
	ErrorStoredSYN  keys.ErrorClass = "stored_syn"
)

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

func (s *Settings) keys() []key.Key {
	std := keys.Standard{
		Name: name, Pool6: []string{translate.WellKnownPrefix.String()}, UDPZeroChecksum: keys.ZeroChecksumCompute,
		Errors: []keys.ErrorClass{
			keys.ErrorUnreachable, keys.ErrorTooBig, keys.ErrorHopLimit, keys.ErrorParameter,
			ErrorProhibited, ErrorProtocol, ErrorAddress, ErrorFiltered, ErrorStoredSYN,
		},
		ErrorsOff: []keys.ErrorClass{ErrorFiltered},
		ICMPRate:  1000, RateHelp: "How many errors of each kind are sent a second, half of them for clients; 0 is no limit.",
	}
	return slices.Concat(s.DeviceKeys(std), s.poolKeys(), s.filterKeys(), s.timeKeys(), s.tableKeys(), s.waitingKeys(), s.HeaderKeys(std), []key.Key{
		key.Of("icmp_rate_per_source", &s.ICMPRatePerSource, 10, key.Count(0), key.Live,
			"How many errors a second to each IPv4 host or client (client_length), or /64 of smaller ones; 0 is no limit."),
	}, s.logKeys(), s.besideKeys(), s.stateKeys())
}

func (s *Settings) poolKeys() []key.Key {
	return []key.Key{
		key.Of("clients", &s.Clients, key.MustSet([]string{"2001:db8:1::/48"}), key.Filled("name the networks of your clients", key.List(key.Prefix6)), key.Live,
			"Networks whose hosts may use the translator."),
		key.Of("open", &s.Open, false, key.Bool, key.Live,
			`Let clients be everybody, ["::/0"]: others then send in the name of your addresses.`),
		key.Of("allow_host", &s.AllowHost, false, key.Bool, key.Live,
			"Let clients reach this host's own IPv4 addresses, its services for those beside it. They come with an address of pool4, which may be one that is trusted."),
		key.Of("pool4", &s.Pool4, key.MustSet([]string{"192.0.2.10"}), key.Filled("name at least one address", key.List(poolRange)), key.Live,
			"IPv4 addresses and ports that clients share: an address or prefix, then tcp, udp or icmp if it is not for all, then the ports if they are not 1024-65535. An address of this host itself is fine with a range of ports that nothing else of it uses."),
		key.Of("static", &s.Static, []string{}, key.List(staticBinding), key.Live,
			"Bindings that last: the transport, the IPv6 host with its port, the pool's port:\n"+`["tcp [2001:db8:1::80]:8080 192.0.2.10:8080"]. Of icmp the ports are identifiers. The host must be in clients, the port in pool4: for port 80 add "192.0.2.10 tcp 80" there.`),
	}
}

func (s *Settings) filterKeys() []key.Key {
	kind := key.OneOf(EndpointIndependent, AddressDependent)
	return []key.Key{
		key.Of("filtering", &s.Filtering, string(EndpointIndependent), kind, key.Live,
			`Who may answer to a port that a client has opened: everybody, "endpoint-independent", or hosts that the client has sent to, "address-dependent". RFC 6146, section 1.2.3.`),
		key.Of("filtering_tcp", &s.FilteringTCP, &s.Filtering, kind, key.Live, "The same for TCP alone; without this line as filtering."),
		key.Of("filtering_udp", &s.FilteringUDP, &s.Filtering, kind, key.Live, "The same for UDP."),
		key.Of("filtering_icmp", &s.FilteringICMP, &s.Filtering, kind, key.Live, "The same for ICMP."),
		key.Of("drop_external_tcp", &s.DropExternalTCP, false, key.Bool, key.Live, "Refuse connections from the IPv4 side."),
		key.Of("drop_icmp_info", &s.DropICMPInfo, false, key.Bool, key.Live, "Refuse ICMPv6 queries."),
		key.Of("drop_unmatched_tcp", &s.DropUnmatchedTCP, false, key.Bool, key.Live, "Refuse TCP segments that belong to a binding but to no session."),
		key.Of("inbound_refresh", &s.InboundRefresh, true, key.Bool, key.Live, "Let packets from the IPv4 side prolong UDP and ICMP sessions. RFC 4787, REQ-6."),
		key.Of("error_source", &s.ErrorSource, string(ErrorSourceRouter), key.OneOf(ErrorSourceRouter, ErrorSourceInner), key.Live,
			`IPv6 source of translated ICMPv4 errors: the "router", as traceroute needs it, or by the letter of RFC 6146, section 3.6.1, the destination of the packet that failed, "inner".`),
	}
}

// timeKeys declares lifetimes: RFC 6146, section 4, with the floors of RFC 4787, 5382 and
// 5508.
func (s *Settings) timeKeys() []key.Key {
	const day = 24 * time.Hour
	lifetime := key.Duration(time.Second, 7*day)
	return []key.Key{
		key.Of("udp_timeout", &s.UDPTimeout, "5m", lifetime, key.Live,
			"How long UDP sessions live without packets. RFC 6146, section 4, as all that follow; shorter times work, and are warned of."),
		key.Of("tcp_established_timeout", &s.TCPEstablishedTimeout, "2h", lifetime, key.Live, "The same for TCP connections."),
		key.Of("tcp_opening_timeout", &s.TCPOpeningTimeout, "4m", lifetime, key.Live,
			"The same for those that begin (RFC 7857, section 2.1), the time of floods: 30 s or so do no harm."),
		key.Of("tcp_transitory_timeout", &s.TCPTransitoryTimeout, "4m", lifetime, key.Live, "The same for those that end or were reset."),
		key.Of("incoming_syn_timeout", &s.IncomingSYNTimeout, "6s", lifetime, key.Live, "How long SYNs from the IPv4 side wait."),
		key.Of("icmp_timeout", &s.ICMPTimeout, "1m", lifetime, key.Live, "How long ICMP queries live."),
		key.Of("fragment_timeout", &s.FragmentTimeout, "2s", lifetime, key.Live, "How long fragments wait for others."),
		key.Of("expected_timeout", &s.ExpectedTimeout, "30s", lifetime, key.Live, "How long FTP data connections are expected. RFC 6384, section 6."),
		key.Of("port_quarantine", &s.PortQuarantine, "2m", key.Duration(0, day), key.Live,
			"How long the ports of a client without sessions rest before others get them. RFC 6888, REQ-8."),
	}
}

func (s *Settings) tableKeys() []key.Key {
	return []key.Key{
		key.Of("max_sessions", &s.MaxSessions, 1<<17, key.Integer[int](1, maxSessions), key.Restart,
			"Size of the table of sessions. The memory is taken at once, some 160 bytes for each."),
		key.Of("max_clients", &s.MaxClients, 1<<14, key.Integer[int](1, maxClients), key.Restart, "The same for clients."),
		key.Of("max_addresses", &s.MaxAddresses, 64, key.Integer[int](1, maxAddresses), key.Restart, "The same for addresses of pool4."),
		key.Of("client_length", &s.ClientLength, 64, key.Integer[int](1, 128), key.Restart, "How many bits of an IPv6 address make one client."),
		key.Of("block_size", &s.BlockSize, 512, blockSize, key.Restart, "Clients get ports in blocks of this size, a power of two from 64."),
		key.Of("client_blocks", &s.ClientBlocks, 8, key.Integer[int](1, maxClientBlocks), key.Live, "How many blocks a client gets at most, 1 to 16; where ports are calculated, beside its own."),
		key.Of("client_sessions", &s.ClientSessions, 1<<14, key.Count(0), key.Live,
			"Sessions of one client; 0 is no limit. IPv4 hosts open none for one that has half of them."),
		key.Of("deterministic", &s.Deterministic, 0, key.Integer[int](0, 64512), key.Live,
			"Clients that share an address by calculation, so that nothing need be logged (RFC 7422); 0 leases blocks."),
		// The example of RFC 7422, section 2.3.
		key.Of("deterministic_shares", &s.DeterministicShares, 2, key.Integer[int](0, 64512), key.Live, "Shares of the ports that are leased beyond that."),
		key.Of("deterministic_reserved", &s.DeterministicReserved, 1024, key.Integer[int](1024, 65535), key.Live, "First port of all; those below are no one's."),
	}
}

func (s *Settings) waitingKeys() []key.Key {
	return []key.Key{
		key.Of("stored_syns", &s.StoredSYNs, 1024, key.Integer[int](0, maxWaiting), key.Live,
			"SYNs from the IPv4 side that wait for an answer or an end. Where there is no room, whoever holds most gives way."),
		key.Of("stored_syns_per_source", &s.StoredSYNsPerSource, 128, key.Integer[int](0, maxWaiting), key.Live,
			"The same for one client, or from one host that has sessions."),
		key.Of("fragment_packets", &s.FragmentPackets, 4096, key.Integer[int](0, maxWaiting), key.Live,
			"Packets of each direction whose fragments are remembered; 0 is none. Where all are taken, who has most gives way."),
		key.Of("fragment_packets_per_source", &s.FragmentPacketsPerSource, 512, key.Integer[int](0, maxWaiting), key.Live,
			"The same of one source: a client (client_length), whichever way its packets go; as long as that is not known, the network or host that they come from."),
		key.Of("fragment_memory", &s.FragmentMemory, 4<<20, key.Integer[int](0, maxWaitingBytes), key.Live,
			"Bytes, in steps of 512, that fragments of each direction take which wait for the first one; 0 is none."),
		key.Of("fragment_memory_per_source", &s.FragmentMemoryPerSource, 512<<10, key.Integer[int](0, maxWaitingBytes), key.Live,
			"The same of one source; 0 is no limit but that of all."),
	}
}

func (s *Settings) logKeys() []key.Key {
	return []key.Key{
		key.Of("block_log", &s.BlockLog, true, key.Bool, key.Live, "Log who has which block of ports, from when to when (RFC 6888, REQ-12)."),
		key.Of("session_log", &s.SessionLog, false, key.Bool, key.Live, "Log each session, which tells whom people talk to."),
	}
}

func (s *Settings) besideKeys() []key.Key {
	return []key.Key{
		key.Of("ftp", &s.FTP, false, key.Bool, key.Live, "FTP from IPv6 clients to IPv4 servers (RFC 6384), and from IPv4 clients to servers that are bound by static, as docs/ftp.md says."),
		key.Of("alg_prefix", &s.AlgPrefix, "", key.Optional(privatePrefix), key.Live,
			"Private /64 that FTP needs inside of this host. Empty: one made of the name."),
		key.Of("ftp_connections", &s.FTPConnections, 1024, key.Integer[int](1, maxFTP), key.Live,
			"FTP control connections at a time, 4096 at most, of IPv6 clients and of IPv4 clients each. Where all are taken, the client that has most gives one up to one that has fewer."),
		// A client may be a whole link; browsers of files open up to ten each.
		key.Of("ftp_connections_per_client", &s.FTPConnectionsPerClient, 64, key.Integer[int](1, maxFTPOfClient), key.Live,
			"The same of one client, 256 at most."),
		key.Of("announce_pref64", &s.AnnouncePREF64, []string{}, key.List(key.Interface), key.Live,
			"Interfaces on which router advertisements tell hosts of pool6 (RFC 8781)."),
	}
}

func (s *Settings) stateKeys() []key.Key {
	return []key.Key{
		key.Of("keep_state", &s.KeepState, true, key.Bool, key.Restart,
			"Keep sessions while the process restarts: in the tables of the fast path, or in a file."),
		key.Of("state_file", &s.StateFile, "", key.Optional(key.File), key.Restart, "That file. Empty: /run/isthmus/NAME.nat64.state."),
		driver.ModeKey(&s.FastPath, `What carries the packets of sessions and makes new ones: "xdp", "tc", "off" or "auto", as for a relay. From "off" it takes a restart, unless pool4 has had an address of this host since the start: then the programs are there already.`),
		driver.DevicesKey(&s.FastPathDevices),
		driver.LingerKey(&s.FastPathLinger),
	}
}

func (s *Settings) check(c *config.Checker) {
	if len(s.Pool6) == 0 && c.OK("pool6") {
		c.Fail("pool6", "this list is empty", "name at least one prefix, or leave the key out")
	}
	s.Translation.Check(c)
	driver.CheckDevices(c, s.FastPathDevices, s.Interface)
	s.checkPREF64(c)
	s.checkClients(c)
	s.checkPools(c)
}

// checkClients wants clients named, and open use spelled out.
func (s *Settings) checkClients(c *config.Checker) {
	switch {
	case !c.OK("clients"):
	case len(s.Clients) == 0:
		c.Fail("", "no one may use this NAT64, because it has no clients", `add clients = ["2001:db8:1::/48"] with the networks of your clients`)
	case !s.Open:
		for i, p := range s.Clients {
			if p.Bits() == 0 {
				c.Fail(fmt.Sprintf("clients[%d]", i), "everybody in the IPv6 Internet could send in the name of your IPv4 addresses",
					"name the networks of your clients, or spell it out with open = true")
			}
		}
	}
}

// checkPools wants an IPv4 pool whose parts are apart and that fits the table.
func (s *Settings) checkPools(c *config.Checker) {
	if !c.OK("pool4") {
		return
	}
	if len(s.Pool4) == 0 {
		c.Fail("", "this NAT64 has no IPv4 address", `add pool4 = ["192.0.2.10"] with an address that is routed to this host, or one of its own and a range of ports`)
		return
	}
	addresses := 0
	for i, r := range s.Pool4 {
		known := false
		for _, other := range s.Pool4[:i] {
			if r.Overlaps(other) {
				c.Fail(fmt.Sprintf("pool4[%d]", i), fmt.Sprintf("%s overlaps %s", r, other), "keep one of the two, or choose ports apart")
				return
			}
			known = known || other.Prefix == r.Prefix
		}
		if !known && r.Prefix.Bits() >= 16 {
			addresses += 1 << (32 - r.Prefix.Bits())
		}
	}
	if addresses > s.MaxAddresses && c.OK("max_addresses") {
		c.Fail("pool4", fmt.Sprintf("the pool has %d addresses, and max_addresses is %d", addresses, s.MaxAddresses), fmt.Sprintf("set max_addresses = %d", addresses))
	}
	s.checkStatics(c)
}

func (s *Settings) checkStatics(c *config.Checker) {
	for i, b := range s.Static {
		one := fmt.Sprintf("static[%d]", i)
		switch {
		case !slices.ContainsFunc(s.Pool4, func(r PoolRange) bool { return r.Prefix.Contains(b.Outside.Addr()) }):
			c.Fail(one, fmt.Sprintf("%s is not in pool4", b.Outside.Addr()), "choose an address of the pool")
		case !slices.ContainsFunc(s.Pool4, func(r PoolRange) bool { return r.has(b) }):
			c.Fail(one, fmt.Sprintf("port %d of %s is not in pool4 for %s", b.Outside.Port(), b.Outside.Addr(), b.Transport),
				fmt.Sprintf(`choose a port of the pool, or add "%s %s %d" to pool4`, b.Outside.Addr(), b.Transport, b.Outside.Port()))
		}
		if c.OK("clients") && len(s.Clients) > 0 && !slices.ContainsFunc(s.Clients, func(p netip.Prefix) bool { return p.Contains(b.Inside.Addr()) }) {
			c.Fail(one, fmt.Sprintf("%s is in no network of clients", b.Inside.Addr()), "add its network to clients, or bind a host that is in one")
		}
		for _, other := range s.Static[:i] {
			if b.Transport == other.Transport && (b.Inside == other.Inside || b.Outside == other.Outside) {
				c.Fail(one, fmt.Sprintf("%s and %s share an end", b, other), "bind each end once")
			}
		}
	}
}

// checkPREF64 refuses interfaces that pool6 cannot be announced on.
func (s *Settings) checkPREF64(c *config.Checker) {
	if !c.OK("announce_pref64") {
		return
	}
	for i, name := range s.AnnouncePREF64 {
		path := fmt.Sprintf("announce_pref64[%d]", i)
		if slices.Contains(s.AnnouncePREF64[:i], name) {
			c.Fail(path, fmt.Sprintf("%s is listed twice", name), "name each interface once")
		}
		if name == s.Interface {
			c.Fail(path, name+" is the TUN device of this instance", "name interfaces that have clients behind them")
		}
	}
}

func blockSize(raw any) (int, *key.Fault) {
	n, f := key.Integer[int](64, 65536)(raw)
	if f == nil && bits.OnesCount(uint(n)) != 1 {
		return n, key.Wrong("write 64, 128, 256, 512, 1024 or a larger power of two", "%d is not a power of two", n)
	}
	return n, f
}

// privatePrefix parses a private /64 (RFC 4193).
var privatePrefix = key.Text("fd00:6384::/64", func(s string) (netip.Prefix, *key.Fault) {
	p, f := key.PrefixLike(s, "fd00:6384::/64")
	if f == nil && (p.Bits() != 64 || !p.Addr().IsPrivate()) {
		return p, key.Wrong("write one like fd00:6384::/64", "%s is not a /64 of private IPv6 addresses", p)
	}
	return p, f
})

func (s *Settings) claims() []config.Claim {
	return s.Claims(config.Route{Key: "pool6", Prefixes: s.Pool6}, config.Route{Key: "pool4", Prefixes: s.routes()[len(s.Pool6):]})
}

// take keeps what the instances beside this one claim.
func (s *Settings) take(offers []any) {
	for _, beside := range config.Offered[config.Claims](offers) {
		s.Beside = beside
	}
}

// routes are the destinations that the translator translates, by which routers find it.
func (s *Settings) routes() []netip.Prefix {
	list := slices.Clone(s.Pool6)
	for _, r := range s.Pool4 {
		if !slices.Contains(list, r.Prefix) {
			list = append(list, r.Prefix)
		}
	}
	return list
}

func (s *Settings) summary() string {
	return fmt.Sprintf("gives %s the IPv4 addresses %s, by %s, device %s", role.Join(s.Clients), role.Join(s.Pool4), role.Join(s.Pool6), s.Interface)
}
