// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"
	"time"
)

// RoleNAT64 is the role of a [NAT64].
const RoleNAT64 = "nat64"

// NAT64 is one stateful translator (RFC 6146).
type NAT64 struct {
	Translation
	// Clients may use the translator; Open allows that to be everybody.
	Clients []netip.Prefix `key:"clients"`
	Open    bool           `key:"open"`
	// AllowHost lets clients reach this host's own IPv4 addresses.
	AllowHost bool `key:"allow_host"`
	// Pool4 are the IPv4 addresses and ports that clients share.
	Pool4 []PoolRange `key:"pool4"`
	// Static are bindings that last.
	Static []StaticBinding `key:"static"`

	// Filtering is of packets from the IPv4 side; FilteringTCP, FilteringUDP and
	// FilteringICMP are the same as it unless the file says otherwise.
	Filtering     Filtering `key:"filtering"`
	FilteringTCP  Filtering `key:"filtering_tcp"`
	FilteringUDP  Filtering `key:"filtering_udp"`
	FilteringICMP Filtering `key:"filtering_icmp"`
	// DropExternalTCP, DropICMPInfo and DropUnmatchedTCP refuse connections from the
	// IPv4 side, ICMPv6 queries, and segments that belong to a binding but to no
	// session.
	DropExternalTCP  bool `key:"drop_external_tcp"`
	DropICMPInfo     bool `key:"drop_icmp_info"`
	DropUnmatchedTCP bool `key:"drop_unmatched_tcp"`
	// InboundRefresh lets packets from the IPv4 side prolong UDP and ICMP sessions.
	InboundRefresh bool `key:"inbound_refresh"`
	// ErrorSource chooses the source of translated ICMPv6 errors.
	ErrorSource ErrorSource `key:"error_source"`

	UDPTimeout            time.Duration `key:"udp_timeout"`
	TCPEstablishedTimeout time.Duration `key:"tcp_established_timeout"`
	// TCPOpeningTimeout is of connections that begin, TCPTransitoryTimeout of those that
	// end or were reset (RFC 7857, section 2.1).
	TCPOpeningTimeout    time.Duration `key:"tcp_opening_timeout"`
	TCPTransitoryTimeout time.Duration `key:"tcp_transitory_timeout"`
	IncomingSYNTimeout   time.Duration `key:"incoming_syn_timeout"`
	ICMPTimeout          time.Duration `key:"icmp_timeout"`
	FragmentTimeout      time.Duration `key:"fragment_timeout"`
	ExpectedTimeout      time.Duration `key:"expected_timeout"`
	// PortQuarantine is how long the blocks of ports of a client without sessions rest
	// with it before another gets them.
	PortQuarantine time.Duration `key:"port_quarantine"`

	// MaxSessions and MaxClients shape the table, MaxAddresses is how many addresses
	// of the pool it has room for.
	MaxSessions  int `key:"max_sessions"`
	MaxClients   int `key:"max_clients"`
	MaxAddresses int `key:"max_addresses"`
	// ClientLength is how many bits of an IPv6 address tell one client from another.
	ClientLength int `key:"client_length"`
	// BlockSize is the number of ports in a block, a power of two of at least 64;
	// ClientBlocks and ClientSessions bound what one client takes.
	BlockSize      int `key:"block_size"`
	ClientBlocks   int `key:"client_blocks"`
	ClientSessions int `key:"client_sessions"`
	// Deterministic is how many clients share an address by calculation (RFC 7422), 0
	// for none; DeterministicShares of the ports are kept for leases, and those below
	// DeterministicReserved are nobody's.
	Deterministic         int `key:"deterministic"`
	DeterministicShares   int `key:"deterministic_shares"`
	DeterministicReserved int `key:"deterministic_reserved"`
	// StoredSYNs are SYNs from the IPv4 side that wait, in all, and for one client or from
	// one host that has sessions.
	StoredSYNs          int `key:"stored_syns"`
	StoredSYNsPerSource int `key:"stored_syns_per_source"`
	// FragmentPackets are packets whose fragments are remembered, and FragmentMemory the
	// octets that those take which wait: in all of one direction, and of one source, which
	// is the client that sends them or that they are for, once that is known.
	FragmentPackets          int `key:"fragment_packets"`
	FragmentPacketsPerSource int `key:"fragment_packets_per_source"`
	FragmentMemory           int `key:"fragment_memory"`
	FragmentMemoryPerSource  int `key:"fragment_memory_per_source"`
	// ICMPRatePerSource is the number of ICMP errors a second to one IPv4 host, client or
	// /64 of smaller clients.
	ICMPRatePerSource int `key:"icmp_rate_per_source"`

	// BlockLog and SessionLog say what is logged of the use of addresses.
	BlockLog   bool `key:"block_log"`
	SessionLog bool `key:"session_log"`

	// FTP runs the application layer gateway for FTP (RFC 6384), with the private
	// prefix AlgPrefix; not valid: one made of the instance's name.
	FTP       bool         `key:"ftp"`
	AlgPrefix netip.Prefix `key:"alg_prefix"`
	// FTPConnections and FTPConnectionsPerClient bound its control connections, in all and
	// of one client.
	FTPConnections          int `key:"ftp_connections"`
	FTPConnectionsPerClient int `key:"ftp_connections_per_client"`
	// AnnouncePREF64 are the interfaces on which router advertisements tell of pool6
	// (RFC 8781).
	AnnouncePREF64 []string `key:"announce_pref64"`

	// KeepState keeps sessions over a restart in the file StateFile; empty: one
	// named after the instance. With a fast path its tables are kept.
	KeepState bool   `key:"keep_state"`
	StateFile string `key:"state_file"`

	// FastPath is what carries the packets of sessions, on FastPathDevices, and goes on
	// for FastPathLinger after a last sign of life.
	FastPath        FastPath      `key:"fast_path"`
	FastPathDevices []string      `key:"fast_path_devices"`
	FastPathLinger  time.Duration `key:"fast_path_linger"`
}

