// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/special"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// HandleIP takes an IPv6 packet from the host's stack (RFC 4380 section 5.2.4).
// out may alias it.
func (c *Client) HandleIP(ip []byte, now time.Time, out *Out) {
	c.stats.FromStack++
	p, rest, ok := packet.ParseIPv6(ip)
	switch {
	case !ok || len(rest) != 0:
		c.drop(BadPacket)
	case c.state != Qualified:
		c.drop(NotQualified)
	case *p.SrcBytes() != c.own:
		c.drop(BadSource)
	case len(p) > teredo.MTU:
		c.drop(TooBig)
		c.sendError(packet.ICMPv6PacketTooBig, 0, teredo.MTU, p, now, out)
	default:
		c.transmit(p, now, out)
	}
}

// transmit sends to a trusted peer at once (case 1) and queues for all others.
func (c *Client) transmit(p packet.IPv6, now time.Time, out *Out) {
	c.hostSent(now)
	at := c.clock.At(now)
	e := c.peers.Lookup(p.DstBytes())
	if e != nil && valid(e, at) {
		e.Tx = at
		c.stats.Sent++
		f := c.peers.Cold(e)
		w := c.target(e, f)
		out.SendUDP(w.socket, w.to, p)
		c.offer(e, f, at)
		return
	}
	dst := p.Dst()
	if !isGlobal(dst) || dst == c.last.address {
		c.drop(BadDestination)
		return
	}
	_, isClient := c.teredoPrefix(dst)
	if isClient && !c.sendable(p.DstBytes()) {
		c.drop(NotGlobal)
		return
	}
	if e == nil {
		e, _ = c.peers.Insert(p.DstBytes(), never(at))
	}
	resume := isClient && c.mayResume(e, at)
	if e.Trusted() && !resume {
		c.distrust(e)
	}
	e.Tx = at
	f := c.warm(e)
	if !f.queue.Push(&c.budget, p) {
		c.drop(QueueFull)
	}
	if f.phase != resting {
		return
	}
	switch {
	case resume:
		c.startSolicitation(e, f, at, now, out)
	case isClient:
		c.startBubbles(e, f, at, now, out)
	default:
		c.startTest(e, f, at, now, out)
	}
}

// warm returns the cold state of e; a new one says that nothing was sent yet.
func (c *Client) warm(e *peer.Entry) *effort {
	if f := c.peers.Cold(e); f != nil {
		return f
	}
	f := c.peers.Warm(e)
	f.indirect = never(0)
	return f
}

// isGlobal reports whether a can be the address of one node outside this link.
func isGlobal(a netip.Addr) bool {
	raw := a.As16()
	return special.Forwarded6(&raw)
}

// sendError tells the host by an ICMPv6 error about its packet, from the server
// as the router of the Teredo link.
func (c *Client) sendError(typ, code byte, param uint32, cause packet.IPv6, now time.Time, out *Out) {
	if !c.errors.Allow(errorsLimit, now) {
		return
	}
	b := packet.AppendICMPv6Error(out.Alloc(teredo.MTU), c.link, typ, code, param, cause)
	if len(b) > 0 {
		c.stats.ICMPErrors++
		out.SendIP(b)
	}
}
