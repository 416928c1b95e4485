// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/translate"
)

// Settings of an [Engine]. [Defaults] fills what has a usual value.
type Settings struct {
	// Translate is about headers; its Prefixes are pool6, of which there may be
	// MaxPrefixes, and Own4 and Own6 are the source of ICMP errors. It has no
	// mappings.
	Translate translate.Settings
	// RouterAsInner gives a translated ICMPv4 error the source that the letter of
	// RFC 6146 section 3.6.1 has, the destination of the quoted packet. Without it
	// the source is the router's, which traceroute needs.
	RouterAsInner bool

	// Pool4 are the addresses and ports that clients are bound to.
	Pool4 []Range
	// Clients may use the translator; empty is no one.
	Clients []netip.Prefix
	// Deterministic gives clients their ports by calculation (RFC 7422); nil: blocks
	// are leased as they are needed.
	Deterministic *Deterministic

	FilterTCP, FilterUDP, FilterICMP Filtering
	// DropExternalTCP refuses connections from the IPv4 side (section 3.5.2.2).
	DropExternalTCP bool
	// DropICMPInfo refuses ICMPv6 queries (section 3.5.3).
	DropICMPInfo bool
	// DropUnmatchedTCP refuses segments that belong to a binding but to no session
	// (section 3.5.2.2, "if the security policy allows").
	DropUnmatchedTCP bool
	// OutboundRefreshOnly keeps packets from the IPv4 side from prolonging UDP and
	// ICMP sessions (RFC 4787 REQ-6).
	OutboundRefreshOnly bool

	Timers Timers
	Limits Limits
	Errors Errors

	// SessionEvents reports each session's start and end; by default blocks alone
	// are reported (RFC 6888 REQ-12, RFC 7422). Of sessions that a fast path makes
	// only the end is reported; Feed tells of all.
	SessionEvents bool

	// DetourPrefix is the private /64 of the FTP control connections' detour; not
	// valid: there is none. See detour.go.
	DetourPrefix netip.Prefix
}

// MaxPrefixes is how many prefixes pool6 may have.
const MaxPrefixes = 16

// Range is a part of pool4: ports of the addresses of one prefix.
type Range struct {
	Prefix      netip.Prefix
	First, Last uint16     // both 0: 1024 to 65535
	Transports  Transports // 0: all
	// Own marks addresses of this host itself: what does not belong to a session or
	// lies outside of the ports is the host's.
	Own bool
}

// Transports is a set of them, a bit for each state.Transport.
type Transports uint8

// AllTransports are TCP, UDP and ICMP.
const AllTransports Transports = 7

// Filtering is of packets from the IPv4 side (section 1.2.3).
type Filtering uint8

// The kinds of filtering.
const (
	EndpointIndependent Filtering = iota
	AddressDependent
)

// Timers of section 4 and others. Below their floors they work, with an advice.
type Timers struct {
	UDP            time.Duration // 5 min; floor 2 min (RFC 4787 REQ-5)
	TCPEstablished time.Duration // 2 h, then a probe and TCPTransitory; floor 2 h (RFC 5382 REQ-5)
	TCPTransitory  time.Duration // 4 min; floor 4 min (RFC 5382 REQ-5)
	TCPOpening     time.Duration // of connections that begin; 0: as TCPTransitory (RFC 7857 section 2.1)
	IncomingSYN    time.Duration // 6 s; floor 6 s (RFC 5382 REQ-4)
	ICMP           time.Duration // 60 s; floor 60 s (RFC 5508 REQ-2)
	Fragments      time.Duration // 2 s; floor 2 s (FRAGMENT_MIN)
	Expected       time.Duration // 30 s: a session made for a packet to come; floor 30 s (RFC 6384)
	// Quarantine is how long the blocks of ports and the address of a client that has no
	// sessions any more rest with it, before another gets them:
	// 120 s (RFC 6888 REQ-8).
	Quarantine time.Duration
}

// Limits of memory and of what one client or source may take.
type Limits struct {
	ClientSessions int // sessions of one client; 0 is no limit
	ClientBlocks   int // blocks of ports of one client: 1 to 16, or, with Deterministic, beside its own

	StoredSYNs       int // SYNs from the IPv4 side that wait
	StoredSYNsSource int // of those, for one client or from one host that has sessions

	// Those of fragments are of each direction. A source is the client that sends them or
	// that they are for; as long as that is not known, the network or host that they are
	// from.
	FragmentPackets       int // packets whose fragments are remembered
	FragmentPacketsSource int // of those, of one source
	FragmentMemory        int // octets taken by fragments that wait for others, in steps of 512
	FragmentMemorySource  int // of those, of one source; 0 is no limit but that of all
	// SweepSlice is how many sessions one call of Tick looks at.
	SweepSlice int
}

// Errors says which ICMP errors the engine sends of its own, and how many.
type Errors struct {
	Off [NumErrorClasses]bool
	// Rate and Burst bound all of one class together, SourceRate and SourceBurst those to
	// one IPv4 host, client or /64 of smaller clients; a rate of 0 is no limit.
	Rate, Burst             int
	SourceRate, SourceBurst int
}

// ErrorClass is a kind of ICMP error that the engine owes.
type ErrorClass uint8

// The classes.
const (
	ErrorHopLimit    ErrorClass = iota // time exceeded
	ErrorTooBig                        // packet too big, fragmentation needed
	ErrorParameter                     // source route, segments left
	ErrorProhibited                    // what translation refuses otherwise
	ErrorProtocol                      // neither TCP, UDP nor ICMP (section 3.4)
	ErrorAddress                       // no address, port or room (section 3.5.1.1)
	ErrorUnreachable                   // nothing is bound there (section 3.5.1, 3.5.3)
	ErrorFiltered                      // by address-dependent filtering (section 3.5.1, 3.5.3)
	ErrorStoredSYN                     // a SYN waited in vain (section 3.5.2.2)
	numErrorClasses
)

// NumErrorClasses is the number of classes.
const NumErrorClasses = int(numErrorClasses)

var errorClassNames = [numErrorClasses]string{
	"hop_limit", "too_big", "parameter", "prohibited", "protocol", "address", "unreachable", "filtered", "stored_syn",
}

// String returns the name of the class in snake_case.
func (c ErrorClass) String() string {
	if c < numErrorClasses {
		return errorClassNames[c]
	}
	return "unknown"
}

// Defaults returns the settings that a gateway starts from: all but the pools, the
// clients and the addresses of its own. Errors about filtered packets are off, since
// a filter that answers reports what it hides.
func Defaults() Settings {
	s := Settings{
		Translate: translate.Settings{UDPZeroChecksum: translate.ZeroChecksumCompute},
		Timers: Timers{
			UDP:            5 * time.Minute,
			TCPEstablished: 2 * time.Hour,
			TCPTransitory:  4 * time.Minute,
			IncomingSYN:    6 * time.Second,
			ICMP:           time.Minute,
			Fragments:      2 * time.Second,
			Expected:       30 * time.Second,
			Quarantine:     2 * time.Minute,
		},
		Limits: Limits{
			ClientSessions:        16384,
			ClientBlocks:          4,
			StoredSYNs:            1024,
			StoredSYNsSource:      128,
			FragmentPackets:       4096,
			FragmentPacketsSource: 512,
			FragmentMemory:        4 << 20,
			FragmentMemorySource:  512 << 10,
			SweepSlice:            1 << 12,
		},
		Errors: Errors{Rate: 1000, Burst: 1000, SourceRate: 10, SourceBurst: 20},
	}
	s.Errors.Off[ErrorFiltered] = true
	return s
}
