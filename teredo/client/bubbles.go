// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// startBubbles begins to reach another client (RFC 4380 section 5.2.4 case 5).
func (c *Client) startBubbles(e *peer.Entry, f *effort, at peer.Instant, now time.Time, out *Out) {
	f.phase, f.sent, f.disguised = bubbling, 0, 0
	f.opened = false
	if f.slot != 0 && !c.portPreserving() {
		// A port that was predicted may be another by now.
		c.closePort(f, out)
	}
	if pause := f.indirect.Add(bubbleInterval); pause > at {
		// A pair went out just now, as an answer: it may well be enough.
		c.peers.SetDeadline(e, pause)
		return
	}
	c.attempt(e, f, at, now, out)
}

// attempt sends a direct and an indirect bubble, or gives up: behind four
// attempts, and when four within 300 seconds had no direct response (RFC 4380
// section 5.2.6). A pair counts as one attempt.
func (c *Client) attempt(e *peer.Entry, f *effort, at peer.Instant, now time.Time, out *Out) {
	if c.reached(e, f, at) {
		return
	}
	slot := &f.attempts[f.made%maxAttempts]
	direct := f.made < maxAttempts || at.Sub(*slot) >= bubbleWindow
	if f.sent == maxAttempts || !direct && !c.mayBeCarried(now) {
		c.fail(e, f, at, now, out)
		return
	}
	f.sent++
	c.peers.SetDeadline(e, at.Add(retryInterval))
	c.attemptByRelay(e, f, direct, at, now, out)
	if c.attemptLocally(e, f, at, now, out) || !direct {
		return
	}
	*slot = at
	f.made++
	c.reservePort(e, f, at, out)
	first := bubble{}
	if f.sent == 1 {
		first.ttl = c.cfg.OpeningTTL
	}
	c.sendDirectBy(way{0, teredo.Mapped(&e.Key)}, e, f, first, out)
	c.sendToPeerPort(e, f, at, out)
	c.callIndirect(e, f, at, out)
	if f.sent > 1 && f.nonceReceived == 0 {
		c.sendDisguised(e, f, out)
	}
	if f.sent == 2 {
		c.suspect(now, out)
	}
}

// bubble is what a direct bubble carries beside a nonce; zero values are none.
type bubble struct {
	randomPort uint16
	discovery  teredo.Discovery
	ttl        uint8 // outer time to live; 0 is the usual one
}

// sendDirectBy sends a direct bubble to a client; it repeats the nonce of the
// peer's last indirect one, if there was one (RFC 6081 section 5.2.4.2). f may be
// nil.
func (c *Client) sendDirectBy(w way, e *peer.Entry, f *effort, b bubble, out *Out) {
	t := teredo.Trailers{RandomPort: b.randomPort, Discovery: b.discovery}
	if f != nil && f.nonceReceived != 0 {
		t.HasNonce, t.Nonce = true, f.nonceReceived
	}
	payload := teredo.AppendBubble(out.Alloc(teredo.BubbleLen+teredo.MaxTrailersLen), c.last.address, e.IP())
	c.stats.DirectBubbles++
	out.UDP = append(out.UDP, packet.Datagram{Socket: w.socket, To: w.to, Payload: t.AppendTo(payload), TTL: b.ttl})
}

// sendPlain sends a direct bubble without trailers to a relay.
func (c *Client) sendPlain(to netip.AddrPort, dst netip.Addr, out *Out) {
	c.stats.DirectBubbles++
	out.SendUDP(0, to, teredo.AppendBubble(out.Alloc(teredo.BubbleLen), c.last.address, dst))
}

// sendIndirect sends a bubble by way of the peer's server, with a new nonce
// (RFC 6081 section 5.2.4.1), the port that our NAT is predicted to use, and, to a
// peer that there is no way to yet, our addresses behind the NAT.
func (c *Client) sendIndirect(e *peer.Entry, f *effort, at peer.Instant, out *Out) {
	f.indirect = at
	f.nonceSent = c.nonce()
	t := teredo.Trailers{HasNonce: true, Nonce: f.nonceSent, Fallback: c.self(c.clock.Time(at))}
	if p := c.portOf(f); p != nil {
		t.RandomPort = p.external
	}
	if !valid(e, at) {
		c.addAlternates(&t)
	}
	b := teredo.AppendBubble(out.Alloc(teredo.BubbleLen+teredo.MaxTrailersLen), c.last.address, e.IP())
	c.stats.IndirectBubbles++
	out.SendUDP(0, serverOf(e), t.AppendTo(b))
}

// mayAnswer reports whether an indirect bubble may be answered by an indirect one,
// and counts that. The pause alone would let two clients that cannot hear each
// other directly answer each other for ever once a round trip is longer than it.
func (f *effort) mayAnswer(at peer.Instant) bool {
	if at.Sub(f.answeredSince) >= bubbleWindow {
		f.answered, f.answeredSince = 0, at
	}
	if f.answered == maxAnswers || at.Sub(f.indirect) < answerPause {
		return false
	}
	f.answered++
	return true
}

// nonce draws a nonce for a trailer; 0 would mean "none".
func (c *Client) nonce() uint32 {
	for {
		if n := c.random.Uint64(); uint32(n) != 0 {
			return uint32(n)
		}
	}
}

func serverOf(e *peer.Entry) netip.AddrPort {
	return netip.AddrPortFrom(teredo.Server(&e.Key), teredo.Port)
}

// sendDisguised sends an indirect bubble the way relays do, from a random
// link-local address. A peer without RFC 6081 ignores nonces, so that behind a
// symmetric NAT it could never prove its mapping; but it answers such a bubble
// to exactly that address, which no one else has seen but its server.
func (c *Client) sendDisguised(e *peer.Entry, f *effort, out *Out) {
	f.disguised = f.sent
	if !f.disguise.IsValid() {
		b := [16]byte{0: 0xfe, 1: 0x80}
		binary.BigEndian.PutUint64(b[8:], c.random.Uint64())
		f.disguise = netip.AddrFrom16(b)
	}
	c.stats.IndirectBubbles++
	out.SendUDP(0, serverOf(e), teredo.AppendBubble(out.Alloc(teredo.BubbleLen), f.disguise, e.IP()))
}

// askPlainPeer takes a direct bubble that proves nothing, of a client that is sought. It may be
// the answer of one without RFC 6081, to which its symmetric NAT has given another mapping
// here: that is asked for the proof at once, not with the next attempt. It costs one bubble
// of the attempt, whoever has forged the answer.
func (c *Client) askPlainPeer(e *peer.Entry, f *effort, p packet.IPv6, trailers *teredo.Trailers, out *Out) {
	if f == nil || f.phase != bubbling || f.disguised == f.sent ||
		e.Modern || trailers.HasNonce || !teredo.IsBubble(p) {
		return
	}
	c.sendDisguised(e, f, out)
}

// receiveDisguised takes a direct bubble to the link-local address of
// sendDisguised.
func (c *Client) receiveDisguised(from netip.AddrPort, p packet.IPv6, now time.Time, out *Out) {
	c.stats.BubblesReceived++
	at := c.clock.At(now)
	e := c.peers.Lookup(p.SrcBytes())
	if e == nil {
		c.drop(BadDestination)
		return
	}
	f := c.peers.Cold(e)
	if f == nil || !f.disguise.IsValid() || f.disguise != p.Dst() {
		c.drop(BadDestination)
		return
	}
	if !c.mayLearn(e, from) {
		c.drop(NotGlobal)
		return
	}
	c.prove(e, f, way{0, from}, at, out)
}
