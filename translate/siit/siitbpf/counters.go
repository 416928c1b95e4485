// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf

import (
	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/translate/translatebpf"
)

// Reason is why a packet met its verdict in the programs of a stateless translator.
// bpf/siit_settings.h says what each means; words that the engine or a NAT64 has too mean
// the same there.
type Reason uint8

// What the programs forward, in words for those who add it up.
const (
	To4Forwarded = Reason(siitReasonREASON_TO4FORWARDED)
	To6Forwarded = Reason(siitReasonREASON_TO6FORWARDED)
	PuntLimit    = Reason(siitReasonREASON_PUNT_LIMIT)
)

var siitReasons = fastpath.Reasons{FirstPunt: int(siitReasonREASON_ASLEEP), FirstDrop: int(siitReasonREASON_BAD_HEADER_CHECKSUM), Words: []string{
	siitReasonREASON_TO4FORWARDED: translatebpf.To4Forwarded,
	siitReasonREASON_TO6FORWARDED: translatebpf.To6Forwarded,

	siitReasonREASON_ASLEEP:               "asleep",
	siitReasonREASON_IP_OPTIONS:           "ip_options",
	siitReasonREASON_FRAGMENT:             "fragment",
	siitReasonREASON_ODD_LENGTH:           "odd_length",
	siitReasonREASON_NEXT_HEADER:          "next_header",
	siitReasonREASON_SHORT_PAYLOAD:        "short_payload",
	siitReasonREASON_ZERO_CHECKSUM:        "udp_zero_checksum",
	siitReasonREASON_ICMP_TYPE:            "icmp_type",
	siitReasonREASON_ICMP_ERROR:           "icmp_error",
	siitReasonREASON_ILLEGAL_ADDRESS:      "illegal_address",
	siitReasonREASON_NON_GLOBAL:           "well_known_prefix_non_global",
	siitReasonREASON_SOURCE_UNMAPPED:      "source_unmapped",
	siitReasonREASON_DESTINATION_UNMAPPED: "destination_unmapped",
	siitReasonREASON_HAIRPIN:              "hairpin",

	siitReasonREASON_HOP_LIMIT:   "hop_limit_exceeded",
	siitReasonREASON_TOO_BIG:     "too_big",
	siitReasonREASON_TO_BE_CUT:   "to_be_cut",
	siitReasonREASON_NO_NEXT_HOP: "no_next_hop",
	siitReasonREASON_OFFLOAD:     "offload",
	siitReasonREASON_NO_ROOM:     "no_room",

	siitReasonREASON_BAD_HEADER_CHECKSUM: "bad_header_checksum",
	siitReasonREASON_PUNT_LIMIT:          "punt_limit",
}}

// String returns the reason as a stable snake_case word.
func (r Reason) String() string { return siitReasons.Word(uint8(r)) }

// Verdict returns the verdict that goes with the reason.
func (r Reason) Verdict() fastpath.Verdict { return siitReasons.Verdict(uint8(r)) }
