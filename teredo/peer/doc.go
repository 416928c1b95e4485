// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package peer holds the lists of recent Teredo peers (RFC 4380 section 5.2) of
// clients and relays. It is pure.
//
// [Table] is a bounded table with two ages, trusted and untrusted. An [Entry] is
// what each packet needs; what only a peer under test needs (queue, nonces, bubble
// count) is its cold state, a type of the role's own, which exists only between
// [Table.Warm] and [Table.Release], with one deadline. A client keeps all its
// peers there, of any IPv6 address, a relay those under test. It is not safe for
// concurrent use.
//
// [Hot] is where a relay keeps those that passed: up to millions, all Teredo
// addresses, so that little has to be remembered of each; in one flat slab that is
// read without locks, by other cores and by a fast path outside the program.
//
//house:part
package peer

import "time"

// Instant is a time in nanoseconds since an engine's epoch: half the size of a
// [time.Time], and monotonic.
type Instant int64

// Clock converts between times and instants. Instants before the epoch are
// negative, so "30 seconds ago" can be told at the first packet.
type Clock struct{ Epoch time.Time }

// At returns the instant of now.
func (c Clock) At(now time.Time) Instant { return Instant(now.Sub(c.Epoch)) }

// Time returns the time of i.
func (c Clock) Time(i Instant) time.Time { return c.Epoch.Add(time.Duration(i)) }

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the duration from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }
