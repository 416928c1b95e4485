// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/sctp/assoc"
)

// Counters are those of the protocol: what was dropped, by reason, and what was seen.
type Counters = assoc.Counters

// Stats is what an endpoint has counted since it was opened.
type Stats struct {
	Counters
	Associations int    // there are now
	EventsLost   uint64 // that no one took
	NotBound     uint64 // packets to addresses that the endpoint is not bound to
	Rests        uint64 // readings behind which heartbeats were let wait, to be read together

	Received, Sent           uint64 // packets
	ReceiveCalls, SendCalls  uint64 // system calls that did it
	ReceiveFull, SendFull    uint64 // packets that the kernel had no room for
	TooBig                   uint64 // packets larger than the MTU of the link
	Unreachable, SendRefused uint64 // packets without a route, and those that a firewall or the kernel refused
}

// Stats returns what the endpoint has counted.
func (e *Endpoint) Stats() Stats {
	e.mu.Lock()
	s := Stats{Counters: e.engine.Counters, Associations: len(e.conns), EventsLost: e.eventsLost, NotBound: e.notBound, Rests: e.rests}
	e.mu.Unlock()
	e.sockets.each(func(one *port.Pairs) {
		p := one.Stats()
		s.Received += p.ReadPackets
		s.Sent += p.WritePackets
		s.ReceiveCalls += p.ReadCalls
		s.SendCalls += p.WriteCalls
		s.ReceiveFull += p.ReadFull
		s.SendFull += p.WriteFull
		s.TooBig += p.WriteTooBig
		s.Unreachable += p.WriteUnreachable
		s.SendRefused += p.WriteDenied + p.WriteFailed
	})
	return s
}
