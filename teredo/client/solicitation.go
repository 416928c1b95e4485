// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// solicitation is one exchange of a router solicitation and its advertisement
// with one server address. All its sendings carry the same nonce, so that a late
// answer to an early one still counts.
type solicitation struct {
	active bool
	server netip.AddrPort
	src    netip.Addr
	nonce  [8]byte
	began  time.Time
	sent   int
	// quick sendings come before the others, each after a few round trips.
	quick int
	// confirm makes an unchanged answer an event.
	confirm bool
	due     time.Time // of the next sending, or of giving up
}

// solicit begins an exchange, in place of one that may be under way.
func (c *Client) solicit(s *solicitation, server netip.Addr, now time.Time, out *Out) {
	*s = solicitation{
		active: true,
		began:  now,
		server: netip.AddrPortFrom(server, teredo.Port),
		src:    c.linkLocal(),
	}
	c.fill(c.scratch[:8])
	s.nonce = [8]byte(c.scratch[:8])
	c.resolicit(s, now, out)
}

// resolicit sends the solicitation (again).
func (c *Client) resolicit(s *solicitation, now time.Time, out *Out) {
	auth := teredo.Auth{Nonce: s.nonce}
	b := auth.AppendTo(out.Alloc(13 + packet.IPv6HeaderLen + 8))
	b = teredo.AppendRouterSolicitation(b, s.src)
	out.SendUDP(0, s.server, b)
	c.stats.Solicitations++
	s.sent++
	s.due = now.Add(c.pause(s))
}

// linkLocal picks the link-local source of an exchange: the flags of a Teredo
// identifier with the cone bit clear (RFC 5991 section 3.2), and random bits in
// the place of port and address, which would tell the local ones to the server
// and give a forger of answers less to guess.
func (c *Client) linkLocal() netip.Addr {
	b := c.scratch[:16]
	c.fill(b[8:])
	copy(b, []byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0})
	b[8] &= byte(teredo.FlagsRandom >> 8)
	return netip.AddrFrom16([16]byte(b))
}

// advertisement checks an advertisement against the exchange with its sender
// (RFC 4380 sections 5.2.1 and 5.2.2). It returns nil when it is refused.
func (c *Client) advertisement(from netip.AddrPort, p *teredo.Packet) (s *solicitation, prefix netip.Prefix) {
	switch {
	case c.primary.active && from == c.primary.server:
		s = &c.primary
	case c.secondary.active && from == c.secondary.server:
		s = &c.secondary
	case c.asksScouted(from):
		s = &c.scout.solicitation
	default:
		c.drop(UnaskedAdvertisement)
		return nil, prefix
	}
	ra, err := teredo.ParseRouterAdvertisement(p.IPv6)
	prefix, known := c.servicePrefix(ra.Prefix.Addr())
	switch {
	case err != nil:
		c.drop(faultReason(err))
	case !p.HasAuth || p.Auth.Nonce != s.nonce:
		c.drop(WrongNonce)
	case !p.Origin.IsValid() || p.Origin.Port() == 0:
		c.drop(NoOrigin)
	case !c.global.OK(p.Origin.Addr()):
		c.drop(NotGlobal)
	case ra.Dst != s.src || !known || !namesServer(ra.Prefix.Addr(), c.whose(s)):
		c.drop(WrongAdvertised)
	default:
		c.stats.Advertisements++
		return s, prefix
	}
	return nil, prefix
}

// servicePrefix returns the service prefix in which to take an advertised
// prefix.
func (c *Client) servicePrefix(a netip.Addr) (netip.Prefix, bool) {
	if p, ok := c.teredoPrefix(a); ok {
		return p, true
	}
	return teredo.Prefix, c.cfg.LegacyPrefix && a.IsValid() && legacyPrefix.Contains(a)
}

// teredoPrefix returns the service prefix that holds a.
func (c *Client) teredoPrefix(a netip.Addr) (netip.Prefix, bool) {
	for _, p := range c.cfg.Prefixes {
		if p.Contains(a) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}
