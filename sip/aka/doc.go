// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package aka is authentication and key agreement (TS 33.102 section 6.3) with the Milenage
// algorithms (TS 35.206), and how SIP carries it in HTTP digest (RFC 3310).
//
// The network's side makes a [Vector] of a random number and the next sequence number; the
// terminal's side checks the network's token, its freshness by a [Window], and answers, or
// asks for another sequence number by AUTS.
//
//house:codec
package aka
