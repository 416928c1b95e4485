// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package relayrole is the role of a Teredo relay: it has the sockets and devices of the
// engine of package relay, drives it, and undoes on exit what it changed on the host.
package relayrole
