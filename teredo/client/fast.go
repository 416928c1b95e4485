// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo/peer"
)

// A fast path outside this program can carry the data of peers that are proved,
// whole packets that need nothing but their outer header. The engine says which
// peers those are, and takes that back before anything about a peer changes; all
// other packets come here as ever. What the fast path has carried is reported, at
// best before each Tick and at least once a second, so that all rules that count
// from the last packet of a peer or of the host hold as if it had come here.

// Implementation constants of the fast path.
const (
	// fastLag is how much later than it happened the engine may learn of a packet
	// that the fast path has carried.
	fastLag = time.Second

	// FastReceive is how long after its last packet a peer may be received from by
	// the fast path. It is less than [FastSend] by twice the lag, so that the engine
	// never takes a peer for silent that was heard elsewhere.
	FastReceive = peerLifetime - 2*fastLag
	// FastSend is how long after its last packet a peer may be sent to (RFC 4380
	// section 5.2.4).
	FastSend = peerLifetime
	// FastContact is how long after the host's last packet to it a peer may be
	// received from where [Established] is the policy.
	FastContact = establishedFor
)

// FastChange says that a peer may take the fast path from now on, as the rest of
// it says, or no longer.
type FastChange struct {
	// Peer is the IPv6 address; the zero address is all peers, which Gone concerns.
	Peer [16]byte
	Gone bool
	// Socket is the index of the local socket, and Mapping where the peer is sent
	// to from there and where its packets come from.
	Socket  int
	Mapping netip.AddrPort
	// Heard and Sent are the times of the last packets from and to the peer.
	Heard, Sent time.Time
	// Tested: a reply to an echo test may still come, so ICMPv6 of this peer is not
	// for the fast path.
	Tested bool
}

// fastPeer is what was told last of a peer.
type fastPeer struct {
	way    way
	tested bool
	rx, tx peer.Instant // the latest that either side has told the other
}

// FastChanges returns what has changed since the last call, in order. Gone ones
// have to be done before the engine is called again. The slice is valid until
// then.
func (c *Client) FastChanges() []FastChange {
	list := c.fastChanges
	c.fastChanges = c.fastChanges[:0]
	return list
}

// offer tells the fast path of a peer whose data came here although it might do
// without: it is not known there, or what is known has aged. f may be nil.
func (c *Client) offer(e *peer.Entry, f *effort, at peer.Instant) {
	if c.cfg.FastPeers == 0 || !valid(e, at) || f != nil && f.phase == soliciting {
		return
	}
	w := c.target(e, f)
	if w.to != e.Mapped() {
		return // it sends from elsewhere
	}
	p, known := c.fastPeers[e.Key]
	tested := f != nil && f.tested
	if known && p.way == w && p.tested == tested && e.Rx.Sub(p.rx) < fastLag && e.Tx.Sub(p.tx) < fastLag {
		return
	}
	if !known && len(c.fastPeers) >= c.cfg.FastPeers {
		return
	}
	c.fastPeers[e.Key] = fastPeer{way: w, tested: tested, rx: e.Rx, tx: e.Tx}
	c.fastChanges = append(c.fastChanges, FastChange{
		Peer: e.Key, Socket: w.socket, Mapping: w.to, Tested: tested,
		Heard: c.clock.Time(e.Rx), Sent: c.clock.Time(e.Tx),
	})
}

// withdraw takes a peer back before something about it changes.
func (c *Client) withdraw(key *[16]byte) {
	if _, known := c.fastPeers[*key]; known {
		delete(c.fastPeers, *key)
		c.fastChanges = append(c.fastChanges, FastChange{Peer: *key, Gone: true})
	}
}

// withdrawAll takes all peers back.
func (c *Client) withdrawAll() {
	if len(c.fastPeers) > 0 {
		clear(c.fastPeers)
		c.fastChanges = append(c.fastChanges[:0], FastChange{Gone: true})
	}
}

// distrust takes the trust in a peer away, here and on the fast path.
func (c *Client) distrust(e *peer.Entry) {
	c.withdraw(&e.Key)
	c.peers.Distrust(e)
}

// sweepFast takes back those that have expired, so that others find room.
func (c *Client) sweepFast(at peer.Instant) {
	for key := range c.fastPeers {
		if e := c.peers.Lookup(&key); e == nil || !valid(e, at) {
			c.withdraw(&key)
		}
	}
}

// FastPassed reports the times of the last packets from and to a peer that the
// fast path has carried; zero is none.
func (c *Client) FastPassed(key *[16]byte, heard, sent time.Time) {
	p, known := c.fastPeers[*key]
	e := c.peers.Lookup(key)
	if !known || e == nil {
		return // taken back meanwhile
	}
	if at := c.clock.At(heard); !heard.IsZero() && at > e.Rx {
		c.peers.Touch(e, at)
		p.rx = max(p.rx, at)
	}
	if at := c.clock.At(sent); !sent.IsZero() && at > e.Tx {
		e.Tx = at
		p.tx = max(p.tx, at)
	}
	c.fastPeers[*key] = p
}

// FastTraffic reports when the fast path has last carried a packet from and to
// any peer; zero is never. To report the same again does no harm.
func (c *Client) FastTraffic(heard, sent time.Time) {
	if c.state != Qualified {
		return
	}
	if heard.After(c.silence.since) {
		c.silence.heard = true
	}
	if sent.After(c.silence.since) && sent.After(c.silence.passed) {
		c.silence.passed = sent
		c.hostSent(sent)
	}
}
