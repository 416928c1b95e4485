// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"fmt"

	"github.com/cilium/ebpf/ringbuf"
)

// NAT64Reason is why a packet met its verdict in the programs of a NAT64.
// bpf/nat64_settings.h says what each means; words that the engine has too mean the same
// there.
type NAT64Reason uint8

// What the programs forward, in words for those who add it up.
const (
	NAT64To4Forwarded = NAT64Reason(nat64ReasonREASON_TO4FORWARDED)
	NAT64To6Forwarded = NAT64Reason(nat64ReasonREASON_TO6FORWARDED)
	NAT64PuntLimit    = NAT64Reason(nat64ReasonREASON_PUNT_LIMIT)
)

// numNAT64Reasons is how many there are.
const numNAT64Reasons = int(nat64ReasonREASON_COUNT)

var nat64ReasonNames = [numNAT64Reasons]string{
	nat64ReasonREASON_TO4FORWARDED: "to4_forwarded",
	nat64ReasonREASON_TO6FORWARDED: "to6_forwarded",

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
}

// String returns the reason as a stable snake_case word.
func (r NAT64Reason) String() string {
	if int(r) >= numNAT64Reasons {
		return "unknown"
	}
	return nat64ReasonNames[r]
}

// Verdict returns the verdict that goes with the reason.
func (r NAT64Reason) Verdict() Verdict {
	switch {
	case r >= NAT64Reason(nat64ReasonREASON_BAD_HEADER_CHECKSUM):
		return Drop
	case r >= NAT64Reason(nat64ReasonREASON_ASLEEP):
		return Punt
	}
	return Forward
}

// NAT64Counter is how many packets met a verdict for one reason, since the tables were
// made.
type NAT64Counter struct {
	Verdict Verdict
	Reason  NAT64Reason
	Packets uint64
	Bytes   uint64 // from the IP header on, as they came
}

// Counters returns one counter for each reason.
func (n *NAT64) Counters() ([]NAT64Counter, error) {
	list := make([]NAT64Counter, numNAT64Reasons)
	var cores []teredoCounter
	for i := range list {
		key := uint32(i)
		if err := n.tables["counters"].Lookup(&key, &cores); err != nil {
			return nil, fmt.Errorf("cannot read the counters of the fast path: %w", err)
		}
		c := &list[i]
		c.Reason, c.Verdict = NAT64Reason(i), NAT64Reason(i).Verdict()
		for _, core := range cores {
			c.Packets += core.Packets
			c.Bytes += core.Bytes
		}
	}
	return list, nil
}

// NAT64Sample is a packet as it came.
type NAT64Sample struct {
	Sample
	Reason NAT64Reason // in the place of Sample's
}

// Samples returns a reader of the sampled packets; [ParseNAT64Sample] takes its records
// apart.
func (n *NAT64) Samples() (*ringbuf.Reader, error) { return sampleReader(n.tables["samples"]) }

// ParseNAT64Sample takes a record of [NAT64.Samples] apart. Data aliases it.
func ParseNAT64Sample(b []byte) (NAT64Sample, error) {
	s, err := ParseSample(b)
	return NAT64Sample{Sample: s, Reason: NAT64Reason(s.Reason)}, err
}
