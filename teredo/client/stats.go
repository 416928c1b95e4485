// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import "github.com/isthmus-net/isthmus/teredo"

// Reason says why a packet was dropped. The reasons above numReasons are the
// faults of the codec.
type Reason uint8

// Reasons.
const (
	NotQualified         Reason = iota // no address yet, or no more
	OwnSource                          // from our own address: a loop or a forgery
	BadDestination                     // inner destination is not ours, or not a unicast address of global scope
	BadSource                          // inner source cannot be a peer, or is not our address
	BadPacket                          // from the stack: not one whole IPv6 packet
	TooBig                             // from the stack: larger than the MTU
	NeighborDiscovery                  // Neighbor Discovery that is no answer to our solicitation
	Unsolicited                        // the inbound policy refused a peer not contacted before
	ForeignMapping                     // Teredo source whose mapping is not the outer source (RFC 6081 section 5.2.4.4)
	EarlyBubble                        // direct bubble that a symmetric NAT let in by its reserved port, before its sender can know our mapping
	DataThroughServer                  // data of another client by way of the server
	NotGlobal                          // an IPv4 address that may not be sent to (RFC 4380 section 5.2.4)
	RateLimited                        // an answer withheld, or too many new peers from one IPv4 address
	QueueFull                          // no room to wait for a peer
	Unreachable                        // the peer did not answer
	PeerEvicted                        // waited for a peer that lost its place
	AddressGone                        // waited while the address was lost or changed
	UnaskedAdvertisement               // advertisement that no one waits for
	WrongNonce                         // advertisement without our nonce (RFC 4380 section 5.2.2)
	NoOrigin                           // advertisement without origin indication
	WrongAdvertised                    // advertisement for another destination, or with a foreign prefix
	WrongAuthentication                // advertisement without the right value under our key (RFC 4380 section 5.2.2)
	KeyRefused                         // advertisement that says to get another key
	ForeignPort                        // on a random port from another than its peer
	BadRandomPort                      // Random Port trailer below 1024
	AlternateRefused                   // alternate address that cannot be a neighbour's (RFC 6081 section 7)
	UnaskedBinding                     // a relay's step of a binding that no one waits for
	NotDiscovery                       // on the discovery address, but no local discovery bubble
	NotLocal                           // local discovery bubble of no neighbour behind the same NAT
	NotSearched                        // on the secondary port, but nothing that the search waits for
	numReasons
)

var reasonNames = [numReasons]string{
	"not_qualified", "own_source", "bad_destination", "bad_source", "bad_packet", "too_big",
	"neighbor_discovery", "unsolicited", "foreign_mapping", "early_bubble", "data_through_server", "not_global",
	"rate_limited", "queue_full", "unreachable", "peer_evicted", "address_gone",
	"unasked_advertisement", "wrong_nonce", "no_origin", "wrong_advertised_prefix",
	"wrong_authentication", "key_refused",
	"foreign_port", "bad_random_port", "alternate_refused",
	"unasked_binding", "not_discovery", "not_local", "not_searched",
}

// maxFaults leaves room for the codec's faults.
const maxFaults = 16

// NumReasons is the number of values of Reason, unused ones included.
const NumReasons = int(numReasons) + maxFaults

// String returns the reason in snake_case; it is empty for unused values.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	if name := teredo.Fault(r - numReasons).Error(); name != "unknown" && name != "none" {
		return name
	}
	return ""
}

// faultReason is the reason for an error of the codec.
func faultReason(err error) Reason {
	if f, ok := err.(teredo.Fault); ok && f < maxFaults {
		return numReasons + Reason(f)
	}
	return BadPacket
}

// Stats counts. All values only grow.
type Stats struct {
	Received, Delivered uint64 // UDP payloads; IPv6 packets to the stack
	FromStack, Sent     uint64 // IPv6 packets; of them sent to peers
	Solicitations       uint64 // sent
	Advertisements      uint64 // valid ones received
	DirectBubbles       uint64 // sent
	IndirectBubbles     uint64 // sent
	BubblesReceived     uint64
	EchoTests           uint64 // sent
	RelayedBubbles      uint64 // sent by relays to clients
	BindingRequests     uint64 // sent to relays
	DiscoveryBubbles    uint64 // sent to the link
	ICMPErrors          uint64 // sent to the stack
	Evictions           uint64 // of peers
	RandomPorts         uint64 // opened
	RandomPortsRefused  uint64 // not opened: all in use, or the system refused
	PortPredictions     uint64 // begun
	AlternateBubbles    uint64 // sent
	PeerSolicitations   uint64 // sent
	Dropped             [NumReasons]uint64
}

func (c *Client) drop(r Reason) { c.stats.Dropped[r]++ }
