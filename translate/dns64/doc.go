// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package dns64 decides what a DNS64 answers (RFC 6147, RFC 8880): which clients
// and queries it takes, what it asks its upstreams, and how AAAA records are made of
// A records. It also holds the cache and judges which upstream to ask. It knows no
// socket and no clock; translate/dns64/dns64role does the asking.
//
// A query goes through [Policy.Admit] to [Policy.Begin], whose [Lookup] says what to
// ask until it has an answer, and [Query.Pack] brings that into the client's size.
//
// Validation by DNSSEC is the upstream's. What it found is believed of upstreams
// that the operator trusts alone.
//
//house:engine
package dns64
