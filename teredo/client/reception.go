// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// HandleUDP takes a UDP payload received on the service port (RFC 4380 section
// 5.2.3). out may alias it.
func (c *Client) HandleUDP(from netip.AddrPort, payload []byte, now time.Time, out *Out) {
	c.stats.Received++
	p, err := teredo.Parse(payload)
	if err != nil {
		c.drop(faultReason(err))
		return
	}
	server := from == c.primary.server || c.secondary.active && from == c.secondary.server
	if c.state == Qualified && *p.IPv6.DstBytes() == c.own {
		c.receive(from, server, &p, now, out)
		return
	}
	c.receiveLinkLocal(from, server, &p, now, out)
}

// HandleUDPOn takes a UDP payload received on a socket, of which 0 is that of the
// service port.
func (c *Client) HandleUDPOn(socket int, from netip.AddrPort, payload []byte, now time.Time, out *Out) {
	if socket == 0 {
		c.HandleUDP(from, payload, now, out)
		return
	}
	if socket == SearchSocket {
		c.handleSearch(from, payload, now, out)
		return
	}
	c.stats.Received++
	p, err := teredo.Parse(payload)
	switch {
	case err != nil:
		c.drop(faultReason(err))
	case c.state == Qualified && *p.IPv6.DstBytes() == c.own:
		c.receiveOnPort(socket, from, &p, c.clock.At(now), out)
	case p.IPv6.NextHeader() == packet.ProtoICMPv6 && p.IPv6.Src().IsLinkLocalUnicast():
		c.handlePortAdvertisement(socket, from, &p, c.clock.At(now), out)
	default:
		c.drop(BadDestination)
	}
}

// receiveLinkLocal takes packets whose inner destination is not our Teredo
// address: it must be one of the link-local addresses that we gave out.
func (c *Client) receiveLinkLocal(from netip.AddrPort, server bool, p *teredo.Packet, now time.Time, out *Out) {
	switch {
	case (server || c.asksScouted(from)) && p.IPv6.NextHeader() == packet.ProtoICMPv6 && p.IPv6.Src().IsLinkLocalUnicast():
		c.handleAdvertisement(from, p, now, out)
	case c.state != Qualified:
		c.drop(NotQualified)
	case p.IPv6.Dst().IsLinkLocalUnicast() && teredo.IsBubble(p.IPv6):
		c.receiveDisguised(from, p.IPv6, now, out)
	default:
		c.drop(BadDestination)
	}
}

// receive takes a packet to our Teredo address. The first case is that of data
// from peers that are known, and comes before all others for its speed.
func (c *Client) receive(from netip.AddrPort, server bool, p *teredo.Packet, now time.Time, out *Out) {
	at := c.clock.At(now)
	e := c.peers.Lookup(p.IPv6.SrcBytes())
	var trailers teredo.Trailers
	if len(p.Trailers) > 0 {
		var err error
		if trailers, err = teredo.ParseTrailers(p.Trailers); err != nil {
			c.drop(faultReason(err))
			return
		}
	}
	if e != nil && e.Trusted() && e.MappedIs(from) && !p.Origin.IsValid() {
		if !c.welcome(e, at) {
			c.drop(Unsolicited)
			return
		}
		c.peers.Touch(e, at)
		bubble := teredo.IsBubble(p.IPv6)
		f := c.peers.Cold(e)
		if f != nil || bubble {
			c.heardPeer(e, f, 0, p.IPv6, &trailers, at, out)
		}
		if bubble {
			c.stats.BubblesReceived++
			return
		}
		c.offer(e, f, at)
		c.accept(e, p.IPv6, out)
		return
	}
	if !c.fromPeer(from, p.IPv6) {
		return
	}
	if c.receiveBinding(from, p, &trailers, now, out) {
		return
	}
	bubble := teredo.IsBubble(p.IPv6)
	if bubble {
		c.stats.BubblesReceived++
	}
	if server {
		c.heardServer(now)
		if bubble || p.Origin.IsValid() {
			c.receiveFromServer(e, from, p, &trailers, now, out)
			return
		}
	}
	if _, ok := c.teredoPrefix(p.IPv6.Src()); ok {
		if c.fromOurRelay(from, now) {
			c.receiveCarried(e, p.IPv6, &trailers, now, out)
			return
		}
		c.receiveFromClient(e, from, p.IPv6, &trailers, at, out)
		return
	}
	c.receiveFromNative(e, from, p.IPv6, at, out)
}

// fromPeer reports whether a packet can come from another node at all.
func (c *Client) fromPeer(from netip.AddrPort, p packet.IPv6) bool {
	src := p.Src()
	switch {
	case from == c.last.mapping || from == c.local:
		c.drop(OwnSource)
	case src == c.last.address,
		// Only bubbles of relays have a link-local source.
		!isGlobal(src) && !(src.IsLinkLocalUnicast() && teredo.IsBubble(p)):
		c.drop(BadSource)
	default:
		return true
	}
	return false
}

