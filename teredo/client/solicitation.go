// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
)

// solicitation is one exchange of a router solicitation and its advertisement
// with one server address. All its sendings carry the same nonce, so that a late
// answer to an early one still counts.
type solicitation struct {
	active bool
	socket int // that it leaves by
	server netip.AddrPort
	src    netip.Addr
	nonce  [8]byte
	began  time.Time
	sent   int
	// early sendings of these came before their time, see Unreachable, as the next one is to
	// if the exchange is hurried.
	early   int
	hurried bool
	// refused: an answer said that our key is not valid.
	refused bool
	// quick sendings come before the others, each after a few round trips.
	quick int
	// confirm makes an unchanged answer an event.
	confirm bool
	due     time.Time // of the next sending, or of giving up
}

// authLen is an authentication indication without identifier and value.
const authLen = 13

// solicit begins an exchange, in place of one that may be under way.
func (c *Client) solicit(s *solicitation, server netip.Addr, now time.Time, out *Out) {
	c.solicitFrom(s, 0, server, now, out)
}

// solicitFrom is solicit by another socket than that of the service port.
func (c *Client) solicitFrom(s *solicitation, socket int, server netip.Addr, now time.Time, out *Out) {
	*s = solicitation{
		active: true,
		socket: socket,
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
	rs := teredo.AppendRouterSolicitation(out.Alloc(packet.IPv6HeaderLen+8), s.src)
	auth := c.credential.auth(s.nonce, rs)
	b := auth.AppendTo(out.Alloc(authLen + len(auth.ClientID) + len(auth.Value) + len(rs)))
	out.SendUDP(s.socket, s.server, append(b, rs...))
	c.stats.Solicitations++
	s.sent++
	if s.hurried {
		s.early, s.hurried = s.early+1, false
	}
	s.due = now.Add(c.pause(s))
}

// timely is how many sendings came in their time.
func (s *solicitation) timely() int { return s.sent - s.early }

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

// advertisement checks an advertisement against that of some exchanges which is
// with its sender (RFC 4380 sections 5.2.1 and 5.2.2). It returns nil when it is
// refused.
func (c *Client) advertisement(from netip.AddrPort, p *teredo.Packet, exchanges ...*solicitation) (s *solicitation, prefix netip.Prefix) {
	i := slices.IndexFunc(exchanges, func(e *solicitation) bool { return e.active && from == e.server })
	if i < 0 {
		c.drop(UnaskedAdvertisement)
		return nil, prefix
	}
	s = exchanges[i]
	ra, err := teredo.ParseRouterAdvertisement(p.IPv6)
	prefix, known := c.servicePrefix(ra.Prefix.Addr())
	switch {
	case err != nil:
		c.drop(faultReason(err))
	case !p.HasAuth || p.Auth.Nonce != s.nonce:
		c.drop(WrongNonce)
	case !c.credential.accepts(p):
		c.drop(WrongAuthentication)
	case !p.Origin.IsValid() || p.Origin.Port() == 0:
		c.drop(NoOrigin)
	case !c.global.OK(p.Origin.Addr()):
		c.drop(NotGlobal)
	case ra.Dst != s.src || !known || !namesServer(ra.Prefix.Addr(), c.whose(s)):
		c.drop(WrongAdvertised)
	default:
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
