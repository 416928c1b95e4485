// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64

// Reason is why a query got no answer of its own.
type Reason uint8

// Reasons. Those marked so are told to the client.
const (
	ReasonNone       Reason = iota
	ReasonNoPort            // the source has port 0, so that no answer can reach it
	ReasonMalformed         // no DNS message; told by FORMERR if there is a header
	ReasonResponse          // a response, which would make a loop
	ReasonClient            // not one of the clients; told by REFUSED
	ReasonRate              // the client's rate is used up
	ReasonRefusals          // strangers have been refused often enough
	ReasonOpcode            // no query but an update or the like; told by NOTIMP
	ReasonQuestions         // not one question alone; told by FORMERR
	ReasonVersion           // another version of EDNS; told by BADVERS
	ReasonType              // a zone transfer or a pseudo type; told by REFUSED
	ReasonRecursion         // no recursion is wanted, and nothing else is done; told by REFUSED
	ReasonBusy              // too many queries wait for upstreams, and most are this client's; told by SERVFAIL
	ReasonShare             // the client has its share of the queries that wait; told by SERVFAIL
	ReasonUnpackable        // an upstream's answer cannot be packed; told by SERVFAIL
	NumReasons
)

var reasonNames = [NumReasons]string{
	ReasonNone: "none", ReasonNoPort: "no_port", ReasonMalformed: "malformed", ReasonResponse: "response",
	ReasonClient: "client_refused", ReasonRate: "rate_limited", ReasonOpcode: "opcode", ReasonQuestions: "not_one_question",
	ReasonVersion: "edns_version", ReasonType: "type_refused", ReasonRecursion: "no_recursion", ReasonBusy: "busy",
	ReasonUnpackable: "unpackable", ReasonRefusals: "refusals_limited", ReasonShare: "client_share",
}

// String returns the reason as it stands in metrics.
func (r Reason) String() string {
	if r >= NumReasons {
		return "unknown"
	}
	return reasonNames[r]
}

// Outcome is how a query was answered.
type Outcome uint8

// Outcomes.
const (
	OutcomeForwarded   Outcome = iota // as the upstream said
	OutcomeNative                     // a AAAA query with AAAA records of its own
	OutcomeExcluded                   // the same, less those of the exclusion set
	OutcomeSynthesized                // AAAA records made of A records
	OutcomeEmpty                      // a AAAA query whose name has neither
	OutcomeLocal                      // ipv4only.arpa, localhost, reverse names and the chaos class, by this host alone
	OutcomeReverse                    // a reverse query, by a CNAME into in-addr.arpa
	OutcomeFailed                     // no upstream answered, or none could
	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{
	OutcomeForwarded: "forwarded", OutcomeNative: "native", OutcomeExcluded: "excluded", OutcomeSynthesized: "synthesized",
	OutcomeEmpty: "empty", OutcomeLocal: "local", OutcomeReverse: "reverse", OutcomeFailed: "failed",
}

// String returns the outcome as it stands in metrics.
func (o Outcome) String() string {
	if o >= NumOutcomes {
		return "unknown"
	}
	return outcomeNames[o]
}