// receiveFromClient takes a packet that another Teredo client sent directly
// (RFC 4380 section 5.2.3 case 3, RFC 6081 section 5.2.4.4).
func (c *Client) receiveFromClient(e *peer.Entry, from netip.AddrPort, p packet.IPv6, trailers *teredo.Trailers, at peer.Instant, out *Out) {
	if !c.welcome(e, at) {
		c.drop(Unsolicited)
		return
	}
	if c.receiveLocally(e, from, p, at, out) {
		return
	}
	if c.early(e, p) {
		c.drop(EarlyBubble)
		return
	}
	if from != teredo.Mapped(p.SrcBytes()) {
		c.receiveForeign(e, from, p, trailers, at, out)
		return
	}
	if !c.global.OK(from.Addr()) {
		c.drop(NotGlobal)
		return
	}
	if c.stayLocal(e, at) {
		c.accept(e, p, out)
		return
	}
	if e == nil {
		// RFC 4380 makes an entry for everybody who speaks first. But server and
		// flags of an address are free, so one socket can have enough addresses to
		// take all places (section 7.3.3).
		if c.mayMeet(from.Addr(), at) {
			e = c.admit(p.SrcBytes(), at)
		}
		if e == nil {
			c.drop(RateLimited)
			return
		}
	}
	c.trust(e, from, at, out)
	c.answerSolicitation(e, c.peers.Cold(e), trailers, at, out)
	c.accept(e, p, out)
}

// receiveForeign takes a packet of a Teredo client that came from another
// mapping than its address names: only a direct bubble with the nonce of our
// last indirect one proves it (RFC 6081 section 5.2.4.4).
func (c *Client) receiveForeign(e *peer.Entry, from netip.AddrPort, p packet.IPv6, trailers *teredo.Trailers, at peer.Instant, out *Out) {
	var f *effort
	if e != nil {
		f = c.peers.Cold(e)
	}
	switch {
	case alsoAt(e, f, from, at):
		c.peers.Touch(e, at)
		c.heardPeer(e, f, 0, p, trailers, at, out)
		c.accept(e, p, out)
	case answersNonce(f, p, trailers):
		c.proveByNonce(e, f, way{0, from}, at, out)
	default:
		c.drop(ForeignMapping)
		c.askPlainPeer(e, f, p, trailers, out)
		c.suspectMapping(e, p, at, out)
	}
}

// receiveFromNative takes a packet of an IPv6 host by way of a relay. A reply to
// our echo test proves the relay (RFC 4380 section 5.2.3 case 2); other packets
// are accepted as they are, since refusing them would cost connectivity and what
// is sent back waits for the test anyway (case 6, section 5.2.9).
func (c *Client) receiveFromNative(e *peer.Entry, from netip.AddrPort, p packet.IPv6, at peer.Instant, out *Out) {
	if !c.global.OK(from.Addr()) {
		c.drop(NotGlobal)
		return
	}
	if c.proves(e, p) {
		c.relays.prove(from)
		c.trust(e, from, at, out)
		return
	}
	if !c.welcome(e, at) && !c.aboutOurs(p, at) {
		c.drop(Unsolicited)
		return
	}
	c.followRelay(e, from, at, out)
	c.accept(e, p, out)
}

// followRelay tests a native host again whose packets come by another relay than
// the one that was proved and has gone silent. It may no longer be there: several
// relays can announce one prefix, and the host's packets take another when one
// fails. What this client sends would be lost until the entry has aged.
func (c *Client) followRelay(e *peer.Entry, from netip.AddrPort, at peer.Instant, out *Out) {
	if e == nil || !valid(e, at) || e.MappedIs(from) || at.Sub(e.Rx) < retryInterval {
		return
	}
	if f := c.warm(e); f.phase == resting {
		c.startTest(e, f, at, c.clock.Time(at), out)
	}
}

// accept gives a packet to the host's stack, unless it is a bubble or a second
// reply to an echo test, which have done their work, or Neighbor Discovery,
// which is of a link and never crosses a tunnel.
func (c *Client) accept(e *peer.Entry, p packet.IPv6, out *Out) {
	c.silence.heard = true
	switch p.NextHeader() {
	case packet.ProtoTCP, packet.ProtoUDP:
	case packet.ProtoNone:
		if teredo.IsBubble(p) {
			return
		}
	default:
		if p.IsNeighborDiscovery() {
			c.drop(NeighborDiscovery)
			return
		}
		if c.echoed(e, p) {
			return
		}
	}
	c.stats.Delivered++
	out.SendIP(p)
}

// aboutOurs reports whether p is an ICMPv6 error about a packet of ours to a peer
// contacted before. Its source is any router on the way, and without it path MTU
// discovery would fail (RFC 4890 section 4.3.1).
func (c *Client) aboutOurs(p packet.IPv6, at peer.Instant) bool {
	if p.NextHeader() != packet.ProtoICMPv6 {
		return false
	}
	m, ok := p.ICMPv6()
	if !ok || m[0] >= 128 || len(m) < 8+packet.IPv6HeaderLen {
		return false
	}
	quoted := packet.IPv6(m[8:])
	if *quoted.SrcBytes() != c.own {
		return false
	}
	e := c.peers.Lookup(quoted.DstBytes())
	return e != nil && at.Sub(e.Tx) < establishedFor
}