// Filtering is of packets from the IPv4 side (RFC 6146, section 1.2.3).
type Filtering string

// The kinds of filtering.
const (
	EndpointIndependent Filtering = "endpoint-independent"
	AddressDependent    Filtering = "address-dependent"
)

// ErrorSource chooses the IPv4 source of a translated ICMPv6 error.
type ErrorSource string

// The choices: the router that sent the error, as far as it has an IPv4 form, or, by
// the letter of RFC 6146, section 3.6.1, the destination of the quoted packet.
const (
	ErrorSourceRouter ErrorSource = "router"
	ErrorSourceInner  ErrorSource = "inner"
)

// Classes of errors that only a stateful translator sends.
const (
	ErrorProhibited ErrorClass = "prohibited"
	ErrorProtocol   ErrorClass = "protocol"
	ErrorAddress    ErrorClass = "address"
	ErrorFiltered   ErrorClass = "filtered"
	ErrorStoredSYN  ErrorClass = "stored_syn"
)

type rawNAT64 struct {
	rawTranslation
	Clients                  any `toml:"clients"`
	Open                     any `toml:"open"`
	AllowHost                any `toml:"allow_host"`
	Pool4                    any `toml:"pool4"`
	Static                   any `toml:"static"`
	Filtering                any `toml:"filtering"`
	FilteringTCP             any `toml:"filtering_tcp"`
	FilteringUDP             any `toml:"filtering_udp"`
	FilteringICMP            any `toml:"filtering_icmp"`
	DropExternalTCP          any `toml:"drop_external_tcp"`
	DropICMPInfo             any `toml:"drop_icmp_info"`
	DropUnmatchedTCP         any `toml:"drop_unmatched_tcp"`
	InboundRefresh           any `toml:"inbound_refresh"`
	ErrorSource              any `toml:"error_source"`
	UDPTimeout               any `toml:"udp_timeout"`
	TCPEstablishedTimeout    any `toml:"tcp_established_timeout"`
	TCPOpeningTimeout        any `toml:"tcp_opening_timeout"`
	TCPTransitoryTimeout     any `toml:"tcp_transitory_timeout"`
	IncomingSYNTimeout       any `toml:"incoming_syn_timeout"`
	ICMPTimeout              any `toml:"icmp_timeout"`
	FragmentTimeout          any `toml:"fragment_timeout"`
	ExpectedTimeout          any `toml:"expected_timeout"`
	PortQuarantine           any `toml:"port_quarantine"`
	MaxSessions              any `toml:"max_sessions"`
	MaxClients               any `toml:"max_clients"`
	MaxAddresses             any `toml:"max_addresses"`
	ClientLength             any `toml:"client_length"`
	BlockSize                any `toml:"block_size"`
	ClientBlocks             any `toml:"client_blocks"`
	ClientSessions           any `toml:"client_sessions"`
	Deterministic            any `toml:"deterministic"`
	DeterministicShares      any `toml:"deterministic_shares"`
	DeterministicReserved    any `toml:"deterministic_reserved"`
	StoredSYNs               any `toml:"stored_syns"`
	StoredSYNsPerSource      any `toml:"stored_syns_per_source"`
	FragmentPackets          any `toml:"fragment_packets"`
	FragmentPacketsPerSource any `toml:"fragment_packets_per_source"`
	FragmentMemory           any `toml:"fragment_memory"`
	FragmentMemoryPerSource  any `toml:"fragment_memory_per_source"`
	ICMPRatePerSource        any `toml:"icmp_rate_per_source"`
	BlockLog                 any `toml:"block_log"`
	SessionLog               any `toml:"session_log"`
	FTP                      any `toml:"ftp"`
	FTPConnections           any `toml:"ftp_connections"`
	FTPConnectionsPerClient  any `toml:"ftp_connections_per_client"`
	AlgPrefix                any `toml:"alg_prefix"`
	AnnouncePREF64           any `toml:"announce_pref64"`
	KeepState                any `toml:"keep_state"`
	StateFile                any `toml:"state_file"`
	FastPath                 any `toml:"fast_path"`
	FastPathDevices          any `toml:"fast_path_devices"`
	FastPathLinger           any `toml:"fast_path_linger"`
}

