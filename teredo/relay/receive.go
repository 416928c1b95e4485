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
	at := r.clock.At(now)
	if r.quickUDP(from, payload, at, out, &r.quick) {
		return
	}
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
	if r.isCarried(p, r.shared.Load()) {
		r.handleCarried(p, trailers, from, at, now, out)
		return
	}
	mapped, why, ok := r.accept(p, from, at, now, out)
	if !ok {
		r.drop(why)
		return
	}
	r.deliver(p, mapped, now, out)
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
// and records that. It returns where packets to the client go.
func (r *Relay) accept(p packet.IPv6, from netip.AddrPort, at peer.Instant, now time.Time, out *packet.Batch) (mapped netip.AddrPort, why Reason, ok bool) {
	src := p.SrcBytes()
	switch {
	case !r.isTeredo(src):
		return mapped, SourceNotTeredo, false
	case from.Port() == r.cfg.Port && r.isOwn(from.Addr()):
		return mapped, OwnAddress, false
	}
	k := r.find(src, at)
	mapped = r.mapped(src, k)
	switch {
	case !k.hot && k.test == nil:
		if why, ok := r.mayMeet(src, from, now); !ok {
			return mapped, why, false
		}
	case mapped == from:
	case teredo.Mapped(src) == from:
		if k.hot && k.ref.Age(at) < r.cfg.PeerTimeout {
			// The client proved another mapping by our key. An address can be
			// forged, so without the key the packet counts, but moves nothing.
			if _, ok := r.checkKey(p, k.test, from, at, now); !ok {
				r.doubt(src, k, at, now, out)
				return mapped, 0, true
			}
		}
	default:
		if why, ok := r.checkKey(p, k.test, from, at, now); !ok {
			r.doubt(src, k, at, now, out)
			return mapped, why, false
		}
	}
	if why, ok := r.trust(src, k, from, at, out); !ok {
		return from, why, false
	}
	if mapped != from && teredo.Mapped(src) != from {
		r.stats.ForeignMappings++
	}
	return from, 0, true
}

// mayMeet decides about a client that is not known. A relay ignores clients to
// which it has not sent before; a host-specific one listens to all, since its host
// may be anybody's peer. Server and flags of an address are free, so one socket
// can have enough addresses to take the whole table (RFC 4380 section 7.3.3): new
// clients are limited by their IPv4 address, and in all as by bubbles, since
// sources may be forged.
func (r *Relay) mayMeet(src *[16]byte, from netip.AddrPort, now time.Time) (why Reason, ok bool) {
	if teredo.Mapped(src) != from {
		return MappingMismatch, false
	}
	if !r.cfg.Host {
		return NoPeer, false
	}
	if why, ok := r.checkClient(src); !ok {
		return why, false
	}
	if !r.perStranger.Allow(from.Addr(), now) {
		return StrangerRate, false
	}
	if !r.meetBucket.Allow(r.bubbleLimit, now) {
		return PeerRate, false
	}
	return 0, true
}

// checkKey decides whether p, from a mapping that is not the client's own, is the
// answer to a bubble of ours that waits for one; e is the client under test.
func (r *Relay) checkKey(p packet.IPv6, e *peer.Entry, from netip.AddrPort, at peer.Instant, now time.Time) (why Reason, ok bool) {
	dst := p.DstBytes()
	if !teredo.IsBubble(p) || dst[0] != 0xfe || e == nil || r.tests.Cold(e).silent {
		return MappingMismatch, false
	}
	if why, ok := r.checkMapping(from); !ok {
		return why, false
	}
	switch {
	case !r.keyBucket.Allow(r.bubbleLimit, now):
		return KeyRate, false
	case !r.key.valid(&e.Key, dst, at):
		return BadKey, false
	}
	return 0, true
}

// doubt asks a trusted client for a sign of life, since a packet that bears its address
// came from another mapping: its NAT may have given it that one, and what is sent to the
// old one is lost. A forger gains a bubble that goes to the client's server.
func (r *Relay) doubt(client *[16]byte, k known, at peer.Instant, now time.Time, out *packet.Batch) {
	if !k.hot || k.test != nil || k.ref.Age(at) < doubtAge {
		return
	}
	if _, ok := r.mayTest(netip.AddrFrom16(*client), client, now); ok {
		r.begin(client, k, at, out)
	}
}

// trust records that the client was heard from this mapping, sends what waits for
// it, oldest first, and ends its test. It returns false, and does nothing, when the
// table has no place for it.
func (r *Relay) trust(client *[16]byte, k known, mapped netip.AddrPort, at peer.Instant, out *packet.Batch) (why Reason, ok bool) {
	e := k.test
	var a *attempt
	if e != nil {
		a = r.tests.Cold(e)
	}
	waited := a != nil && a.queue.Len() > 0
	// What waited may have been handed out in this batch, and not be sent yet.
	unpublished := e == nil && k.hot && k.ref.Busy()
	switch r.hot.Insert(client, mapped, at, r.cfg.PeerTimeout, waited || unpublished) {
	case peer.Accepted:
	case peer.ForeignFull:
		return ForeignFull, false
	case peer.MappingFull:
		return MappingFull, false
	default:
		return TableFull, false
	}
	r.keepSweeping(at)
	if waited {
		if len(r.unpublished) == cap(r.unpublished) {
			r.Publish()
		}
		r.unpublished = append(r.unpublished, *client)
		r.stats.Flushed += uint64(a.queue.Len())
		a.queue.Drain(&r.budget, out, func(p packet.IPv6) { r.send(mapped, p, out) })
	}
	if e != nil {
		r.tests.Delete(e)
	}
	return 0, true
}

// Publish opens lanes to the peers that have become trusted since the last call.
// It is called when the output of the calls since then has been sent: until then a
// lane would let new packets overtake those that had waited.
func (r *Relay) Publish() {
	for i := range r.unpublished {
		if key := &r.unpublished[i]; r.tests.Lookup(key) == nil {
			r.hot.SetBusy(key, false)
		}
	}
	r.unpublished = r.unpublished[:0]
	r.late.flush()
}
