// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// Reason is why a packet met its verdict in the programs of a NAT64.
// bpf/nat64_settings.h says what each means; words that the engine has too mean the same
// there.
type Reason uint8

// What the programs forward, in words for those who add it up.
const (
	To4Forwarded = Reason(nat64ReasonREASON_TO4FORWARDED)
	To6Forwarded = Reason(nat64ReasonREASON_TO6FORWARDED)
	PuntLimit    = Reason(nat64ReasonREASON_PUNT_LIMIT)
)

var nat64Reasons = fastpath.Reasons{FirstPunt: int(nat64ReasonREASON_ASLEEP), FirstDrop: int(nat64ReasonREASON_BAD_HEADER_CHECKSUM), Words: []string{
	nat64ReasonREASON_TO4FORWARDED: translatebpf.To4Forwarded,
	nat64ReasonREASON_TO6FORWARDED: translatebpf.To6Forwarded,

	nat64ReasonREASON_ASLEEP:          "asleep",
	nat64ReasonREASON_IP_OPTIONS:      "ip_options",
	nat64ReasonREASON_FRAGMENT:        "fragment",
	nat64ReasonREASON_ODD_LENGTH:      "odd_length",
	nat64ReasonREASON_NEXT_HEADER:     "next_header",
	nat64ReasonREASON_SHORT_PAYLOAD:   "short_payload",
	nat64ReasonREASON_ZERO_CHECKSUM:   "udp_zero_checksum",
	nat64ReasonREASON_ICMP_TYPE:       "icmp_type",
	nat64ReasonREASON_ICMP_INNER:      "icmp_inner",
	nat64ReasonREASON_ILLEGAL_ADDRESS: "illegal_address",
	nat64ReasonREASON_NON_GLOBAL:      "well_known_prefix_non_global",
	nat64ReasonREASON_SOURCE_IN_POOL6: "source_in_pool6",
	nat64ReasonREASON_HAIRPIN:         "hairpin",
	nat64ReasonREASON_DETOUR:          "detour",

	nat64ReasonREASON_HOP_LIMIT:   "hop_limit_exceeded",
	nat64ReasonREASON_TOO_BIG:     "too_big",
	nat64ReasonREASON_TO_BE_CUT:   "to_be_cut",
	nat64ReasonREASON_NO_NEXT_HOP: "no_next_hop",
	nat64ReasonREASON_OFFLOAD:     "offload",
	nat64ReasonREASON_NO_ROOM:     "no_room",

	nat64ReasonREASON_NO_CLIENT:      "no_client",
	nat64ReasonREASON_NO_BINDING:     "no_binding",
	nat64ReasonREASON_NO_SESSION:     "no_session",
	nat64ReasonREASON_EXPIRED:        "expired",
	nat64ReasonREASON_ENGINE_SESSION: "engine_session",
	nat64ReasonREASON_FILTERED:       "filtered",
	nat64ReasonREASON_EXTERNAL_TCP:   "external_tcp",
	nat64ReasonREASON_ICMP_INFO:      "icmp_info",
	nat64ReasonREASON_STORED_SYN:     "stored_syn",
	nat64ReasonREASON_SYSTEM_PORT:    "system_port",
	nat64ReasonREASON_NO_PORT:        "no_port",
	nat64ReasonREASON_OTHER_PREFIX:   "other_prefix",
	nat64ReasonREASON_SESSION_LIMIT:  "session_limit",
	nat64ReasonREASON_SESSIONS_FULL:  "sessions_full",
	nat64ReasonREASON_BINDINGS_FULL:  "bindings_full",
	nat64ReasonREASON_BUSY:           "busy",

	nat64ReasonREASON_BAD_HEADER_CHECKSUM: "bad_header_checksum",
	nat64ReasonREASON_BAD_ICMP_CHECKSUM:   "bad_icmp_checksum",
	nat64ReasonREASON_PUNT_LIMIT:          "punt_limit",
}}

// String returns the reason as a stable snake_case word.
func (r Reason) String() string { return nat64Reasons.Word(uint8(r)) }

// Verdict returns the verdict that goes with the reason.
func (r Reason) Verdict() fastpath.Verdict { return nat64Reasons.Verdict(uint8(r)) }
