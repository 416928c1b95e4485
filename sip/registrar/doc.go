// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package registrar is the engine of a SIP registrar (RFC 3261 section 10), and of the stateful
// proxy or redirect server in front of it (section 16). The [Engine] proves who registers by
// digests (RFC 7616, RFC 8760) or AKA (RFC 3310), and keeps the bindings; the [Proxy] carries
// requests to them. Messages come with a time, and messages go; sockets, connections and the
// looking up of names are its role's.
//
// The proxy carries for strangers to those that are registered, and to nobody else: who wants to
// call elsewhere has an account, or is in a dialog that was made through the proxy, which a code in
// Record-Route shows.
//
// Challenges are remembered by no one: a nonce carries its time and a code of the engine's key.
// What was answered with one is remembered, within bounds, so that nothing can be answered twice.
//
//house:engine
package registrar
