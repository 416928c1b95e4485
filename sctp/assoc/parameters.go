// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import "time"

// Parameters are the protocol's (RFC 9260 section 16, RFC 7829 section 5), and the sizes of what an association
// holds. Those of an association may change while it lives; streams and buffers are told at its set-up.
type Parameters struct {
	PathParameters // of each path that has none of its own

	AssociationMaxRetrans int           // errors in a row that end the association
	MaxInitRetrans        int           // of INIT and of COOKIE ECHO
	CookieLife            time.Duration // in which the answer to an INIT can be used
	MaxBurst              int           // packets of new data that one event may send
	HeartbeatMaxBurst     int           // unconfirmed paths that are probed in one RTO
	SACKDelay             time.Duration // how long an acknowledgement may wait, at most 500 ms

	// What the peer is offered; it is used if the peer offers it, too.
	PartialReliability bool // messages may be given up (RFC 3758)
	Interleaving       bool // fragments of messages of several streams may mix (RFC 8260)
	AddressChanges     bool // addresses may come and go, authenticated (RFC 5061, RFC 4895)

	StreamsOut, StreamsIn uint16 // wanted; at most as many as the peer takes
	SendBuffer            int    // octets of messages that wait or are not yet acknowledged
	ReceiveBuffer         int    // octets that the peer may send before they are read
}

// PathParameters are those of a path.
type PathParameters struct {
	RTOInitial, RTOMin, RTOMax time.Duration
	// PathMaxRetrans errors in a row are borne; one more, and the path is inactive.
	PathMaxRetrans int
	// PotentiallyFailedMaxRetrans errors are borne before a path is avoided (RFC 7829 section 3.2). As many as
	// PathMaxRetrans or more switch that off.
	PotentiallyFailedMaxRetrans int
	// HeartbeatInterval is added to the RTO between two heartbeats of an idle path. Below zero there are none.
	HeartbeatInterval time.Duration
}

// Defaults are the values that the RFCs recommend.
func Defaults() Parameters {
	return Parameters{
		PathParameters: PathParameters{
			RTOInitial: time.Second, RTOMin: time.Second, RTOMax: time.Minute,
			PathMaxRetrans: 5, HeartbeatInterval: 30 * time.Second,
		},
		AssociationMaxRetrans: 10, MaxInitRetrans: 8, CookieLife: time.Minute,
		PartialReliability: true, AddressChanges: true,
		MaxBurst: 4, HeartbeatMaxBurst: 1, SACKDelay: 200 * time.Millisecond,
		StreamsOut: 10, StreamsIn: 2048, SendBuffer: 256 << 10, ReceiveBuffer: 256 << 10,
	}
}

// What RTO is computed with (RFC 9260 section 16), as shifts.
const (
	alphaShift = 3 // RTO.Alpha is 1/8
	betaShift  = 2 // RTO.Beta is 1/4
	// granularity is the least variance of round trips (RFC 9260 section 6.3.1, G1).
	granularity = time.Millisecond
)

// Bounds of what peers make us hold.
const (
	minWindow    = 1500     // octets, of the peer's receiver window (RFC 9260 section 3.3.2)
	maxAddresses = 16       // of a peer; more are not used
	maxPaths     = 64       // pairs of an association
	maxInit      = 16 << 10 // octets of an INIT, of which the cookie that answers it has the most
)
