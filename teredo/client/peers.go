// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// effort is the cold state of a peer: what it takes to become trusted, and what
// bubbles need to remember behind that.
type effort struct {
	queue peer.Queue
	phase phase
	sent  int // echo tests or bubble attempts of this effort

	// attempts are the times of the last bubble attempts, a ring (RFC 4380
	// section 5.2.6); made counts them since the last direct response.
	attempts [maxAttempts]peer.Instant
	made     int
	indirect peer.Instant // last indirect bubble sent, answers included

	answered      int          // indirect answers since answeredSince or a direct response
	answeredSince peer.Instant // start of their window

	nonceSent, nonceReceived uint32                    // RFC 6081 section 5.2.1; 0 is none
	disguise                 netip.Addr                // of bubbles to a peer without nonces
	disguised                int                       // the attempt of this effort that sent the last one
	echo                     [teredo.EchoNonceLen]byte // of the last echo test
	tested                   bool                      // there was one

	extension
	caller netip.Addr // if valid: counted among the callers, by this mapped address

	carriage  // by relays
	localPeer // on our link
}

// phase says what the deadline of an effort is for.
type phase uint8

const (
	resting    phase = iota // nothing under way; the deadline ends the memory of bubbles
	bubbling                // bubbles are out, or will be at the deadline
	testing                 // an echo test is out
	soliciting              // a silent peer is asked directly
)

// untrustedShare is the part of the list of peers that those without proof may have.
const untrustedShare = 4

// newTable makes an empty list of peers.
func (c *Client) newTable() {
	c.peers = peer.NewTable[effort](peer.Limits{Peers: c.cfg.MaxPeers, Untrusted: max(c.cfg.MaxPeers/untrustedShare, 1)},
		func(e *peer.Entry, f *effort) {
			c.withdraw(&e.Key)
			c.discard(f, PeerEvicted)
		})
}

// forgetPeers empties the list when the address goes: what waits bears a source
// that is no more, and what is trusted was proved for the old mapping.
func (c *Client) forgetPeers() {
	c.peers.Walk(func(e *peer.Entry) bool {
		c.discard(c.peers.Cold(e), AddressGone)
		return true
	})
	c.evicted += c.peers.Evictions()
	c.withdrawAll()
	c.relays = relays{}
	c.newTable()
	c.unbind()
}

// discard drops what waits in f, which may be nil.
func (c *Client) discard(f *effort, why Reason) {
	if f != nil {
		c.stats.Dropped[why] += uint64(f.queue.Clear(&c.budget))
		c.abandonPort(f)
		c.leave(f)
	}
}

// never is a time long enough ago to mean "not yet": RFC 4380 asks for 30
// seconds, the inbound policy for more.
func never(at peer.Instant) peer.Instant { return at.Add(-establishedFor) }

// valid reports whether e may be sent to without further proof (RFC 4380 section
// 5.2.4).
func valid(e *peer.Entry, at peer.Instant) bool {
	return e.Trusted() && at.Sub(e.Rx) < peerLifetime
}

// welcome reports whether the inbound policy lets packets of a peer in; e is nil
// when it is unknown. Entry.Tx is the time of the last packet of the host.
func (c *Client) welcome(e *peer.Entry, at peer.Instant) bool {
	return c.cfg.Inbound == Allow || e != nil && at.Sub(e.Tx) < establishedFor
}

// trust marks a peer as proved at a mapping that the service port reaches, which
// goes before a random port (RFC 6081 section 5.4.4.5).
func (c *Client) trust(e *peer.Entry, mapping netip.AddrPort, at peer.Instant, out *Out) {
	if f := c.peers.Cold(e); f != nil {
		c.closePort(f, out)
	}
	c.establish(e, mapping, at, out)
}

