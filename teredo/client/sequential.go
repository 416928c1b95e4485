// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// maxPredictions is how often the ports are asked for (RFC 6081 section 5.5.2.2);
// the wait is a second the first time, two the second (section 5.5.4.1.1).
const maxPredictions = 2

// prediction is the Echo Test of RFC 6081 section 5.5.1, by which the external
// port of a random port is predicted.
type prediction struct {
	running      bool
	tries        int // EchoTestRetryCounter
	due          peer.Instant
	lower, upper solicitation // EchoTestNonce1 and 2 among other things
	lowerPort    uint16       // 0: not known yet
	upperPort    uint16
}

// done reports whether nothing is left to predict; external is the port known.
func (g *prediction) done(external uint16) bool {
	return external != 0 || !g.running && g.tries >= maxPredictions
}

// callIndirect sends an indirect bubble, or first predicts the port that it will
// announce: a NAT that is symmetric and does not preserve ports is taken for one
// that numbers them in sequence (RFC 6081 section 5.5.4.1).
func (c *Client) callIndirect(e *peer.Entry, f *effort, at peer.Instant, out *Out) {
	c.reservePort(e, f, at, out)
	p := c.portOf(f)
	switch {
	case p == nil || p.proved || p.guess.done(p.external), !p.guess.running && !c.mayAdd(e, at):
		c.sendIndirect(e, f, at, out)
	case !p.guess.running:
		f.indirect = at // the bubble is on its way, so to speak
		c.predict(e, f, p, at, c.clock.Time(at), out)
	}
}

// predict sends from the random port a solicitation to the server, a direct
// bubble to the peer, and a solicitation to the secondary server: a sequential
// NAT gives them ports in this order (RFC 6081 section 5.5.4.1.1). The bubble goes
// to where the peer will send from.
func (c *Client) predict(e *peer.Entry, f *effort, p *randomPort, at peer.Instant, now time.Time, out *Out) {
	g := &p.guess
	g.running = true
	g.tries++
	g.due = at.Add(time.Duration(g.tries) * time.Second)
	g.lowerPort, g.upperPort = 0, 0
	c.ports.wake(p)
	c.stats.PortPredictions++

	to := teredo.Mapped(&e.Key)
	if f.peerPort != 0 {
		to = netip.AddrPortFrom(to.Addr(), f.peerPort)
	}
	c.solicitFrom(&g.lower, socketOf(f), c.server().Primary, now, out)
	c.sendDirectBy(way{socketOf(f), to}, e, f, bubble{ttl: c.openingTTL(f)}, out)
	c.solicitFrom(&g.upper, socketOf(f), c.server().Secondary, now, out)
}

// predictionLate is the Echo Test Failover Timer (RFC 6081 section 5.5.2.2): one
// more try, then an indirect bubble without a port.
func (c *Client) predictionLate(e *peer.Entry, f *effort, p *randomPort, at peer.Instant, now time.Time, out *Out) {
	p.guess.running = false
	if p.guess.tries < maxPredictions && c.mayAdd(e, at) {
		c.predict(e, f, p, at, now, out)
		return
	}
	c.sendIndirect(e, f, at, out)
}

// handlePortAdvertisement takes a router advertisement on a random port (RFC 6081
// section 5.5.4.4). The port given to the bubble lies between those given to the
// solicitations; the RFC's formula names the upper one twice by mistake.
func (c *Client) handlePortAdvertisement(socket int, from netip.AddrPort, pkt *teredo.Packet, at peer.Instant, out *Out) {
	p, e, f := c.portOn(socket)
	if p == nil || !p.guess.running {
		c.drop(UnaskedAdvertisement)
		return
	}
	g := &p.guess
	s, _ := c.advertisement(from, pkt, &g.lower, &g.upper)
	if s == nil {
		return
	}
	s.active = false
	if s == &g.lower {
		g.lowerPort = pkt.Origin.Port()
	} else {
		g.upperPort = pkt.Origin.Port()
	}
	if g.lowerPort == 0 || g.upperPort == 0 {
		return
	}
	g.running = false
	p.external = uint16((uint32(g.lowerPort) + uint32(g.upperPort)) / 2)
	c.sendIndirect(e, f, at, out)
}
