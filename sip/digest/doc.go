// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package digest is HTTP digest authentication as SIP has it: RFC 3261 section 22 with the
// algorithms of RFC 7616 and RFC 8760, and AKAv1-MD5 of RFC 3310. It reads and writes the
// headers of both sides and computes responses; where nonces come from, and which are good, is
// the server's business.
//
//house:codec
package digest
