// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import "github.com/isthmus-net/isthmus/fastpath"

// Reason is why a packet met its verdict. bpf/layout.h says what each means.
type Reason uint8

// What the fast path forwards, in words for those who add it up.
const (
	EncapForwarded     = Reason(teredoReasonREASON_ENCAP_FORWARDED)
	DecapForwarded     = Reason(teredoReasonREASON_DECAP_FORWARDED)
	HostEncapForwarded = Reason(teredoReasonREASON_HOST_ENCAP_FORWARDED)
	HostDecapForwarded = Reason(teredoReasonREASON_HOST_DECAP_FORWARDED)
	PuntLimit          = Reason(teredoReasonREASON_PUNT_LIMIT)
)

var teredoReasons = fastpath.Reasons{FirstPunt: int(teredoReasonREASON_ASLEEP), FirstDrop: int(teredoReasonREASON_TRUNCATED), Words: []string{
	teredoReasonREASON_ENCAP_FORWARDED:      "encap_forwarded",
	teredoReasonREASON_DECAP_FORWARDED:      "decap_forwarded",
	teredoReasonREASON_HOST_ENCAP_FORWARDED: "host_encap_forwarded",
	teredoReasonREASON_HOST_DECAP_FORWARDED: "host_decap_forwarded",

	teredoReasonREASON_ASLEEP:        "asleep",
	teredoReasonREASON_OWN_ADDRESS:   "own_address",
	teredoReasonREASON_IP_OPTIONS:    "ip_options",
	teredoReasonREASON_FRAGMENT:      "fragment",
	teredoReasonREASON_ODD_LENGTH:    "odd_length",
	teredoReasonREASON_INDICATION:    "indication",
	teredoReasonREASON_TRAILER:       "trailer",
	teredoReasonREASON_BUBBLE:        "bubble",
	teredoReasonREASON_NEXT_HEADER:   "next_header",
	teredoReasonREASON_SHORT_PAYLOAD: "short_payload",
	teredoReasonREASON_UNKNOWN_PEER:  "unknown_peer",
	teredoReasonREASON_BUSY_PEER:     "busy_peer",
	teredoReasonREASON_EXPIRED_PEER:  "expired_peer",
	teredoReasonREASON_FOREIGN_MOVED: "foreign_moved",
	teredoReasonREASON_CARRIED:       "carried",
	teredoReasonREASON_HOP_LIMIT:     "hop_limit",
	teredoReasonREASON_TOO_BIG:       "too_big",
	teredoReasonREASON_NO_NEXT_HOP:   "no_next_hop",
	teredoReasonREASON_SERVE_LIST:    "serve_list",
	teredoReasonREASON_OFFLOAD:       "offload",
	teredoReasonREASON_NO_ROOM:       "no_room",
	teredoReasonREASON_HOST_DIRECT:   "host_direct",

	teredoReasonREASON_TRUNCATED:          "truncated",
	teredoReasonREASON_NOT_IPV6:           "not_ipv6",
	teredoReasonREASON_BAD_LENGTH:         "bad_length",
	teredoReasonREASON_BAD_CHECKSUM:       "bad_checksum",
	teredoReasonREASON_SOURCE_NOT_TEREDO:  "source_not_teredo",
	teredoReasonREASON_MAPPING_MISMATCH:   "mapping_mismatch",
	teredoReasonREASON_NO_PEER:            "no_peer",
	teredoReasonREASON_BAD_SOURCE:         "bad_source",
	teredoReasonREASON_BAD_DESTINATION:    "bad_destination",
	teredoReasonREASON_TEREDO_TO_TEREDO:   "teredo_to_teredo",
	teredoReasonREASON_NOT_SERVED:         "not_served",
	teredoReasonREASON_NEIGHBOR_DISCOVERY: "neighbor_discovery",
	teredoReasonREASON_PUNT_LIMIT:         "punt_limit",
}}

// String returns the reason as a stable snake_case word.
func (r Reason) String() string { return teredoReasons.Word(uint8(r)) }

// Verdict returns the verdict that goes with the reason.
func (r Reason) Verdict() fastpath.Verdict { return teredoReasons.Verdict(uint8(r)) }
