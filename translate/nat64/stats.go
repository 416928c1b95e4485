// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

// Stats are the engine's counters. They only grow.
type Stats struct {
	// Packets that came out, by direction; hairpinned ones count in both.
	Translated6to4, Translated4to6 uint64
	Hairpinned                     uint64
	// Dropped counts the packets that came in and were not sent on.
	Dropped [NumReasons]uint64
	// ErrorsSent counts the ICMP errors of the engine's own.
	ErrorsSent [NumErrorClasses]uint64
	// ErrorsWithheld counts those beyond their rate, or of a kind that is off.
	ErrorsWithheld [NumErrorClasses]uint64

	SessionsMade, SessionsEnded uint64
	BindingsMade                uint64
	BlocksLeased, BlocksEnded   uint64
	Probes                      uint64 // sent to find out whether a connection lives (3.5.2.2)
	FragmentsStored             uint64
	AssembliesEvicted           uint64 // packets in fragments that gave way to others
	Reassembled                 uint64
	Detoured                    uint64 // packets of FTP control connections given to the proxy, and back
}

// Sizes is how full the tables are.
type Sizes struct {
	Sessions, Bindings, Subscribers int
	Blocks                          int // of ports, leased
	StoredSYNs                      int
	Assemblies                      int // packets in fragments
	Aliases                         int // FTP control connections on the detour
}
