// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package assoc is the engine of SCTP (RFC 9260): associations between ends that each have
// several addresses. Packet and time in; packets and events out: no socket, no clock, no
// goroutine.
//
// An [Endpoint] is one port with its addresses. It answers set-ups without keeping state, finds
// the [Association] of each packet, and holds the timers of all. What it wants sent and what has
// happened is appended to an [Output]. Congestion, round trip times, heartbeats and errors are
// kept for each [Path], which is a pair of a local and a remote address: a host with two
// addresses has two ways to a server with one.
//
// Nothing in here may be called by two goroutines at a time.
//
//house:engine
package assoc
