// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

// Verdict is what became of a packet for the router's end of a link. Its text is stable
// and fit for a counter's label.
type Verdict uint8

// The verdicts. Those from ListenerReport on have no answer.
const (
	none               Verdict = iota
	Advertised                 // a router advertisement answers a solicitation
	NeighborAdvertised         // a neighbour advertisement does
	EchoReplied
	DHCPReplied
	DHCPDelegated // a prefix was offered, delegated, extended or released
	DHCPUnicast   // answered with nothing but UseMulticast (RFC 8415 section 18.4)

	ListenerReport   // no one needs to know (RFC 7066 section 2.5)
	OtherNeighbor    // a solicitation for an address that is not the router's, as for duplicates
	AdvertisedLately // an advertisement for all nodes has just been sent (RFC 4861 section 6.2.6)
	Limited          // too many answers on this link
	Unasked          // an advertisement or redirect, of which a router takes none from a terminal
	DHCPStateful     // a message about addresses or prefixes, which DHCP does not give here
	NotServed        // anything else
	ForeignSource    // the terminal has no such address
	Malformed        // a length, an option or a field is wrong
	BadHopLimit      // a router forwarded it (RFC 4861 sections 6.1.1 and 7.1.1)
	BadChecksum
	Fragment // RFC 6980 section 5
	DHCPMalformed
	DHCPTooMany     // more associations than are looked at
	DHCPOtherServer // for another server (RFC 8415 section 16.12)
	NumVerdicts     = iota
)

var verdictNames = [NumVerdicts]string{
	none:               "none",
	Advertised:         "router_advertised",
	NeighborAdvertised: "neighbor_advertised",
	EchoReplied:        "echo_replied",
	DHCPReplied:        "dhcp_replied",
	DHCPDelegated:      "dhcp_delegated",
	DHCPUnicast:        "dhcp_unicast",
	ListenerReport:     "listener_report",
	OtherNeighbor:      "other_neighbor",
	AdvertisedLately:   "advertised_lately",
	Limited:            "link_answer_rate",
	Unasked:            "unasked_advertisement",
	DHCPStateful:       "dhcp_stateful",
	NotServed:          "link_not_served",
	ForeignSource:      "foreign_link_source",
	Malformed:          "link_malformed",
	BadHopLimit:        "link_hop_limit",
	BadChecksum:        "link_checksum",
	Fragment:           "link_fragment",
	DHCPMalformed:      "dhcp_malformed",
	DHCPTooMany:        "dhcp_many_associations",
	DHCPOtherServer:    "dhcp_other_server",
}

// String returns the name of the verdict.
func (v Verdict) String() string {
	if int(v) >= NumVerdicts {
		return "unknown"
	}
	return verdictNames[v]
}

// Answered reports whether there is an answer.
func (v Verdict) Answered() bool { return v >= Advertised && v <= DHCPUnicast }
