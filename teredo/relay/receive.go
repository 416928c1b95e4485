// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// HandleUDP takes a datagram from the service port (RFC 4380 section 5.4.2). It
// may rewrite the payload, and out may alias it. Indications and trailers mean
// nothing to a relay and are passed over.
func (r *Relay) HandleUDP(from netip.AddrPort, payload []byte, now time.Time, out *packet.Batch) {
	r.stats.FromUDP++
	p, trailers, ok := packet.ParseIPv6(payload)
	if !ok {
		t, err := teredo.Parse(payload)
		if err != nil {
			r.drop(faultReason(err))
			return
		}
		p, trailers = t.IPv6, t.Trailers
	}
	at := r.clock.At(now)
	if r.isCarried(p) {
		r.handleCarried(p, trailers, from, at, now, out)
		return
	}
	e := r.peers.Lookup(p.SrcBytes())
	if e != nil && e.Trusted() && e.MappedIs(from) && r.peers.Cold(e) == nil {
		r.peers.Touch(e, at)
	} else {
		var why Reason
		if e, why, ok = r.accept(p, e, from, at, now, out); !ok {
			r.drop(why)
			return
		}
	}
	r.deliver(p, e, at, now, out)
}

// faultReason is the reason for a fault of the codec.
func faultReason(err error) Reason {
	switch err {
	case teredo.FaultNotIPv6:
		return NotIPv6
	case teredo.FaultLength:
		return BadLength
	case teredo.FaultIndicationOrder:
		return IndicationOrder
	}
	return Truncated
}

// accept decides whether p comes from the client that its source address names,
// and records that. e is the entry of that address, or nil.
func (r *Relay) accept(p packet.IPv6, e *peer.Entry, from netip.AddrPort, at peer.Instant, now time.Time, out *packet.Batch) (_ *peer.Entry, why Reason, ok bool) {
	src := p.SrcBytes()
	switch {
	case !r.isTeredo(src):
		return nil, SourceNotTeredo, false
	case from.Port() == r.cfg.Port && r.isOwn(from.Addr()):
		return nil, OwnAddress, false
	case e == nil:
		return r.meet(src, from, at, now)
	case e.MappedIs(from):
	case teredo.Mapped(src) == from:
		if e.Trusted() && at.Sub(e.Rx) < r.cfg.PeerTimeout {
			// The client proved another mapping by our key. An address can be
			// forged, so the packet counts, but moves nothing.
			return e, 0, true
		}
	default:
		if why, ok := r.checkKey(p, e, from, at, now); !ok {
			return nil, why, false
		}
		r.stats.ForeignMappings++
	}
	r.peers.Trust(e, from, at)
	r.flush(e, at, out)
	return e, 0, true
}

// meet handles a client without an entry. A relay ignores clients to which it has
// not sent before; a host-specific one listens to all, since its host may be
// anybody's peer. Server and flags of an address are free, so one socket can have
// enough addresses to take the whole table (RFC 4380 section 7.3.3): new clients
// are limited by their IPv4 address.
func (r *Relay) meet(src *[16]byte, from netip.AddrPort, at peer.Instant, now time.Time) (_ *peer.Entry, why Reason, ok bool) {
	if teredo.Mapped(src) != from {
		return nil, MappingMismatch, false
	}
	if !r.cfg.Host {
		return nil, NoPeer, false
	}
	if why, ok := r.checkClient(src); !ok {
		return nil, why, false
	}
	if !r.perStranger.Allow(from.Addr(), now) {
		return nil, StrangerRate, false
	}
	e, _ := r.peers.Insert(src, never)
	r.peers.Trust(e, from, at)
	return e, 0, true
}

// checkKey decides whether p, from a mapping that is not the client's own, is the
// answer to a bubble of ours that waits for one.
func (r *Relay) checkKey(p packet.IPv6, e *peer.Entry, from netip.AddrPort, at peer.Instant, now time.Time) (why Reason, ok bool) {
	dst := p.DstBytes()
	a := r.peers.Cold(e)
	switch {
	case !teredo.IsBubble(p) || dst[0] != 0xfe || a == nil || a.silent:
		return MappingMismatch, false
	case r.isOwn(from.Addr()):
		return OwnAddress, false
	case !r.cfg.Global.OK(from.Addr()) || from.Port() == 0:
		return MappedNotGlobal, false
	case !r.keyBucket.Allow(r.bubbleLimit, now):
		return KeyRate, false
	case !r.key.valid(&e.Key, dst, at):
		return BadKey, false
	}
	return 0, true
}

// flush sends what waits for e, oldest first, and ends its attempt.
func (r *Relay) flush(e *peer.Entry, at peer.Instant, out *packet.Batch) {
	a := r.peers.Cold(e)
	if a == nil {
		return
	}
	r.stats.Flushed += uint64(a.queue.Len())
	a.queue.Drain(&r.budget, out, func(p packet.IPv6) { r.send(e, p, at, out) })
	r.peers.Release(e)
}
