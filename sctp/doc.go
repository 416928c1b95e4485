// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package sctp is the Stream Control Transmission Protocol (RFC 9260) in the manner of package
// net: associations between hosts that each have several addresses, over raw sockets or, without
// privilege, over UDP (RFC 6951).
//
//house:edge
package sctp
