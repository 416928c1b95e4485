// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package dns64role is the DNS64 that runs: it listens by UDP and TCP, asks the
// upstreams, and keeps what they said. What is answered is decided in translate/dns64.
package dns64role
