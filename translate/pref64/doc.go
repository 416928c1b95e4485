// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package pref64 is how hosts learn the prefix of a NAT64: the option of Router
// Advertisements (RFC 8781), and what the addresses of ipv4only.arpa give away (RFC
// 7050, RFC 8880). It reads and writes octets and keeps what was learnt; sending and
// receiving is the business of translate/pref64/discovery.
//
//house:codec
package pref64
