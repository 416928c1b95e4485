// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import "github.com/isthmus-net/isthmus/gprs/gtp"

// Stats are counters of an [Engine].
type Stats struct {
	// Requests were sent, Repeated of them again; Answered were answered, Unanswered never.
	Requests, Repeated, Answered, Unanswered uint64
	// Created, Refused and Ended are contexts.
	Created, Refused, Ended uint64
	// PeerRequests of GGSNs were answered, PeerRepeats with the same answer as before.
	PeerRequests, PeerRepeats uint64
	// Echoes of peers were answered.
	Echoes uint64
	// Restarts of peers were seen.
	Restarts uint64
	// ErrorIndications, ExtensionNotifications and EndMarkers were received.
	ErrorIndications, ExtensionNotifications, EndMarkers uint64
	// ErrorIndicationsSent and ExtensionNotificationsSent answered packets.
	ErrorIndicationsSent, ExtensionNotificationsSent uint64
	// VersionsRefused were told that we do not speak their version.
	VersionsRefused uint64
	// Advertisements of routers were taken.
	Advertisements uint64
	// InformationRequests of terminals asked by DHCP, and InformationReplies answered.
	InformationRequests, InformationReplies uint64
	// PrefixRequests are messages of terminals about delegated prefixes, and PrefixReplies answers to them.
	PrefixRequests, PrefixReplies uint64
	Traffic
}

// Stats returns the counters.
func (e *Engine) Stats() Stats { return e.stats }

// Contexts is how many contexts there are, those included that open or close.
func (e *Engine) Contexts() int { return len(e.contexts) }

// drop is why something was dropped that is not malformed.
type drop uint8

const (
	dropMessage       drop = iota // a message that an SGSN does not take
	dropNoRequest                 // a response to nothing that was asked
	dropLost                      // lost on demand
	dropUnknownTunnel             // a user packet for no context
	dropPeer                      // a user packet, or an Error Indication, of another peer
	dropNotReady                  // a packet of a context that is not open
	dropWaiting                   // more than wait while a terminal moves
	dropNotIP                     // not an IP packet
	dropDestination               // a packet for an address that the terminal has not
	dropSource                    // a packet of a terminal from an address that it has not
	dropDiscovery                 // Neighbor Discovery of a terminal's stack, for we do it, and of the network what is not for us
	dropAdvertisement             // one that RFC 4861 section 6.1.2 refuses
	dropDHCP                      // an answer of DHCP that cannot be taken
	dropExtension                 // an extension header that must be understood
	dropLimit                     // what may be sent unasked is used up
	dropCongestion                // marked on its way, of a transport that does not know marks (RFC 6040 section 4.2)
	dropTooLong                   // a user packet that no datagram holds
	numDrops
)

var dropNames = [numDrops]string{
	dropMessage:       "unexpected_message",
	dropNoRequest:     "response_without_request",
	dropLost:          "lost_on_demand",
	dropUnknownTunnel: "unknown_tunnel",
	dropPeer:          "foreign_peer",
	dropNotReady:      "context_not_open",
	dropWaiting:       "too_many_waiting",
	dropNotIP:         "not_ip",
	dropDestination:   "foreign_destination",
	dropSource:        "foreign_source",
	dropDiscovery:     "neighbor_discovery",
	dropAdvertisement: "bad_advertisement",
	dropDHCP:          "bad_dhcp_reply",
	dropExtension:     "unknown_extension_header",
	dropLimit:         "answer_limit",
	dropCongestion:    "congestion",
	dropTooLong:       "packet_too_long",
}

// EachDropped calls f for every drop reason, in a fixed order.
func (e *Engine) EachDropped(f func(reason string, n uint64)) {
	for d, n := range e.drops {
		f(dropNames[d], n)
	}
	for i, n := range e.faults[1:] {
		f(gtp.Fault(i+1).String(), n)
	}
}
