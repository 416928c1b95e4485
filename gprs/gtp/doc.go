// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package gtp is the codec of the GPRS tunnelling protocol: GTPv0 (TS 09.60), GTPv1-C
// (TS 29.060) and GTP-U (TS 29.281). Bytes in, values out: no socket, no clock, no
// state. Engines and their procedures are in the packages beside it.
//
// [ParseHeader] takes a datagram of either version apart. What follows the header is a
// user's packet ([Decapsulate], [Encapsulate]), or information elements, in ascending
// order of their types, which a [Codec] reads into a [Message] and writes from one: one
// walk over the fields of a message serves both directions. Elements of messages that
// have no type here are listed by [ParseElements]. What is refused gives a [*Refusal],
// which says why, and with which cause a request is to be answered.
//
// Values alias the datagram where their type is a slice; whoever keeps them copies.
// Encoding appends to the caller's buffer.
//
//house:codec
package gtp

// UDP ports of GTP (TS 09.60 section 10, TS 29.060 section 10.1, TS 29.281 section 4.4.2).
const (
	PortV0      = 3386 // both planes
	PortControl = 2123
	PortUser    = 2152
)
