// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package sgsn is the engine of an SGSN emulator with the terminals behind it: it opens,
// changes, moves and closes PDP contexts at GGSNs by GTPv0 (TS 09.60) and GTPv1 (TS
// 29.060, TS 29.281), and carries what terminals send and receive. The terminal's side of
// IPv6 is here, too: it solicits a router and makes its address of what that advertises
// (RFC 4861, RFC 4862). Radio, mobility management and other SGSNs are not.
//
// It misbehaves on demand, so that GGSNs can be tried: see [Misdeed].
package sgsn
