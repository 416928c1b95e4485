// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import "github.com/isthmus-net/isthmus/gprs/link"

// Stats are counters of an engine; they only grow.
type Stats struct {
	// Created, Updated and Ended are contexts; Ended by reason.
	Created, Updated uint64
	Ended            [NumEnds]uint64
	Records          [NumClosings]uint64 // charging records, by why they were closed
	// Answers are those to requests of SGSNs, by cause; Repeated are those that were
	// sent again, since the request came again.
	Answers  [256]uint64
	Repeated uint64
	// Requests are those that this node sent, Retries those sent again, Unanswered those
	// given up.
	Requests, Retries, Unanswered uint64
	// Echoes are Echo Requests of peers that were answered.
	Echoes uint64
	// Indications are Error Indications that were sent.
	Indications, IndicationsReceived uint64
	// VersionsRefused are answers of Version Not Supported.
	VersionsRefused uint64
	// Asked are Create Requests that waited to be authorized; GrantsLate are the answers that came
	// when they had waited too long.
	Asked, GrantsLate uint64
	// Verdicts are what became of those that waited.
	Verdicts [NumVerdicts]uint64
	// OptionsUnanswered are protocol configuration options of terminals that need no answer, or get none here,
	// OptionsUnknown those of which this node knows nothing.
	OptionsUnanswered, OptionsUnknown uint64
	// PoolsUnknown were named for terminals, whose access point has none of the name.
	PoolsUnknown uint64
	// Renumbered are prefixes that sessions got in place of others, RenumberWaits the times that none was free.
	Renumbered, RenumberWaits uint64
	// RoutesRefused were granted to terminals, which could not have them.
	RoutesRefused [NumRouteFaults]uint64
	// DelegationsRefused are prefixes that a terminal's clients did not get, since they come and go too often.
	DelegationsRefused uint64
	// Restarts and PathsDown are of peers.
	Restarts, PathsDown uint64
	// RestartsDoubted are restart counters lower than the ones before, which do not count by themselves.
	RestartsDoubted uint64
	// EndMarkers of tunnels, and elements passed over in messages.
	EndMarkers, ElementsPassedOver uint64
	// Up are packets of terminals, Down those for them.
	Up, Down Traffic
	// Link are messages of terminals to the router of their link, by what became of them;
	// Adverts are router advertisements that nobody asked for.
	Link    [link.NumVerdicts]uint64
	Adverts uint64
	// ICMPErrors are those sent; ICMPLimited were not, for their rate.
	ICMPErrors, ICMPLimited uint64
	// ECNOdd are G-PDUs of terminals whose ECN fields no known tunnel makes (RFC 6040 section 4.2).
	ECNOdd uint64
	// Clamped are TCP segments whose MSS was lowered.
	Clamped uint64
	Dropped [NumReasons]uint64
}

// Traffic is how much passed: packets, and octets of the inner packets.
type Traffic struct{ Packets, Octets uint64 }

// add counts a packet.
func (t *Traffic) add(octets int) {
	t.Packets++
	t.Octets += uint64(octets)
}

// Plus is the sum of two.
func (t Traffic) Plus(u Traffic) Traffic { return Traffic{t.Packets + u.Packets, t.Octets + u.Octets} }

// Sizes are how full the tables are.
type Sizes struct {
	Sessions, Contexts, Peers int
	// Requests are those that wait for an answer, Releasing contexts that are to go.
	Requests, Releasing int
	Delegated           int // contexts with a delegated prefix
	Former              int // prefixes that sessions had before, and have until their time is over
	// Waiting are Create Requests that are to be authorized.
	Waiting int
	Pools   []PoolSize
	// Parts are those of Pools that have named ones.
	Parts []PoolSize
}

// PoolSize is how full the dynamic pools of one access point and family are.
type PoolSize struct {
	APN  string
	IPv6 bool
	Part string // its name, or [NoName]; empty: all of the pool
	// Held are free and not given to another yet.
	Used, Held, Free uint64
	// Leaving are used or held, and the settings no longer have them.
	Leaving uint64
}

// NoName is the part of a pool for whom no name is said.
const NoName = "no name"
