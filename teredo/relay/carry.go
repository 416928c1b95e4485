// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"io"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/ratelimit"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// A relay may carry packets from one Teredo client to another, for pairs whose
// NATs let no direct way open. RFC 4380 has no such relay, and one that carried
// for everybody would be a reflector and could loop. Here both clients must be
// bound to the relay, which took proof of where they are; a packet leaves only
// towards a binding, costs a hop, and is never larger than it came.
// See docs/decisions/0006-fallback-relay.md.

// Implementation constants.
const (
	// maxBindings bounds the clients that may be bound at once: some 12 MB.
	maxBindings = 1 << 16
	// addressShare is the part of them that may be at one IPv4 address, which may
	// have as many Teredo addresses as it likes.
	addressShare = 8
	// bindingLife is how long a binding lasts without being refreshed. Clients
	// refresh within 30 s, so that one lost exchange is no harm.
	bindingLife = 75 * time.Second
	// requestsPerAddress and its burst bound the answers to requests a second from
	// one IPv4 address, which may be that of a NAT with many clients.
	requestsPerAddress, requestsPerAddressBurst = 20, 40
)

var requestLimit = ratelimit.PerSecond(requestsPerAddress, requestsPerAddressBurst)

// carriage is what the relay needs to carry between clients.
type carriage struct {
	challenge, proof bindingKey
	bindings         bindings

	perAddress             *ratelimit.PerSource
	replies                ratelimit.Bucket // shares the relay's bubbleLimit
	clientLimit, rateLimit ratelimit.Limit
	rate                   ratelimit.Bucket
}

func (c *carriage) init(rand io.Reader) (err error) {
	if c.challenge, err = newBindingKey(rand); err != nil {
		return err
	}
	if c.proof, err = newBindingKey(rand); err != nil {
		return err
	}
	c.perAddress, err = ratelimit.NewPerSource(requestLimit, ratelimit.DefaultBuckets, rand)
	return err
}

// apply takes the settings of cfg. Without permission to carry all bindings end.
func (c *carriage) apply(cfg *Config) {
	c.rateLimit = ratelimit.PerSecond(cfg.CarryRate, cfg.CarryRate)
	c.clientLimit = ratelimit.PerSecond(cfg.CarryClientRate, cfg.CarryClientRate)
	c.bindings.limit = min(maxBindings, cfg.MaxPeers)
	if !cfg.CarryClients {
		c.bindings.clear()
	}
}

// isCarried reports whether p belongs to a binding or to a pair of clients.
func (r *Relay) isCarried(p packet.IPv6, s *shared) bool {
	if !s.carry || !r.isTeredo(p.SrcBytes()) {
		return false
	}
	dst := p.DstBytes()
	step, _ := teredo.BindingStepOf(dst)
	return step != teredo.NoBindingStep || r.isTeredo(dst) || *dst == allRouters
}

var allRouters = teredo.AllRouters.As16()

// carry takes a packet from one client to another.
func (r *Relay) carry(p packet.IPv6, trailers []byte, from netip.AddrPort, at peer.Instant, now time.Time, out *packet.Batch) {
	src := r.carriage.bindings.lookup(p.SrcBytes(), at)
	switch {
	case src == nil || src.mapping != from:
		// Whoever it is, he has not shown that he is there: no error goes back.
		r.drop(NotBound)
	case *p.SrcBytes() == *p.DstBytes():
		r.drop(BadDestination)
	case !src.bucket.Allow(r.carriage.clientLimit, now):
		r.drop(CarryClientRate)
	case len(p) > r.cfg.MTU:
		r.drop(TooBig)
		r.carryError(packet.ICMPv6PacketTooBig, 0, uint32(r.cfg.MTU), p, src, now, out)
	case p.HopLimit() <= 1:
		r.drop(HopLimitReached)
		r.carryError(packet.ICMPv6TimeExceeded, 0, 0, p, src, now, out)
	default:
		r.carryTo(p, trailers, src, at, now, out)
	}
}

// carryTo sends p on if its destination is bound too. Trailers go with bubbles:
// by them clients tell questions from answers.
func (r *Relay) carryTo(p packet.IPv6, trailers []byte, src *binding, at peer.Instant, now time.Time, out *packet.Batch) {
	dst := r.carriage.bindings.lookup(p.DstBytes(), at)
	switch {
	case dst == nil:
		r.drop(NoBinding)
		r.carryError(packet.ICMPv6Unreachable, packet.UnreachableAddress, 0, p, src, now, out)
		return
	case !r.carriage.rate.Allow(r.carriage.rateLimit, now):
		r.drop(CarryRate)
		return
	}
	p.SetHopLimit(p.HopLimit() - 1)
	b := []byte(p)
	if teredo.IsBubble(p) && len(trailers) <= teredo.MaxTrailersLen {
		b = append(append(out.Alloc(len(p)+len(trailers)), p...), trailers...)
	}
	r.stats.Carried++
	out.SendUDP(Socket, dst.mapping, b)
}

// carryError tells a bound client what became of its packet. Bubbles are not the
// packets of a host, which would not know what to make of such an error.
func (r *Relay) carryError(typ, code byte, param uint32, p packet.IPv6, src *binding, now time.Time, out *packet.Batch) {
	if teredo.IsBubble(p) {
		return
	}
	if b := r.buildError(typ, code, param, p, now, out); b != nil {
		out.SendUDP(Socket, src.mapping, b)
	}
}
