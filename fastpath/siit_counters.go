// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"fmt"

	"github.com/cilium/ebpf/ringbuf"
)

// SIITReason is why a packet met its verdict in the programs of a stateless translator.
// bpf/siit_settings.h says what each means; words that the engine or a NAT64 has too mean
// the same there.
type SIITReason uint8

// What the programs forward, in words for those who add it up.
const (
	SIITTo4Forwarded = SIITReason(siitReasonREASON_TO4FORWARDED)
	SIITTo6Forwarded = SIITReason(siitReasonREASON_TO6FORWARDED)
	SIITPuntLimit    = SIITReason(siitReasonREASON_PUNT_LIMIT)
)

// numSIITReasons is how many there are.
const numSIITReasons = int(siitReasonREASON_COUNT)

var siitReasonNames = [numSIITReasons]string{
	siitReasonREASON_TO4FORWARDED: "to4_forwarded",
	siitReasonREASON_TO6FORWARDED: "to6_forwarded",

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
	siitReasonREASON_NO_NEXT_HOP: "no_next_hop",
	siitReasonREASON_OFFLOAD:     "offload",
	siitReasonREASON_NO_ROOM:     "no_room",

	siitReasonREASON_BAD_HEADER_CHECKSUM: "bad_header_checksum",
	siitReasonREASON_PUNT_LIMIT:          "punt_limit",
}

// String returns the reason as a stable snake_case word.
func (r SIITReason) String() string {
	if int(r) >= numSIITReasons {
		return "unknown"
	}
	return siitReasonNames[r]
}

// Verdict returns the verdict that goes with the reason.
func (r SIITReason) Verdict() Verdict {
	switch {
	case r >= SIITReason(siitReasonREASON_BAD_HEADER_CHECKSUM):
		return Drop
	case r >= SIITReason(siitReasonREASON_ASLEEP):
		return Punt
	}
	return Forward
}

// SIITCounter is how many packets met a verdict for one reason, since the programs were
// loaded.
type SIITCounter struct {
	Verdict Verdict
	Reason  SIITReason
	Packets uint64
	Bytes   uint64 // from the IP header on, as they came
}

// Counters returns one counter for each reason.
func (s *SIIT) Counters() ([]SIITCounter, error) {
	list := make([]SIITCounter, numSIITReasons)
	var cores []teredoCounter
	for i := range list {
		key := uint32(i)
		if err := s.tables["counters"].Lookup(&key, &cores); err != nil {
			return nil, fmt.Errorf("cannot read the counters of the fast path: %w", err)
		}
		c := &list[i]
		c.Reason, c.Verdict = SIITReason(i), SIITReason(i).Verdict()
		for _, core := range cores {
			c.Packets += core.Packets
			c.Bytes += core.Bytes
		}
	}
	return list, nil
}

// Samples returns a reader of the sampled packets; [ParseSample] takes its records apart,
// but for the reason, which is a [SIITReason].
func (s *SIIT) Samples() (*ringbuf.Reader, error) { return sampleReader(s.tables["samples"]) }
