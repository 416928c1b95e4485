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

// Counter is one of the counters of an endpoint, for who shows them.
type Counter struct {
	Name, Help string // the name is in snake_case
	Drop       bool   // it counts what was dropped: the name says why
	Value      uint64
}

// List returns all counters by their names. Where two of them are one thing to who watches an endpoint they have one name.
func (s *Stats) List() []Counter {
	return []Counter{
		{"packets_sent", "Packets of SCTP sent.", false, s.Sent},
		{"packets_received", "Packets of SCTP received.", false, s.Received},
		{"send_calls", "System calls that sent packets.", false, s.SendCalls},
		{"receive_calls", "System calls that received packets.", false, s.ReceiveCalls},
		{"rests", "Readings behind which heartbeats were let wait, to be read together.", false, s.Rests},
		{"events_lost", "Events of associations that no one took.", false, s.EventsLost},
		{"chunks_sent", "DATA chunks sent for the first time.", false, s.Counters.Sent},
		{"timeouts", "Timeouts of T3.", false, s.Timeouts},
		{"spurious_timeouts", "Timeouts of T3 behind which a late acknowledgement came.", false, s.Spurious},
		{"retransmitted", "DATA chunks sent again after a timeout.", false, s.Retransmitted},
		{"fast_retransmitted", "DATA chunks sent again after three reports.", false, s.FastRetrans},
		{"abandoned", "Messages given up before they were delivered (RFC 3758).", false, s.Abandoned},
		{"early_copies", "Copies of DATA chunks by the early probe.", false, s.EarlyCopies},
		{"early_changes", "ASCONF chunks sent again before T4, because later DATA was acknowledged.", false, s.EarlyChanges},
		{"early_moves", "DATA chunks sent again when the early probe was answered.", false, s.EarlyMoves},
		{"mtu_probes", "Packets of a larger size than the path was known to carry.", false, s.MTUProbes},
		{"black_holes", "Paths that did not carry packets any more of a size that they had.", false, s.BlackHoles},

		{"packet_malformed", "Packets too short, or of a wrong checksum.", true, s.BadPacket},
		{"chunk_malformed", "Chunks of a length that cannot be.", true, s.BadChunk},
		{"tag_wrong", "Packets with another verification tag than the association's.", true, s.BadTag},
		{"not_ours", "Packets for another port, or to an address that the endpoint is not bound to.", true, s.NotOurs + s.NotBound},
		{"stranger", "Packets with the right tag from an address that is not the peer's.", true, s.Stranger},
		{"out_of_the_blue", "Packets of no association.", true, s.OutOfTheBlue},
		{"init_malformed", "Set-ups that cannot be.", true, s.BadInit},
		{"init_refused", "Set-ups that no one waits for, or that there is no room for.", true, s.Counters.Refused},
		{"address_wrong", "Addresses that a peer has named, and that cannot be its own.", true, s.BadAddress},
		{"cookie_wrong", "Cookies that are not ours, or were changed.", true, s.BadCookie},
		{"cookie_stale", "Cookies that came too late.", true, s.StaleCookie},
		{"cookie_old", "Cookies of an association that is another by now, or has ended.", true, s.OldCookie},
		{"unauthenticated", "Chunks without the AUTH that they need, or behind one that is not the peer's.", true, s.Unauthenticated + s.BadAuth},
		{"change_wrong", "ASCONF chunks out of turn, and answers to none.", true, s.BadChange},
		{"unexpected", "Chunks that the state of the association has no use for.", true, s.Unexpected},
		{"unknown", "Chunks of an unknown type.", true, s.Unknown},
		{"duplicate", "DATA chunks that had come before.", true, s.Duplicate},
		{"beyond_window", "DATA chunks without room, or too far ahead.", true, s.BeyondWindow},
		{"stream_wrong", "DATA chunks of a stream that does not exist.", true, s.BadStream},
		{"sack_old", "SACK chunks that were overtaken.", true, s.OldSACK},
		{"sack_wrong", "SACK chunks, or blocks in them, that acknowledge what was not sent.", true, s.BadSACK},
		{"heartbeat_wrong", "Answers to no heartbeat of ours.", true, s.BadHeartbeat},
		{"icmp_wrong", "ICMP messages about no packet of ours, or with what cannot be.", true, s.BadICMP},
		{"receive_full", "Packets that the kernel had no room for when they came.", true, s.ReceiveFull},
		{"send_full", "Packets that the kernel had no room for when they were sent.", true, s.SendFull},
		{"send_too_big", "Packets larger than the MTU of the link.", true, s.TooBig},
		{"unreachable", "Packets without a route.", true, s.Unreachable},
		{"send_refused", "Packets that a firewall, or the kernel, refused.", true, s.SendRefused},
	}
}
