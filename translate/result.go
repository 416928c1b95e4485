// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package translate

// Verdict says what became of a packet.
type Verdict uint8

// The verdicts.
const (
	Translated Verdict = iota // what came out is in the batch
	Drop                      // nothing is sent
	Error                     // nothing passes; the sender is owed the ICMP error in the result
)

// String returns the verdict's name.
func (v Verdict) String() string {
	switch v {
	case Translated:
		return "translated"
	case Drop:
		return "drop"
	case Error:
		return "error"
	}
	return "unknown"
}

// Result is what became of one packet.
type Result struct {
	Verdict Verdict
	Reason  Reason // ReasonNone when translated
	// Error is the ICMP packet owed to the sender, of the family that came in, with
	// verdict Error only. It lies in the batch's memory but is not among its
	// packets: the caller decides whether it may go (RFC 7915 sections 4.4, 5.4).
	Error []byte
}

// Reason names why a packet was not translated. Its text is stable and fit for a
// counter's label.
type Reason uint8

// The reasons. Sections are of RFC 7915 unless another is named.
const (
	ReasonNone                Reason = iota
	ReasonTruncated                  // shorter than its header or its length says
	ReasonVersion                    // not of the family it was handed in as
	ReasonHeaderLength               // IPv4 header length below 20 or beyond the packet
	ReasonHeaderChecksum             // wrong IPv4 header checksum (RFC 1812 section 5.2.2)
	ReasonFragment                   // a fragment that no packet can be made of
	ReasonIllegalSource              // source no host may have (4.1, 5.1)
	ReasonIllegalDestination         // destination no packet is forwarded to (RFC 1812 section 5.3.7)
	ReasonSourceRoute                // unexpired IPv4 source route (4.1)
	ReasonSegmentsLeft               // unexpired IPv6 routing header (5.1)
	ReasonExtensionHeaders           // chain of extension headers cut or too long
	ReasonFragmentExtension          // extension header inside a fragment (5.1.1)
	ReasonSourceUnmapped             // no rule maps the source
	ReasonDestinationUnmapped        // no rule maps the destination
	ReasonNonGlobal                  // well-known prefix with a non-global address (RFC 6052 section 3.1)
	ReasonHopLimit                   // TTL or hop limit used up (4.1, 5.1)
	ReasonTooBig                     // larger than the next link takes (4.1, 5.1)
	ReasonMisplacedProtocol          // a header of the other family only
	ReasonIGMP                       // single-hop message (4.2)
	ReasonTransport                  // transport header cut short
	ReasonUDPZeroChecksum            // no UDP checksum, where that is not let through (4.5)
	ReasonUDPZeroFragment            // the same in a first fragment (4.5)
	ReasonUDPLength                  // UDP length does not fit the packet
	ReasonFragmentedICMP             // section 1.2
	ReasonICMPType                   // ICMP message without a counterpart (4.2, 5.2)
	ReasonICMPPointer                // pointer to a field without a counterpart (4.2, 5.2)
	ReasonICMPChecksum               // ICMP error with a wrong checksum
	ReasonInner                      // the quoted packet cannot be read
	ReasonInnerError                 // an ICMP error about an ICMP error (4.3, 5.3)
	ReasonInnerICMP                  // the quoted ICMP message has no counterpart
	ReasonInnerUnmapped              // no rule maps an address of the quoted packet
	ReasonICMPExtension              // RFC 4884 length beyond the message
	numReasons
)

// NumReasons is the number of reasons, for an array of counters.
const NumReasons = int(numReasons)

var reasonNames = [numReasons]string{
	ReasonNone:                "none",
	ReasonTruncated:           "truncated",
	ReasonVersion:             "bad_version",
	ReasonHeaderLength:        "bad_header_length",
	ReasonHeaderChecksum:      "bad_header_checksum",
	ReasonFragment:            "bad_fragment",
	ReasonIllegalSource:       "illegal_source",
	ReasonIllegalDestination:  "illegal_destination",
	ReasonSourceRoute:         "source_route",
	ReasonSegmentsLeft:        "segments_left",
	ReasonExtensionHeaders:    "bad_extension_headers",
	ReasonFragmentExtension:   "fragment_extension_header",
	ReasonSourceUnmapped:      "source_unmapped",
	ReasonDestinationUnmapped: "destination_unmapped",
	ReasonNonGlobal:           "well_known_prefix_non_global",
	ReasonHopLimit:            "hop_limit_exceeded",
	ReasonTooBig:              "too_big",
	ReasonMisplacedProtocol:   "misplaced_protocol",
	ReasonIGMP:                "igmp",
	ReasonTransport:           "truncated_transport",
	ReasonUDPZeroChecksum:     "udp_zero_checksum",
	ReasonUDPZeroFragment:     "udp_zero_checksum_fragment",
	ReasonUDPLength:           "bad_udp_length",
	ReasonFragmentedICMP:      "fragmented_icmp",
	ReasonICMPType:            "icmp_type",
	ReasonICMPPointer:         "icmp_pointer",
	ReasonICMPChecksum:        "bad_icmp_checksum",
	ReasonInner:               "bad_inner_packet",
	ReasonInnerError:          "inner_icmp_error",
	ReasonInnerICMP:           "inner_icmp_type",
	ReasonInnerUnmapped:       "inner_unmapped",
	ReasonICMPExtension:       "bad_icmp_extension",
}

// String returns the name of the reason.
func (r Reason) String() string {
	if r >= numReasons {
		return "unknown"
	}
	return reasonNames[r]
}

// Reportable reports whether the RFC wants the operator told of the packet, with its
// addresses and ports, beside its being counted (sections 4.5 and 5.1.1).
func (r Reason) Reportable() bool {
	return r == ReasonUDPZeroChecksum || r == ReasonUDPZeroFragment || r == ReasonFragmentExtension
}

// fault is a reason with the number that the ICMP error about it carries: the MTU or
// the pointer. The zero fault is none.
type fault struct {
	reason Reason
	param  uint32
}

// refuse makes a fault without a number.
func refuse(r Reason) fault { return fault{reason: r} }
