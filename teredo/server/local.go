// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// echoHopLimit is what hosts start with (RFC 1700); the client is one hop away.
const echoHopLimit = 64

// handleLocal answers an ICMPv6 echo request to the server itself, in the buffer
// of the request. Only clients with a checked mapping come here (rule 5), and the
// reply is not larger than the request, so it is of no use to reflect. It carries
// no origin indication, which would name a third party.
func (e *Engine) handleLocal(from netip.AddrPort, local int, p packet.IPv6, out *packet.Batch) Reason {
	if p.NextHeader() != packet.ProtoICMPv6 {
		return LocalUnhandled
	}
	m, ok := p.ICMPv6()
	if !ok {
		return BadChecksum
	}
	if m[0] != packet.ICMPv6EchoRequest || m[1] != 0 {
		return LocalUnhandled
	}
	m[0] = packet.ICMPv6EchoReply
	self := *p.DstBytes() // RFC 4443 section 4.2
	if self == allRouters {
		self = e.linkIPv6[Primary].As16()
	}
	*p.DstBytes(), *p.SrcBytes() = *p.SrcBytes(), self
	p.SetHopLimit(echoHopLimit)
	packet.FillICMPv6Checksum(p)
	out.SendUDP(local, from, p)
	e.counters.EchoReplies++
	return accepted
}
