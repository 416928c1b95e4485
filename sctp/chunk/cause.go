// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package chunk

import (
	"encoding/binary"
	"fmt"
)

// CauseCode is that of an error (RFC 9260 section 3.3.10).
type CauseCode uint16

// The codes of errors.
const (
	CauseInvalidStream          CauseCode = 1
	CauseMissingParameter       CauseCode = 2
	CauseStaleCookie            CauseCode = 3
	CauseOutOfResource          CauseCode = 4
	CauseUnresolvableAddress    CauseCode = 5
	CauseUnrecognizedChunk      CauseCode = 6
	CauseInvalidParameter       CauseCode = 7
	CauseUnrecognizedParameters CauseCode = 8
	CauseNoUserData             CauseCode = 9
	CauseCookieInShutdown       CauseCode = 10
	CauseRestartNewAddresses    CauseCode = 11
	CauseUserAbort              CauseCode = 12
	CauseProtocolViolation      CauseCode = 13
	CauseDeleteLastAddress      CauseCode = 0x00a0 // RFC 5061 section 4.3
	CauseResourceShortage       CauseCode = 0x00a1
	CauseDeleteSource           CauseCode = 0x00a2
	CauseIllegalASCONFAck       CauseCode = 0x00a3
	CauseNoAuthorization        CauseCode = 0x00a4
	CauseUnsupportedHMAC        CauseCode = 0x0105 // RFC 4895 section 4.2
)

var causeNames = map[CauseCode]string{
	0:                  "no error cause",
	CauseInvalidStream: "invalid stream identifier", CauseMissingParameter: "missing mandatory parameter",
	CauseStaleCookie: "stale cookie", CauseOutOfResource: "out of resource", CauseUnresolvableAddress: "unresolvable address",
	CauseUnrecognizedChunk: "unrecognized chunk type", CauseInvalidParameter: "invalid mandatory parameter",
	CauseUnrecognizedParameters: "unrecognized parameters", CauseNoUserData: "no user data",
	CauseCookieInShutdown: "cookie received while shutting down", CauseRestartNewAddresses: "restart of an association with new addresses",
	CauseUserAbort: "user-initiated abort", CauseProtocolViolation: "protocol violation",
	CauseDeleteLastAddress: "request to delete the last remaining address", CauseResourceShortage: "operation refused due to resource shortage",
	CauseDeleteSource: "request to delete the source address", CauseIllegalASCONFAck: "association aborted due to illegal ASCONF-ACK",
	CauseNoAuthorization: "request refused, no authorization", CauseUnsupportedHMAC: "unsupported HMAC identifier",
}

// String returns the words of the RFCs.
func (c CauseCode) String() string {
	if name, ok := causeNames[c]; ok {
		return name
	}
	return fmt.Sprintf("error cause %d", uint16(c))
}

// Cause is an error in an ABORT or an ERROR:
//
//	| code (2) | length (2) | value | padding to a multiple of 4 |
type Cause struct {
	Code  CauseCode
	Value []byte
}

// NextCause cuts the first cause off the body of an ABORT or an ERROR, or off the causes in an Error Cause
// Indication.
func NextCause(list []byte) (c Cause, rest []byte, err error) {
	code, value, _, rest, err := nextTLV(list)
	return Cause{CauseCode(code), value}, rest, err
}

// AppendCause writes a cause with its padding.
func AppendCause(b []byte, code CauseCode, value []byte) []byte {
	return appendTLV(b, uint16(code), value)
}

// AppendError writes an ABORT or an ERROR with its causes.
func AppendError(b []byte, t Type, flags uint8, causes ...Cause) []byte {
	b, at := open(b, t, flags)
	for _, c := range causes {
		b = AppendCause(b, c.Code, c.Value)
	}
	return closeList(b, at, 0)
}

// InvalidStream is the cause of data for a stream that there is none of (RFC 9260 section 3.3.10.1).
func InvalidStream(stream uint16) Cause {
	return Cause{CauseInvalidStream, append(binary.BigEndian.AppendUint16(nil, stream), 0, 0)}
}
