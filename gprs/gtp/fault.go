// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

// Fault names why a datagram was refused. Its text is a stable snake_case reason, fit
// for a counter's label.
type Fault uint8

// The faults of this package. Sections are of TS 29.060.
const (
	FaultTruncated        Fault = iota + 1 // ends inside the header (11.1.2)
	FaultLength                            // the length field is not that of the datagram (11.1.2)
	FaultVersion                           // neither version 0 nor 1 (11.1.1)
	FaultProtocolType                      // GTP', the protocol of charging (6)
	FaultExtension                         // extension header of length 0 or beyond the datagram (6)
	FaultExtensionCount                    // more than MaxExtensions extension headers
	FaultMessageType                       // another message than the one asked for, or none of that version
	FaultElementTruncated                  // an element ends beyond the message
	FaultElementUnknown                    // unknown element without a length, so what follows cannot be read (11.1.9)
	FaultElementOrder                      // element types that do not ascend (11.1.10)
	FaultElementMissing                    // a mandatory element is missing (11.1.5)
	FaultElementIncorrect                  // a mandatory or conditional element cannot be read (11.1.6, 11.1.7)
	FaultTooLong                           // what is to be sent exceeds the length field
	numFaults
)

var faultNames = [numFaults]string{
	0:                     "none",
	FaultTruncated:        "truncated",
	FaultLength:           "bad_length",
	FaultVersion:          "bad_version",
	FaultProtocolType:     "gtp_prime",
	FaultExtension:        "bad_extension_header",
	FaultExtensionCount:   "too_many_extension_headers",
	FaultMessageType:      "unexpected_message_type",
	FaultElementTruncated: "element_truncated",
	FaultElementUnknown:   "unknown_fixed_length_element",
	FaultElementOrder:     "element_order",
	FaultElementMissing:   "mandatory_element_missing",
	FaultElementIncorrect: "mandatory_element_incorrect",
	FaultTooLong:          "message_too_long",
}

// NumFaults is the number of faults and "none", for an array of counters.
const NumFaults = int(numFaults)

// String returns the reason.
func (f Fault) String() string {
	if f >= numFaults {
		return "unknown"
	}
	return faultNames[f]
}

// Cause returns the cause that a request with the fault is answered with (TS 29.060
// section 11.1). ok is false for what is discarded in silence, or is answered by
// another message than a response: a version by Version Not Supported.
func (f Fault) Cause() (c Cause, ok bool) {
	switch f {
	case FaultLength, FaultElementTruncated, FaultElementUnknown, FaultElementOrder:
		return CauseInvalidMessageFormat, true
	case FaultElementMissing:
		return CauseMandatoryMissing, true
	case FaultElementIncorrect:
		return CauseMandatoryIncorrect, true
	}
	return 0, false
}

// Refusal is why a datagram was refused and, where the fault is one of an element,
// which one. Refusals are shared and never change, so that returning one costs no
// allocation.
type Refusal struct {
	Fault   Fault
	Element ElementType // 0 if the fault is of no element
}

// Error returns the fault, and the element's name.
func (r *Refusal) Error() string {
	if r.Element == 0 {
		return r.Fault.String()
	}
	return r.Fault.String() + ": " + r.Element.String()
}

// Cause returns the cause that a request is answered with; see [Fault.Cause].
func (r *Refusal) Cause() (Cause, bool) { return r.Fault.Cause() }

var refusals = func() (table [numFaults][256]Refusal) {
	for f := range table {
		for t := range table[f] {
			table[f][t] = Refusal{Fault: Fault(f), Element: ElementType(t)}
		}
	}
	return table
}()

// refuse returns the shared refusal of a fault, 0 for one of no element.
func refuse(f Fault, t ElementType) error { return &refusals[f][t] }
