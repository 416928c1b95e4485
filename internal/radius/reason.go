// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package radius

// Reason is why a datagram was dropped.
type Reason uint8

// The reasons.
const (
	Stranger      Reason = 1 + iota // of nobody who is asked
	Malformed                       // no packet of RADIUS, or of a code that does not belong here
	Late                            // an answer to a request that was given up, or to none
	Twice                           // an answer to a request that was answered
	Authenticator                   // the secret is another, or somebody lies
	Unsigned                        // without a Message-Authenticator
	Signature                       // with one that is wrong
	Undated                         // a request without an Event-Timestamp
	Stale                           // with one outside of the window
	Crowded                         // more requests than are remembered
	numReasons
)

// NumReasons is the number of reasons, for an array of counters.
const NumReasons = int(numReasons)

var reasonNames = [numReasons]string{"", "stranger", "malformed", "late", "twice", "authenticator", "unsigned", "signature", "undated", "stale", "crowded"}

// String returns the name of the reason, stable and fit for a counter's label.
func (r Reason) String() string { return reasonNames[r] }
