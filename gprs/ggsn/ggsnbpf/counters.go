// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf

import "github.com/isthmus-net/isthmus/fastpath"

// Reason is why a packet met its verdict, as bpf/ggsn_layout.h lists them.
type Reason uint8

// The reasons by which packets leave.
const (
	UpForwarded   = Reason(ggsnReasonREASON_UP_FORWARDED)
	DownForwarded = Reason(ggsnReasonREASON_DOWN_FORWARDED)
)

var reasons = fastpath.Reasons{FirstPunt: int(ggsnReasonREASON_ASLEEP), FirstDrop: int(ggsnReasonREASON_OVER_RATE), Words: []string{
	ggsnReasonREASON_UP_FORWARDED:    "up_forwarded",
	ggsnReasonREASON_DOWN_FORWARDED:  "down_forwarded",
	ggsnReasonREASON_ASLEEP:          "asleep",
	ggsnReasonREASON_OUTER_FRAGMENT:  "outer_fragment",
	ggsnReasonREASON_OUTER_OPTIONS:   "outer_options",
	ggsnReasonREASON_ODD_LENGTH:      "odd_length",
	ggsnReasonREASON_NOT_GPDU:        "not_gpdu",
	ggsnReasonREASON_EXTENSION:       "extension",
	ggsnReasonREASON_OUTER_SOURCE:    "outer_source",
	ggsnReasonREASON_INNER_CHECKSUM:  "inner_checksum",
	ggsnReasonREASON_MARKED:          "marked",
	ggsnReasonREASON_WRONG_FAMILY:    "wrong_family",
	ggsnReasonREASON_SPOOFED:         "spoofed",
	ggsnReasonREASON_OTHER_SOURCE:    "other_source",
	ggsnReasonREASON_NO_RECORD:       "no_record",
	ggsnReasonREASON_IP_OPTIONS:      "ip_options",
	ggsnReasonREASON_FIRST_FRAGMENT:  "first_fragment",
	ggsnReasonREASON_SHORT_PAYLOAD:   "short_payload",
	ggsnReasonREASON_ILLEGAL_ADDRESS: "illegal_address",
	ggsnReasonREASON_ON_LINK:         "on_link",
	ggsnReasonREASON_REDIRECT:        "redirect",
	ggsnReasonREASON_TCP_SYN:         "tcp_syn",
	ggsnReasonREASON_HOP_LIMIT:       "hop_limit",
	ggsnReasonREASON_TOO_BIG:         "too_big",
	ggsnReasonREASON_TO_BE_CUT:       "to_be_cut",
	ggsnReasonREASON_VOLUME:          "volume",
	ggsnReasonREASON_CONTENDED:       "contended",
	ggsnReasonREASON_NO_NEXT_HOP:     "no_next_hop",
	ggsnReasonREASON_INSIDE:          "inside",
	ggsnReasonREASON_OFFLOAD:         "offload",
	ggsnReasonREASON_OVER_RATE:       "over_rate",
	ggsnReasonREASON_BAD_CHECKSUM:    "bad_checksum",
	ggsnReasonREASON_NO_ROOM:         "no_room",
	ggsnReasonREASON_PUNT_LIMIT:      "punt_limit",
}}

// String returns the reason as a word.
func (r Reason) String() string { return reasons.Word(uint8(r)) }

// Verdict returns the verdict that goes with the reason.
func (r Reason) Verdict() fastpath.Verdict { return reasons.Verdict(uint8(r)) }
