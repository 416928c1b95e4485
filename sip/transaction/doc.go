// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package transaction is the transaction layer of SIP, by RFC 3261 section 17 as RFC 6026
// mended it, for user agents and proxies that have clock and sockets elsewhere. It is pure:
// messages and time go in, packets come out, and each packet says by which of its owner's
// sockets it is to leave. Messages are those of sipgo's package sip, which parses them; why
// its own transactions do not serve stands in docs/decisions/0034-own-sip-transactions.md.
//
//house:part
package transaction
