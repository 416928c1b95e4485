// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// Bubbles to alternate addresses in all: enough for a house full of clients that
// start together, too few to search a network with.
var alternatesLimit = ratelimit.PerSecond(20, 40)

// anyIPv4 has the addresses of neighbours, which need not be global.
var anyIPv4 = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}

// addAlternates puts our own addresses behind the NAT into the trailers of an
// indirect bubble: the local one, and behind several NATs the one that the nearest
// has reserved (RFC 6081 section 5.6.4.1). Without a NAT the mapped address says it
// all.
func (c *Client) addAlternates(t *teredo.Trailers) {
	if c.cfg.NoHairpin || c.nat.Mapping == NoNAT || !c.local.Addr().Is4() {
		return
	}
	t.Alternates[0] = c.local
	t.NumAlt = 1
	if reserved := c.upnpMapped(); reserved.IsValid() {
		t.Alternates[1] = reserved
		t.NumAlt = 2
	}
}

// bubbleAlternates sends a direct bubble to each alternate address of an indirect
// one (RFC 6081 section 5.6.4.2), if its sender can be a neighbour behind our own
// NAT: it shares our public address, or the operator has allowed the range. Else
// anybody could aim our bubbles at hosts of our network.
func (c *Client) bubbleAlternates(e *peer.Entry, f *effort, list []netip.AddrPort, at peer.Instant, out *Out) {
	mapped := teredo.Mapped(&e.Key)
	for _, a := range list {
		switch {
		case a == mapped || !c.mayShareNAT(e, a.Addr()):
		case !c.isNeighbour(a):
			c.drop(AlternateRefused)
		case !c.alternates.Allow(alternatesLimit, c.clock.Time(at)):
			c.drop(RateLimited)
		default:
			c.stats.AlternateBubbles++
			c.sendDirectBy(way{0, a}, e, f, bubble{}, out)
		}
	}
}

// mayShareNAT reports whether a local address can be that of a peer behind our own NAT.
func (c *Client) mayShareNAT(e *peer.Entry, a netip.Addr) bool {
	allowed := func(p netip.Prefix) bool { return p.Contains(a) }
	return !c.cfg.NoHairpin &&
		(teredo.Mapped(&e.Key).Addr() == c.last.mapping.Addr() || slices.ContainsFunc(c.cfg.Alternates, allowed))
}

// isNeighbour reports whether an alternate address can be that of another client:
// it is neither our own nor a broadcast address, and no service's port.
func (c *Client) isNeighbour(a netip.AddrPort) bool {
	unicast := teredo.GlobalCheck{Allow: anyIPv4, Broadcasts: c.global.Broadcasts}
	return a.Port() >= lowestPort && a.Addr() != c.local.Addr() && a.Addr() != c.last.mapping.Addr() &&
		unicast.OK(a.Addr())
}
