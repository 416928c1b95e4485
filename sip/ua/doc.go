// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package ua is a SIP user agent that keeps its calls while its host moves: registration
// (RFC 3261 section 10, RFC 5626), calls with hold, session timers (RFC 4028) and reliable
// provisional responses (RFC 3262), and the move of every call to another address by
// re-INVITE (RFC 3261 section 14, RFC 6141), by UPDATE where it is not answered yet
// (RFC 3311), or by INVITE with Replaces (RFC 3891) where both ends have moved at once.
//
// It is an engine: messages, orders and time go in; messages and events come out. Its owner
// has sockets, one set for each [Path], watches the host's addresses, and says by which path
// calls shall go ([Engine.Use]). What a call's media are is its owner's as well: bodies are
// written and read by a [Media].
//
//house:engine
package ua
