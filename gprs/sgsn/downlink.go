// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// downlink takes a user packet of a GGSN. What it has met on the way is told inside (RFC 6040
// section 4.2).
func (e *Engine) downlink(m *message, now time.Time, out *Output) {
	if e.uncomprehended(m, now, out) {
		return
	}
	c := e.tunnel(m)
	switch {
	case c == nil:
		e.drops[dropUnknownTunnel]++
		e.indicate(m, now, out)
		return
	case c.state == Opening && len(c.early) == maxEarly:
		e.drops[dropNotReady]++
		return
	case c.state == Opening:
		c.early = append(c.early, tunnelled{m.from.Addr(), m.class, bytes.Clone(m.Payload)})
		return
	}
	e.bring(c, tunnelled{m.from.Addr(), m.class, m.Payload}, now, out)
}

// tunnelled is a user packet, and who has sent it with which traffic class.
type tunnelled struct {
	from  netip.Addr
	class uint8
	ip    []byte
}

// maxEarly is how many packets of a context may overtake the response that opens it, such as the first advertisement of
// a router: they come by sockets of their own.
const maxEarly = 4

// catchUp takes what has come too early.
func (e *Engine) catchUp(c *PDPContext, now time.Time, out *Output) {
	waiting := c.early
	c.early = nil
	for _, one := range waiting {
		e.bring(c, one, now, out)
	}
}

// bring takes a user packet of a context that is open.
func (e *Engine) bring(c *PDPContext, p tunnelled, now time.Time, out *Output) {
	if p.from != c.remoteUser.Addr() {
		e.drops[dropPeer]++
		return
	}
	if len(p.ip) >= packet.IPv4HeaderLen && packet.Emerge(p.ip, p.class) == packet.EmergedLost {
		e.drops[dropCongestion]++
		return
	}
	ip := p.ip
	if !e.addressed(c.session, ip) {
		return
	}
	c.counts.DownPackets++
	c.counts.DownOctets += uint64(len(ip))
	e.stats.DownPackets++
	e.stats.DownOctets += uint64(len(ip))
	if !e.taken(c.session, ip, now, out) {
		e.hand(c.session.wanted.Link, ip, out)
	}
}

// tunnel returns the context that a user packet came by.
func (e *Engine) tunnel(m *message) *PDPContext {
	if m.plane == PlaneUser {
		return e.data[m.TEID]
	}
	c := e.contexts[m.TID]
	if m.plane != PlaneV0 || c == nil || !c.labelled(uint32(m.FlowLabel)) {
		return nil
	}
	return c
}

// addressed reports whether a packet is for a terminal: to one of its addresses, or to a group.
func (e *Engine) addressed(s *session, ip []byte) bool {
	switch {
	case len(ip) >= packet.IPv4HeaderLen && ip[0]>>4 == 4:
		to := netip.AddrFrom4([4]byte(ip[16:20]))
		if to != s.four && !to.IsMulticast() {
			e.drops[dropDestination]++
			return false
		}
		return true
	case len(ip) >= packet.IPv6HeaderLen && ip[0]>>4 == 6:
		p, _, ok := packet.ParseIPv6(ip)
		if !ok {
			break
		}
		to := p.Dst()
		if !s.six.linkLocal.IsValid() || !to.IsMulticast() && !s.has6(to) && !s.six.routes(to) {
			e.drops[dropDestination]++
			return false
		}
		return true
	}
	e.drops[dropNotIP]++
	return false
}

// taken takes a packet for the part of a terminal's stack that is this engine. It reports whether it was one: others
// are for the stack behind the link.
func (e *Engine) taken(s *session, ip []byte, now time.Time, out *Output) bool {
	p, _, ok := packet.ParseIPv6(ip)
	if !ok {
		return false
	}
	if e.discovery(s, p, now, out) || e.informed(s, p, now, out) || e.leased(s, p, now, out) {
		return true
	}
	e.overheard(s, p)
	return false
}
