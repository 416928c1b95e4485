// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

// Reason is why a packet was dropped.
type Reason uint8

// The reasons.
const (
	// Form, either direction.
	Truncated       Reason = iota // shorter than an IPv6 header or an indication
	NotIPv6                       // no IPv6 packet
	BadLength                     // IPv6 payload length exceeds what came
	IndicationOrder               // an indication out of order or twice

	// Addresses of packets from IPv6 hosts.
	DestinationNotTeredo // not below a served Teredo prefix
	BadSource            // multicast, link-local, loopback or no address
	MappedNotGlobal      // the client's mapped IPv4 address is not global unicast
	ServerNotGlobal      // the client's server is not global unicast
	MappedToServer       // the client claims the address and port of its server
	OwnAddress           // one of our own IPv4 addresses; either direction
	TeredoToTeredo       // both addresses are Teredo addresses; either direction

	// Addresses of packets from clients.
	SourceNotTeredo   // not below a served Teredo prefix
	MappingMismatch   // the outer source is not the mapped address of the inner one
	BadKey            // a bubble from a foreign mapping without our key
	KeyRate           // too many bubbles from foreign mappings
	NoPeer            // from a client to which nothing was sent before
	BadDestination    // multicast, link-local, loopback or no address
	NeighborDiscovery // a message of another link
	NotServed         // a destination outside the ranges that clients may send to

	// What forwarding demands.
	HopLimitReached // answered with Time Exceeded
	TooBig          // answered with Packet Too Big

	// Peers under test.
	QueueFull   // as much waits for the peer, or for all, as may
	PeerSilent  // the peer answered no bubble lately
	NoAnswer    // waited for a peer that answered no bubble
	PeerEvicted // waited for a peer that lost its place to another
	BubbleRate  // would need a new peer: too many bubbles a second in all
	SourceRate  // the same: too many new peers by one source network
	ServerRate  // the same: too many new peers of one server

	StrangerRate // too many new clients from one IPv4 address, to a host-specific relay

	PeerRate  // from a new peer of a host-specific relay: too many new ones a second
	TableFull // from a new peer, and all that are known were heard lately

	ForeignFull // the same of peers with a mapping that is not in their address
	MappingFull // from a new peer, and too many others have its mapping

	// Between clients.
	NotBound        // from a client that is not bound, or elsewhere than it is
	NoBinding       // to a client that is not bound; answered by an ICMPv6 error
	CarryClientRate // one client sends too much
	CarryRate       // all clients together do
	BadBinding      // a step of a binding without nonce or with a wrong or old key
	BindingRate     // too many steps, from one address or in all
	BindingsFull    // no room for one more binding
	numReasons
)

var reasonNames = [numReasons]string{
	Truncated: "truncated", NotIPv6: "not_ipv6", BadLength: "bad_length", IndicationOrder: "indication_order",
	DestinationNotTeredo: "destination_not_teredo", BadSource: "bad_source",
	MappedNotGlobal: "mapped_not_global", ServerNotGlobal: "server_not_global",
	MappedToServer: "mapped_to_server", OwnAddress: "own_address", TeredoToTeredo: "teredo_to_teredo",
	SourceNotTeredo: "source_not_teredo", MappingMismatch: "mapping_mismatch",
	BadKey: "bad_key", KeyRate: "key_rate", NoPeer: "no_peer",
	BadDestination: "bad_destination", NotServed: "not_served", NeighborDiscovery: "neighbor_discovery",
	HopLimitReached: "hop_limit", TooBig: "too_big",
	QueueFull: "queue_full", PeerSilent: "peer_silent", NoAnswer: "no_answer", PeerEvicted: "peer_evicted",
	NotBound: "not_bound", NoBinding: "no_binding", CarryClientRate: "carry_client_rate", CarryRate: "carry_rate",
	BadBinding: "bad_binding", BindingRate: "binding_rate", BindingsFull: "bindings_full",
	BubbleRate: "bubble_rate", SourceRate: "source_rate", ServerRate: "server_rate",
	StrangerRate: "stranger_rate", PeerRate: "peer_rate", TableFull: "table_full",
	ForeignFull: "foreign_full", MappingFull: "mapping_full",
}

// String returns the reason as a stable snake_case word.
func (r Reason) String() string {
	if r >= numReasons {
		return "unknown"
	}
	return reasonNames[r]
}

// Stats counts what the relay has done since it was made, in packets.
type Stats struct {
	FromIPv6 uint64 // handed in by HandleIP
	ToUDP    uint64 // sent to clients; bubbles, copies and errors not counted
	FromUDP  uint64 // handed in by HandleUDP
	ToIPv6   uint64 // delivered to IPv6 hosts; errors not counted

	HostMulticast uint64 // of FromIPv6: multicast of the relay's own host, let go

	BubblesSent     uint64 // indirect ones; each may have a direct twin
	BubblesReceived uint64
	EchoCopies      uint64 // answers to connectivity tests sent through servers
	Queued          uint64 // packets that had to wait for their peer
	Flushed         uint64 // of which sent when the peer answered
	ForeignMappings uint64 // mappings learnt by our key, of symmetric clients
	PeersUnanswered uint64 // peers that answered no bubble

	Carried  uint64 // packets from client to client
	Bindings uint64 // clients bound again or at another mapping

	ErrorsSent       uint64 // ICMPv6 errors
	ErrorsSuppressed uint64 // not sent, by their rate or for want of an address

	Dropped [numReasons]uint64 // by Reason
}

// EachDropped calls f for every reason, in a fixed order.
func (s *Stats) EachDropped(f func(Reason, uint64)) {
	for i, n := range s.Dropped {
		f(Reason(i), n)
	}
}

func (r *Relay) drop(why Reason) { r.stats.Dropped[why]++ }
