// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// Reason is why a datagram or packet was dropped. Those of [gtp.Fault] come first, with the
// same numbers and names.
type Reason uint8

// The reasons that only a node has.
const (
	// Datagrams of both planes.
	Stranger         Reason = Reason(gtp.NumFaults) + iota // not of a peer
	PeersFull                                              // no room for one more peer
	RequestRate                                            // more requests of the peer than it may send
	ResponseUnknown                                        // an answer to no request
	ExtensionUnknown                                       // an extension header that must be understood and is not
	SequenceMissing                                        // a message of the control plane without a sequence number
	IndicationWrong                                        // an Error Indication that fits no context
	LabelGuessed                                           // a request for a context of version 0 that too many have named by wrong flow labels
	CreateLate                                             // a Create Request that came before, of a context that has ended
	CreateWaiting                                          // one that came before, and waits to be authorized
	CreateForgotten                                        // one that has waited, of an SGSN that has restarted since

	// G-PDUs.
	TEIDUnknown      // of no context
	OuterSource      // not from the node that has the context's user plane
	NotIP            // what it carries is no IP packet, or is cut short
	WrongFamily      // of a family that the context has not
	SpoofedIPv4      // a source that is not the context's
	SpoofedIPv6      // a source outside of the context's prefix
	SpoofedLinkLocal // a link-local source that is not the terminal's own
	LinkScope        // a link-local destination other than for what the node answers, or any from the network
	LinkControl      // a message to the link's router that is malformed, or of no use
	Multicast        // for a group: there is none
	OwnAddress       // for the node itself
	BadDestination   // an address that no packet is forwarded to
	UserDenied       // for another terminal, which the access point does not allow
	Congestion       // marked on its way, and of a transport that knows congestion by loss alone (RFC 6040 section 4.2)

	// Packets of either direction.
	HopLimit // used up
	TooBig   // for the link of the terminal
	OverRate // of the context, or of all contexts of the terminal at the access point together

	// Packets for terminals.
	NoContext    // for an address that no context has, also from a terminal
	InsideSource // from outside with a source of the inside
	BadSource    // a source that no packet is forwarded from
	Redirect     // of ICMP: no router of the network speaks to a terminal
	NoFilter     // no context's filters match it
	numReasons
)

// none is the reason of what was not dropped.
const none Reason = 0

// NumReasons is the number of reasons, for an array of counters.
const NumReasons = int(numReasons)

var reasonNames = [numReasons - Stranger]string{
	"stranger", "peers_full", "request_rate", "response_unknown", "extension_unknown", "sequence_missing", "indication_wrong", "label_guessed", "create_late", "create_waiting", "create_forgotten",
	"teid_unknown", "outer_source", "not_ip", "wrong_family", "spoofed_ipv4", "spoofed_ipv6", "spoofed_link_local",
	"link_scope", "link_control", "multicast", "own_address", "bad_destination", "user_denied", "congestion",
	"hop_limit", "too_big", "over_rate",
	"no_context", "inside_source", "bad_source", "redirect", "no_filter",
}

// String returns the name of the reason, stable and fit for a counter's label.
func (r Reason) String() string {
	switch {
	case r < Stranger:
		return gtp.Fault(r).String()
	case r < numReasons:
		return reasonNames[r-Stranger]
	}
	return "unknown"
}
