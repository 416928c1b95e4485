// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// PortMapped tells the address and port that the gateway has reserved for the
// service socket, by UPnP or another protocol (RFC 6081 section 5.3.3); not valid
// is none. RFC 6081 asks the gateway before the server. Later is possible too:
// the server is then asked again at once, since the reservation may have changed
// the mapping that it sees.
func (c *Client) PortMapped(external netip.AddrPort, now time.Time, out *Out) {
	if external == c.reserved {
		return
	}
	c.reserved = external
	c.withdrawAll() // the way to peers may be another, see toward
	if c.state == Qualified && external.IsValid() && external != c.last.mapping {
		c.solicit(&c.primary, c.server().Primary, now, out)
	}
}

// upnpMapped is the UPnP-Mapped Address/Port of RFC 6081 section 5.3.1. It is
// not valid when it is the mapping that the server sees: then there is a single
// NAT, and the RFC sets it to zero (section 5.3.3).
func (c *Client) upnpMapped() netip.AddrPort {
	if c.reserved == c.last.mapping {
		return netip.AddrPort{}
	}
	return c.reserved
}

// oneWay reports whether we are behind a single NAT that lets everybody in at our
// mapping, but shows another one to each peer that we send to: the first three
// conditions of RFC 6081 section 5.3.4.2. The cheapest is first, since the answer
// is needed for each packet.
func (c *Client) oneWay() bool {
	return c.nat.Mapping == EndpointDependent && c.reserved.IsValid() && c.reserved == c.last.mapping
}

// early reports whether a direct bubble comes before its sender can know our
// mapping towards it: without a reserved port our symmetric NAT would not have
// let it in. To trust its sender now would be right for our side, but what we
// sent it then would be lost, since it takes nothing from an unknown mapping.
// Its indirect bubble is on the way, and the answer to that tells it.
func (c *Client) early(e *peer.Entry, p packet.IPv6) bool {
	if e == nil || !c.oneWay() || !teredo.IsBubble(p) {
		return false
	}
	f := c.peers.Cold(e)
	return f != nil && f.phase == bubbling && f.nonceReceived == 0
}

// target is the way of packets to a peer with a proved mapping, whose cold state
// is f.
func (c *Client) target(e *peer.Entry, f *effort) way {
	return c.toward(e, way{socketOf(f), e.Mapped()})
}

// toward is w, the way by which a peer proved its mapping, or, where both sides
// are symmetric, the one to the mapping in its address. The peer's NAT would let
// nothing in at the proved one, since ours shows it a mapping that it has not
// sent to; but the peer's port may be reserved too (RFC 6081 sections 3.2,
// 5.3.4.2 and 5.3.4.3).
//
// The Symmetric Peer flag needs no place of its own: it is set when a packet
// comes from another mapping than the peer's address names (section 5.3.4.1), and
// such a peer is trusted at that mapping.
func (c *Client) toward(e *peer.Entry, w way) way {
	if w.socket == 0 && c.oneWay() {
		if _, isClient := c.teredoPrefix(e.IP()); isClient {
			w.to = teredo.Mapped(&e.Key)
		}
	}
	return w
}
