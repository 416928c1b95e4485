// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"time"

	"github.com/isthmus-net/isthmus/sip/media/g711"
)

// Drop is why a packet was not taken, or not sent.
type Drop uint8

// Reasons.
const (
	dropNone         Drop = iota
	DropNotRTP            // it is something else, or broken
	DropNotRTCP           // likewise
	DropOwn               // it has our SSRC: somebody sends our packets back
	DropCollision         // the peer had our SSRC by chance, and we have taken another
	DropProbation         // the first of a source that has to prove itself
	DropSSRC              // it is not of the peer's source
	DropPlace             // no source is known that still sends, and it comes from where nobody has said that the peer is
	DropWindow            // it comes from elsewhere, and does not continue the peer's media
	DropNotAuthentic      // it is not protected by the peer's key, or has been there
	DropDuplicate         // it has come before
	DropJump              // it is far ahead of the last, or behind; the next one will show
	DropPayloadType       // nobody has agreed on its type
	DropEvent             // it is no telephone event, or has more of them than are taken
	DropHeld              // media is not wanted now
	DropStranger          // a report that is not the peer's
	DropUnsent            // a packet of ours that could not be protected
	NumDrops
)

// String returns the reason as counters have it.
func (d Drop) String() string {
	names := [NumDrops]string{
		"", "not_rtp", "not_rtcp", "own", "collision", "probation", "ssrc", "place", "window", "not_authentic", "duplicate", "jump",
		"payload_type", "event", "held", "stranger", "unsent",
	}
	if d >= NumDrops {
		return "unknown"
	}
	return names[d]
}

// Stats are what has happened since the beginning.
type Stats struct {
	// Of what is sent: packets and octets of media, keep-alives, frames that were left out
	// because time had gone by, reports.
	Sent, SentOctets, KeptAlive, Skipped, Reports uint64
	// Of what came: packets, octets, and reports.
	Received, ReceivedOctets, ReceivedReports uint64
	// Lost never came; by the numbers, exactly, but for a gap of more than 32,767 (eleven minutes), or one whose numbers
	// the time does not explain: there the source has begun again, as far as shows. Reordered came behind later ones. Late came
	// more than 100 ms later than others. Leaps are timestamps that jumped.
	Lost                   int64
	Reordered, Late, Leaps uint64
	// Jitter is by RFC 3550, and LongestGap the longest time between two packets.
	Jitter, LongestGap time.Duration
	// Peer is what the peer reports of what we send.
	Peer PeerView
	// Drops are by their reasons.
	Drops [NumDrops]uint64
}

// Stats returns what has happened.
func (s *Stream) Stats() Stats {
	q := &s.in.sequence
	return Stats{
		Sent: s.out.packets, SentOctets: s.out.octets, KeptAlive: s.out.kept, Skipped: s.out.skipped, Reports: s.report.sent,
		Received: q.pastUnique + q.unique, ReceivedOctets: s.in.octets, ReceivedReports: s.report.got,
		Lost: q.lost(), Reordered: q.reordered, Late: s.in.timing.late, Leaps: s.in.timing.leaps,
		Jitter:     time.Duration(s.in.timing.jitter * float64(time.Second) / g711.Rate),
		LongestGap: s.in.longest, Peer: s.report.view, Drops: s.drops,
	}
}
