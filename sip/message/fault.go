// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package message

// Fault is what is wrong with a message.
type Fault struct {
	// Name counts it, in snake_case.
	Name string
	// Status and Reason answer the request; Status 0: there is no answer, and the message is
	// dropped.
	Status int
	Reason string
}

// Error says what is wrong.
func (f *Fault) Error() string { return f.Name }

func bad(name, reason string) *Fault { return &Fault{name, 400, reason} }

// Faults of messages. Each reason phrase says what is wrong (RFC 3261 section 21.4.1).
var (
	faultNoSIP       = &Fault{Name: "not_sip"}
	faultNoEnd       = bad("no_end_of_header", "No End Of Header")
	faultResponse    = &Fault{Name: "malformed_response"}
	faultLineEnd     = bad("line_end", "Bad Line End")
	faultRequestLine = bad("request_line", "Bad Request-Line")
	faultVersion     = &Fault{"version", 505, "Version Not Supported"}
	faultURI         = bad("request_uri", "Bad Request-URI")
	faultField       = bad("header_line", "Bad Header Line")
	faultMany        = bad("many_headers", "Too Many Headers")
	faultMissing     = bad("missing_header", "Missing Header")
	faultTwice       = bad("duplicate_header", "Header Not Unique")
	faultAddress     = bad("address", "Bad Address")
	faultVia         = bad("via", "Bad Via")
	faultBranch      = bad("branch", "Bad Branch")
	faultCSeq        = bad("cseq", "Bad CSeq")
	faultMethod      = bad("cseq_method", "CSeq Method Mismatch")
	faultUnknown     = &Fault{"cseq_method_unknown", 501, "Not Implemented"}
	faultLength      = bad("content_length", "Bad Content-Length")
	faultBody        = bad("short_body", "Body Too Short")
	faultMaxForwards = bad("max_forwards", "Bad Max-Forwards")
	faultTooLarge    = &Fault{"too_large", 513, "Message Too Large"}
)

// FaultNames are the names of all faults, for counters.
func FaultNames() (names []string) {
	for _, f := range []*Fault{
		faultNoSIP, faultNoEnd, faultResponse, faultLineEnd, faultRequestLine, faultVersion, faultURI, faultField, faultMany, faultMissing, faultTwice,
		faultAddress, faultVia, faultBranch, faultCSeq, faultMethod, faultUnknown, faultLength, faultBody, faultMaxForwards, faultTooLarge,
	} {
		names = append(names, f.Name)
	}
	return names
}
