// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

// Fault names why bytes were refused. It is an error whose text is a stable
// snake_case reason, fit for a counter's label; as a small integer it costs no
// allocation when returned as an error. Every parser of this package returns a
// Fault or nil.
type Fault uint8

// The faults of this package.
const (
	FaultTruncated       Fault = iota + 1 // ends inside an element
	FaultNotIPv6                          // no IPv6 packet after the indications
	FaultLength                           // IPv6 payload length exceeds the datagram
	FaultIndicationOrder                  // an indication out of order or twice (RFC 4380 section 5.1.1)
	FaultUnknownTrailer                   // unknown trailer whose type demands a drop (RFC 6081 section 5.1.2)
	FaultBadAlternate                     // malformed Alternate Address trailer (RFC 6081 section 5.6.4.2)
	FaultNotSolicitation                  // no valid router solicitation
	FaultNotAdvert                        // no valid router advertisement
	FaultPrefixOptions                    // not exactly one Prefix Information option (RFC 4380 section 5.2.1)
	FaultMTU                              // MTU option outside 1280..65535
	FaultChecksum                         // wrong ICMPv6 checksum
	FaultNotTeredo                        // no Teredo address
	numFaults
)

var faultNames = [numFaults]string{
	0:                    "none",
	FaultTruncated:       "truncated",
	FaultNotIPv6:         "not_ipv6",
	FaultLength:          "bad_length",
	FaultIndicationOrder: "indication_order",
	FaultUnknownTrailer:  "unknown_trailer",
	FaultBadAlternate:    "bad_alternate_address",
	FaultNotSolicitation: "not_router_solicitation",
	FaultNotAdvert:       "not_router_advertisement",
	FaultPrefixOptions:   "prefix_options",
	FaultMTU:             "bad_mtu_option",
	FaultChecksum:        "bad_checksum",
	FaultNotTeredo:       "not_teredo_address",
}

// Error returns the reason.
func (f Fault) Error() string {
	if f >= numFaults {
		return "unknown"
	}
	return faultNames[f]
}
