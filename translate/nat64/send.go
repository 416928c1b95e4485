// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/translate"
)

// send4 translates an IPv6 packet (RFC 6146 section 3.7) and sends what comes out, or
// turns it round (section 3.8).
func (e *Engine) send4(c *call, ip []byte, b *translate.Binding, src netip.Addr) Reason {
	start := len(c.out.IP)
	turn := e.pool.has(b.Outer.Dst)
	path := c.path
	if turn {
		path.MTU4, path.Link4 = 0, 0 // no IPv4 link is on the way
	}
	res := e.translator.IPv6Bound(ip, b, path, &c.out.Batch)
	if res.Verdict != translate.Translated {
		return e.icmpReply(c, res, src)
	}
	e.stats.Translated6to4++
	if turn {
		return e.hairpin(c, start)
	}
	return none
}

// send6 translates an IPv4 packet and sends what comes out.
func (e *Engine) send6(c *call, ip []byte, b *translate.Binding, src netip.Addr) Reason {
	path := c.path
	if path.HopTaken = c.turned; c.turned {
		path.Link4 = 0
	}
	res := e.translator.IPv4Bound(ip, b, path, &c.out.Batch)
	if res.Verdict != translate.Translated {
		return e.icmpReply(c, res, src)
	}
	e.stats.Translated4to6++
	return none
}
