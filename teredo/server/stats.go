// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import "github.com/isthmus-net/isthmus/teredo"

// Counters count since the engine was made. Received is the sum of all others
// but Authenticated, KeysExpired and KeysUnknown, which tell advertisements apart.
type Counters struct {
	Received        uint64             // datagrams
	Advertisements  uint64             // router solicitations that were answered
	Authenticated   uint64             // of these, to clients with a valid key
	KeysExpired     uint64             // of these, to clients told that their key has expired
	KeysUnknown     uint64             // of these, to clients told that there is no such key
	Bubbles         uint64             // bubbles sent on to Teredo clients
	ICMPv6ToClients uint64             // ICMPv6 messages sent on to Teredo clients
	ToIPv6          uint64             // packets sent on to the IPv6 Internet
	EchoReplies     uint64             // echo requests to the server, answered
	Dropped         [NumReasons]uint64 // datagrams without effect, by Reason
}

// Reason says why a datagram was dropped.
type Reason uint8

// The reasons, in the order of the checks.
const (
	accepted             Reason = iota
	Truncated                   // ends inside an indication or header
	NotIPv6                     // no IPv6 packet
	BadLength                   // IPv6 payload length exceeds the datagram
	IndicationOrder             // an indication twice or out of order
	SourceSelf                  // from one of our own address and port pairs: a loop
	PortZero                    // from UDP port 0, or to a client with it
	Oversized                   // IPv6 packet above the MTU, or trailers above any use
	NotCarried                  // neither bubble nor ICMPv6 (rule 2)
	ShortICMPv6                 // ICMPv6 message without its fixed part
	SourceNotGlobal             // IPv4 source not global (rule 3)
	BadSolicitation             // router solicitation against RFC 4861 section 6.1.1
	BadChecksum                 // wrong checksum in a message for the server
	SourceMismatch              // Teredo source that is not the sender's (rule 5)
	SourceNotUnicast            // IPv6 source that no one can have
	NotServed                   // nothing that this server is for (rule 7)
	RateLimitSource             // above the limit of its IPv4 source
	RateLimitTotal              // above the limit in all
	AuthMissing                 // no authentication, which is required (rule 4)
	AuthUnknownClient           // client identifier without a key, and one is required (rule 4)
	AuthWrongValue              // authentication value not made with the client's key (section 5.2.2)
	ConeUnanswerable            // cone bit set, and no second address to answer from
	LocalUnhandled              // to the server, but nothing that it answers
	NeighborDiscovery           // Neighbor Discovery that would leave its link
	DestinationNotGlobal        // IPv6 destination not global
	MappedNotGlobal             // Teredo destination with a mapped address that is not global
	MappedSelf                  // Teredo destination mapped to our own address: a loop
	MappedServer                // Teredo destination mapped to its own server: a loop
	HopLimit                    // hop limit used up before the IPv6 Internet

	// NumReasons is the length of an array indexed by Reason; its element 0 stays
	// unused.
	NumReasons
)

var reasonNames = [NumReasons]string{
	accepted:             "none",
	Truncated:            "truncated",
	NotIPv6:              "not_ipv6",
	BadLength:            "bad_length",
	IndicationOrder:      "indication_order",
	SourceSelf:           "source_self",
	PortZero:             "port_zero",
	Oversized:            "oversized",
	NotCarried:           "not_bubble_or_icmpv6",
	ShortICMPv6:          "short_icmpv6",
	SourceNotGlobal:      "source_not_global",
	BadSolicitation:      "bad_router_solicitation",
	BadChecksum:          "bad_checksum",
	SourceMismatch:       "source_mismatch",
	SourceNotUnicast:     "source_not_unicast",
	NotServed:            "not_served",
	RateLimitSource:      "rate_limit_source",
	RateLimitTotal:       "rate_limit_total",
	AuthMissing:          "auth_missing",
	AuthUnknownClient:    "auth_unknown_client",
	AuthWrongValue:       "auth_wrong_value",
	ConeUnanswerable:     "cone_unanswerable",
	LocalUnhandled:       "local_unhandled",
	NeighborDiscovery:    "neighbor_discovery",
	DestinationNotGlobal: "destination_not_global",
	MappedNotGlobal:      "mapped_not_global",
	MappedSelf:           "mapped_self",
	MappedServer:         "mapped_server",
	HopLimit:             "hop_limit",
}

// String returns the reason in snake_case, fit for the label of a metric.
func (r Reason) String() string {
	if r >= NumReasons {
		return "unknown"
	}
	return reasonNames[r]
}

// reasonOf translates the fault of a parser.
func reasonOf(err error) Reason {
	switch err {
	case teredo.FaultTruncated:
		return Truncated
	case teredo.FaultLength:
		return BadLength
	case teredo.FaultIndicationOrder:
		return IndicationOrder
	case teredo.FaultNotSolicitation:
		return BadSolicitation
	case teredo.FaultChecksum:
		return BadChecksum
	}
	return NotIPv6
}