// establish marks a peer as proved at a mapping and sends what waits for it, in
// order.
func (c *Client) establish(e *peer.Entry, mapping netip.AddrPort, at peer.Instant, out *Out) {
	before, known := e.Mapped(), valid(e, at)
	c.silence.heard = true
	if before != mapping {
		c.withdraw(&e.Key)
	}
	c.peers.Trust(e, mapping, at)
	f := c.peers.Cold(e)
	if f == nil {
		return
	}
	c.leave(f)
	if known && before != mapping {
		f.also = before // the peer may not know of the change yet
	}
	c.stats.Sent += uint64(f.queue.Len())
	w := c.target(e, f)
	f.queue.Drain(&c.budget, &out.Batch, func(p packet.IPv6) { out.SendUDP(w.socket, w.to, p) })
	f.made, f.answered = 0, 0
	f.carried = false
	c.rest(e, f, at)
}

// rest ends an effort. What it sent is remembered as long as an answer may
// matter: bubbles for the window of RFC 4380 section 5.2.6, an echo test until
// its last repeat would have been overdue.
func (c *Client) rest(e *peer.Entry, f *effort, at peer.Instant) {
	f.phase, f.sent = resting, 0
	if f.tested {
		c.peers.SetDeadline(e, at.Add(maxAttempts*retryInterval))
		return
	}
	c.peers.SetDeadline(e, at.Add(bubbleWindow))
}

// fail ends an effort without success: the host learns it for each packet that
// waited.
func (c *Client) fail(e *peer.Entry, f *effort, at peer.Instant, now time.Time, out *Out) {
	n := f.queue.Len()
	f.queue.Drain(&c.budget, &out.Batch, func(p packet.IPv6) {
		c.sendError(packet.ICMPv6Unreachable, packet.UnreachableAddress, 0, p, now, out)
	})
	c.stats.Dropped[Unreachable] += uint64(n)
	c.closePort(f, out)
	c.rest(e, f, at)
}

// tickPeers does what is due for peers.
func (c *Client) tickPeers(now time.Time, out *Out) {
	at := c.clock.At(now)
	for e := c.peers.Due(at); e != nil; e = c.peers.Due(at) {
		f := c.peers.Cold(e)
		switch f.phase {
		case bubbling:
			c.attempt(e, f, at, now, out)
		case testing:
			c.test(e, f, at, now, out)
		case soliciting:
			c.solicitPeer(e, f, at, now, out)
		case resting:
			if f.slot != 0 {
				c.peers.SetDeadline(e, at.Add(bubbleWindow))
				continue
			}
			if !c.seekDirect(e, f, at, now, out) && !c.keepLocal(e, f, at) {
				c.leave(f)
				c.peers.Release(e)
			}
		}
	}
	if !now.Before(c.sweepAt) {
		c.sweep(at)
		c.sweepFast(at)
		c.sweepAt = now.Add(sweepInterval)
	}
}

// sweep deletes entries that say nothing any more.
func (c *Client) sweep(at peer.Instant) {
	keep := bubbleWindow
	if c.cfg.Inbound == Established {
		keep = establishedFor
	}
	for _, oldest := range []func() *peer.Entry{c.peers.OldestTrusted, c.peers.OldestUntrusted} {
		for e := oldest(); e != nil && at.Sub(max(e.Rx, e.Tx)) >= keep && c.peers.Cold(e) == nil; e = oldest() {
			c.withdraw(&e.Key)
			c.peers.Delete(e)
		}
	}
}

// Peer is one entry of the list of recent peers, for people.
type Peer struct {
	Address        netip.Addr
	Mapped         netip.AddrPort // not valid while there is no proof
	Trusted        bool
	Received, Sent time.Time // zero when there was none
	Queued         int       // packets
}

// Peers calls f for at most limit peers and returns the number of all.
func (c *Client) Peers(limit int, f func(Peer)) (total int) {
	total, _ = c.peers.Len()
	c.peers.Walk(func(e *peer.Entry) bool {
		if limit--; limit < 0 {
			return false
		}
		p := Peer{Address: e.IP(), Trusted: e.Trusted()}
		if e.Trusted() {
			p.Mapped = e.Mapped()
		}
		// Instants before the epoch are the "never" of a new entry.
		if e.Rx >= 0 {
			p.Received = c.clock.Time(e.Rx)
		}
		if e.Tx >= 0 {
			p.Sent = c.clock.Time(e.Tx)
		}
		if cold := c.peers.Cold(e); cold != nil {
			p.Queued = cold.queue.Len()
		}
		f(p)
		return true
	})
	return total
}
