// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package registrar is the engine of a SIP registrar (RFC 3261 section 10): it proves who
// registers by digests (RFC 7616, RFC 8760) or AKA (RFC 3310), and keeps the bindings. Requests
// come as messages with a time, responses go as messages; sockets are its role's.
//
// Challenges are remembered by no one: a nonce carries its time and a code of the engine's key.
// What was answered with one is remembered, within bounds, so that nothing can be answered twice.
//
//house:engine
package registrar