// DefaultNAT64 returns a stateful translator as it is where the file says nothing;
// clients and pool4 must still be set.
func DefaultNAT64() NAT64 {
	n := NAT64{
		Translation: defaultTranslation(RoleNAT64),
		Filtering:   EndpointIndependent, FilteringTCP: EndpointIndependent, FilteringUDP: EndpointIndependent, FilteringICMP: EndpointIndependent,
		InboundRefresh: true, ErrorSource: ErrorSourceRouter,

		// RFC 6146, section 4; the floors of RFC 4787, 5382 and 5508.
		UDPTimeout: 5 * time.Minute, TCPEstablishedTimeout: 2 * time.Hour,
		TCPOpeningTimeout: 4 * time.Minute, TCPTransitoryTimeout: 4 * time.Minute,
		IncomingSYNTimeout: 6 * time.Second, ICMPTimeout: time.Minute, FragmentTimeout: 2 * time.Second,
		ExpectedTimeout: 30 * time.Second, // RFC 6384, section 6
		PortQuarantine:  2 * time.Minute,  // RFC 6888, REQ-8

		MaxSessions: 1 << 17, MaxClients: 1 << 14, MaxAddresses: 64, ClientLength: 64,
		BlockSize: 512, ClientBlocks: 8, ClientSessions: 1 << 16,
		DeterministicShares: 2, DeterministicReserved: 1024, // the example of RFC 7422, section 2.3
		StoredSYNs: 1024, StoredSYNsPerSource: 128,
		FragmentPackets: 4096, FragmentPacketsPerSource: 512, FragmentMemory: 4 << 20, FragmentMemoryPerSource: 512 << 10,
		ICMPRatePerSource: 10,

		FTPConnections: 1024, FTPConnectionsPerClient: 64, // A client may be a whole link; browsers of files open up to ten each.

		BlockLog: true, KeepState: true, FastPath: FastPathAuto, FastPathLinger: linger,
	}
	n.Pool6 = slices.Clone(defaultPool6)
	n.UDPZeroChecksum = ZeroChecksumCompute
	n.ICMPRate = 1000
	n.ICMPErrorsOff = []ErrorClass{ErrorFiltered}
	return n
}

// defaultPool6 is the well-known prefix of RFC 6052.
var defaultPool6 = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}

// NAT64 returns the stateful translator of that name.
func (c *Config) NAT64(name string) (NAT64, bool) {
	return find(c.NAT64s, func(n NAT64) bool { return n.Name == name })
}

// Routes are the destinations that the translator translates.
func (n *NAT64) Routes() []netip.Prefix {
	list := slices.Clone(n.Pool6)
	for _, r := range n.Pool4 {
		if !slices.Contains(list, r.Prefix) {
			list = append(list, r.Prefix)
		}
	}
	return list
}

// Announced are the prefixes by which routers find the translator.
func (n *NAT64) Announced() []netip.Prefix { return n.Routes() }
