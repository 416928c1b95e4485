// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package client is the Teredo client (RFC 4380 section 5.2, RFC 5991, and of
// RFC 6081 the symmetric NAT support of section 5.2) as a pure state machine:
// packets, time and randomness in, packets and events out. It opens no socket,
// reads no clock, starts no goroutine, and is not safe for concurrent use.
//
// One file per step of the RFC: qualification and maintenance keep the address;
// reception and from_server take UDP payloads; transmission takes packets from
// the host's stack; bubbles and echo_test prove the way to a peer.
//
//house:engine
package client
