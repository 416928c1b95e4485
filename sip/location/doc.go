// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package location is the location service of a registrar: which contacts an address of record
// is bound to (RFC 3261 section 10, RFC 3327, RFC 5626 section 6). A [Table] is bounded, changes
// as a whole or not at all with each REGISTER, forgets what has expired by [Table.Tick], and can
// be written down for a successor.
//
//house:part
package location
