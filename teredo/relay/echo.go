// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/peer"
)

// A client that wants to reach an IPv6 host first sends an echo request through
// its server and waits for the reply by way of a relay (RFC 4380 section 5.2.9).
// The relay has to open the path with a bubble before it can send that reply, one
// round trip more. Servers carry ICMPv6 from IPv6 hosts to their clients and
// put the sender's mapping, here the relay's, into an origin indication (section
// 5.3.1). So a copy of the reply goes that way at once: from it the client
// learns the relay, and the nonce proves it. The reply itself waits for the
// bubble's answer all the same. See docs/decisions/0003-echo-reply-through-server.md.

// freshFor is the age of a trusted client below which p needs no sign of life from it.
// The answer to a connectivity test says that the client has no relay that it has proved,
// as it had one when it was heard: its NAT may have forgotten the way since.
func (s *shared) freshFor(p packet.IPv6) time.Duration {
	if p.NextHeader() == packet.ProtoICMPv6 {
		if _, ok := teredo.EchoTestReply(p); ok {
			return min(doubtAge, s.refresh)
		}
	}
	return s.refresh
}

// isEchoTest reports whether p looks like the reply to an echo test of this
// project's clients: their identifier and sequence number are zero. Others take
// the outer source of a reply for the relay, which the server is not.
func isEchoTest(p packet.IPv6) bool {
	_, ok := teredo.EchoTestReply(p)
	return ok && [4]byte(p.Payload()[4:8]) == [4]byte{}
}

// copyEcho sends a copy of a queued echo test reply through the client's server.
// It sends no more copies than bubbles, which are what is limited for each server.
func (r *Relay) copyEcho(p packet.IPv6, a *attempt, out *packet.Batch) {
	if !r.cfg.EchoThroughServer || a.copies == bubbleTries || !isEchoTest(p) {
		return
	}
	a.copies++
	r.stats.EchoCopies++
	server := netip.AddrPortFrom(teredo.Server(p.DstBytes()), teredo.Port)
	out.SendUDP(Socket, server, p)
}

// revive gives a silent peer one more bubble when its pause is over, and at once
// when p answers a connectivity test: then the client is there and wants to hear from
// us. The spacing is that of all bubbles, since the peer is under test until the
// answer is overdue. It falls under the limits on tests, or one host could spend the
// bubbles of all.
func (r *Relay) revive(e *peer.Entry, a *attempt, p packet.IPv6, at peer.Instant, now time.Time, out *packet.Batch) bool {
	if _, ok := teredo.EchoTestReply(p); !ok && at < a.again {
		return false
	}
	if _, ok := r.mayTest(p.Src(), p.DstBytes(), now); !ok {
		return false
	}
	a.silent = false
	a.bubbles, a.copies = bubbleTries-1, bubbleTries-1
	a.first = at
	r.bubble(e, a, at, out)
	return true
}
