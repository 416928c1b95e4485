// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/teredo/peer"
)

// relayMemory is how long the answer to a relay's bubble counts: as long as the
// relay repeats it.
const relayMemory = maxAttempts * retryInterval

// relayPause is the time between two answers that one proved relay has for itself. It
// repeats bubbles more slowly.
const relayPause = 500 * time.Millisecond

// relays remembers to which relays a bubble was answered lately. A relay takes
// nothing from behind a symmetric NAT before it has that answer, so data sent on
// the word of the server alone, should that come first, would be lost.
type relays struct {
	last [16]struct {
		origin netip.AddrPort
		source netip.Addr // of the bubble
		at     peer.Instant
	}
	next int // the one to be overwritten

	// proved are the relays that a test has proved last, and when each was answered:
	// the answers for them are counted apart from those for strangers, who may forge
	// any number of packets from a relay's network, or from the relay itself.
	proved [32]struct {
		origin   netip.AddrPort
		answered peer.Instant
	}
	nextProved int
}

// prove records that the nonce of a test came back by the relay at origin.
func (r *relays) prove(origin netip.AddrPort) {
	if r.findProved(origin) >= 0 {
		return
	}
	p := &r.proved[r.nextProved]
	p.origin, p.answered = origin, never(0)
	r.nextProved = (r.nextProved + 1) % len(r.proved)
}

// mayAnswer reports whether the relay at origin is a proved one that has an answer left,
// and takes it.
func (r *relays) mayAnswer(origin netip.AddrPort, now peer.Instant) bool {
	i := r.findProved(origin)
	if i < 0 || now.Sub(r.proved[i].answered) < relayPause {
		return false
	}
	r.proved[i].answered = now
	return true
}

func (r *relays) findProved(origin netip.AddrPort) int {
	for i := range r.proved {
		if r.proved[i].origin == origin {
			return i
		}
	}
	return -1
}

// note records that a bubble from source of the relay at origin is answered now.
func (r *relays) note(origin netip.AddrPort, source netip.Addr, now peer.Instant) {
	i := r.find(origin)
	if i < 0 {
		i = r.next
		r.next = (r.next + 1) % len(r.last)
	}
	r.last[i].origin, r.last[i].source, r.last[i].at = origin, source, now
}

// answered returns the source of the bubble of the relay at origin that was
// answered lately; ok is false when there was none.
func (r *relays) answered(origin netip.AddrPort, now peer.Instant) (source netip.Addr, ok bool) {
	i := r.find(origin)
	if i < 0 || now.Sub(r.last[i].at) >= relayMemory {
		return netip.Addr{}, false
	}
	return r.last[i].source, true
}

func (r *relays) find(origin netip.AddrPort) int {
	for i := range r.last {
		if r.last[i].origin == origin {
			return i
		}
	}
	return -1
}
