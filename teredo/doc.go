// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package teredo is the codec of Teredo: addresses (RFC 4380 section 4, RFC 5991),
// the UDP encapsulation with its authentication and origin indications (RFC 4380
// section 5.1.1), bubbles, router solicitations and advertisements, echo tests,
// and the trailers of RFC 6081 section 4. Bytes in, values out: no socket, no
// clock, no state. The state machines are in the packages below it.
//
// A UDP payload on the wire is
//
//	[authentication] [origin] IPv6-packet [trailers]
//
// and all fields are in network order.
package teredo

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Specification constants.
const (
	// Port is the UDP port of Teredo servers (RFC 4380 section 2.7).
	Port = 3544
	// MTU of a Teredo interface (RFC 4380 section 5.1.2).
	MTU = 1280
)

// Prefix is the global Teredo IPv6 service prefix (RFC 4380 section 2.6).
var Prefix = netip.MustParsePrefix("2001::/32")

// Well-known destinations (RFC 4291 section 2.7.1, RFC 4380 section 2.17).
var (
	AllNodes         = packet.AllNodes
	AllRouters       = packet.AllRouters
	DiscoveryAddress = netip.MustParseAddr("224.0.0.253")
)
