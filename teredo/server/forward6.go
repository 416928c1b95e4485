// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import "github.com/isthmus-net/isthmus/internal/packet"

// forwardIPv6 passes a packet to the IPv6 Internet, as a router does: one hop
// less. Its source is a Teredo address with a checked mapping (rule 5), which
// keeps the server from being used to hide a sender (RFC 4380 section 7.4.2).
//
// A packet at its last hop is dropped without an ICMPv6 error. RFC 4443 section
// 2.4 f lets a node limit errors down to none where they could be turned against
// others, which is so here: a forged IPv4 source passes rule 5 too. The echo test
// of clients, all that is to pass here, starts with a hop limit far above.
func (e *Engine) forwardIPv6(p packet.IPv6, out *packet.Batch) Reason {
	if p.HopLimit() <= 1 {
		return HopLimit
	}
	p.SetHopLimit(p.HopLimit() - 1)
	out.SendIP(p)
	e.counters.ToIPv6++
	return accepted
}
