// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package gtp is the codec of the GPRS tunnelling protocol: GTPv0 (TS 09.60), GTPv1-C
// (TS 29.060) and GTP-U (TS 29.281). Bytes in, values out: no socket, no clock, no
// state. Engines and their procedures are in the packages beside it.
//
// [ParseHeader] takes a datagram of either version apart. What follows the header is a
// user's packet, or information elements, in ascending order of their types, which
// each message reads with its Parse method and writes with its Append method. One walk
// over the fields of a message serves both directions. A message that is refused gives
// a [*Refusal], which says why and with which cause the sender is to be answered.
//
// Values alias the datagram where their type is a slice; whoever keeps them copies.
// Encoding appends to the caller's buffer.
package gtp

// UDP ports of GTP (TS 09.60 section 10, TS 29.060 section 10.1, TS 29.281 section 4.4.2).
const (
	PortV0      = 3386 // both planes
	PortControl = 2123
	PortUser    = 2152
)
