// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import "github.com/isthmus-net/isthmus/translate"

// Reason is why a packet was not sent on. Those of [translate.Reason] come first, with
// the same numbers and names.
type Reason uint8

// The reasons that only a stateful translator has. Sections are of RFC 6146 unless
// another is named.
const (
	NotPool6            Reason = Reason(translate.NumReasons) + iota // destination outside of pool6 (3.5)
	NotPool4                                                         // destination outside of pool4 (3.5)
	SourceInPool6                                                    // source inside of pool6 (3.5, 5.4)
	SourceInPool4                                                    // source that is the pool's own
	Protocol                                                         // neither TCP, UDP nor ICMP (3.4)
	NotClient                                                        // source that may not use the translator (1.2.3)
	NoBinding                                                        // nothing is bound to the pool's address and port (3.5.1, 3.5.2, 3.5.3)
	NoSession                                                        // a quoted packet, or a TCP segment, without a session
	Filtered                                                         // by address-dependent filtering (3.5.1, 3.5.3)
	ExternalTCP                                                      // connections from the IPv4 side are not wanted (3.5.2.2)
	ICMPInfo                                                         // ICMPv6 queries are not wanted (3.5.3)
	NoPort                                                           // no port of the pool is left for the client (3.5.1.1)
	NoAddress                                                        // no block of ports is left in the pool
	SessionLimit                                                     // the client has as many sessions as it may
	SessionsFull                                                     // no room for one more session
	BindingsFull                                                     // no room for one more binding
	SubscribersFull                                                  // no room for one more client
	Busy                                                             // a lock of the state was held too long
	StoredSYN                                                        // a SYN that now waits, to be answered or given up (3.5.2.2)
	StoredSYNReplaced                                                // it waited, and a SYN of the IPv6 side came (RFC 5382 REQ-4)
	StoredSYNUnanswered                                              // it waited in vain
	StoredSYNsFull                                                   // one gave way: as many SYNs wait as may
	StoredSYNsSource                                                 // one gave way: as many of its client or host
	FragmentOverlap                                                  // overlaps another fragment (RFC 5722)
	FragmentDuplicate                                                // is there already
	FragmentTooMany                                                  // more holes in a packet than are kept in mind
	FragmentsFull                                                    // no packets in fragments are remembered
	FragmentsSource                                                  // gave way to a newer one, since its client has its share
	FragmentEvicted                                                  // gave way to that of another, since its client had most of a full table
	FragmentMemory                                                   // too large a part of the memory for fragments that wait
	FragmentTimeout                                                  // waited for others in vain
	FragmentRefused                                                  // of a packet whose first fragment was dropped
	FragmentTooLong                                                  // the whole would be too long for a packet
	DetourFull                                                       // no alias number is left for an FTP control connection, or for more of the client
	DetourUnknown                                                    // an alias number that no one has
	DetourForged                                                     // came from the network in the proxy's name
	OwnAddress                                                       // for an address of this host itself
	numReasons
)

// NumReasons is the number of reasons, for an array of counters.
const NumReasons = int(numReasons)

var reasonNames = [numReasons - NotPool6]string{
	"not_pool6", "not_pool4", "source_in_pool6", "source_in_pool4", "protocol", "not_client",
	"no_binding", "no_session", "filtered", "external_tcp", "icmp_info",
	"no_port", "no_address", "session_limit", "sessions_full", "bindings_full", "subscribers_full", "busy",
	"stored_syn", "stored_syn_replaced", "stored_syn_unanswered", "stored_syns_full", "stored_syns_source",
	"fragment_overlap", "fragment_duplicate", "fragment_too_many", "fragments_full", "fragments_source",
	"fragment_evicted", "fragment_memory", "fragment_timeout", "fragment_refused", "fragment_too_long",
	"detour_full", "detour_unknown", "detour_forged", "own_address",
}

// String returns the name of the reason, stable and fit for a counter's label.
func (r Reason) String() string {
	switch {
	case r < NotPool6:
		return translate.Reason(r).String()
	case r < numReasons:
		return reasonNames[r-NotPool6]
	}
	return "unknown"
}

// none is the reason of what was not dropped.
const none = Reason(translate.ReasonNone)
