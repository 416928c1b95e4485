// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import "time"

// Handoff is the media's part of what a move has cost.
type Handoff struct {
	// Marked is when the move began; zero: there was none.
	Marked time.Time
	// LastBefore is when the last packet before it came.
	LastBefore time.Time
	// FirstSent and FirstHeard are when the first packet left by the new path, and came by
	// it; zero: none yet.
	FirstSent, FirstHeard time.Time
	// Gap is the longest time between two packets, of which the second came after the mark,
	// or the time since the last, if that is longer.
	Gap                time.Duration
	GapBegan, GapEnded time.Time
	// Lost are the packets that have not come of those behind the newest at the mark.
	Lost int64
}

// handoff follows a move.
type handoff struct{ Handoff }

// attention is how long after the mark a gap is the move's.
const attention = 10 * time.Second

// Mark says that a move begins: the address in use is lost, or another is better. What it
// costs is in [Stream.Handoff].
func (s *Stream) Mark(now time.Time) {
	s.handoff = handoff{Handoff{Marked: now, LastBefore: s.in.since}}
	s.in.sequence.sinceHere()
}

// Handoff is what the last move has cost so far.
func (s *Stream) Handoff(now time.Time) Handoff {
	h := s.handoff.Handoff
	if h.Marked.IsZero() {
		return h
	}
	h.Lost = s.in.sequence.lostSince()
	if since := s.in.since; !since.IsZero() && now.Sub(h.Marked) < attention && now.Sub(since) > h.Gap {
		h.Gap, h.GapBegan, h.GapEnded = now.Sub(since), since, time.Time{}
	}
	return h
}

// sent notes that the first packet has left by a path.
func (h *handoff) sent(now time.Time) {
	if !h.Marked.IsZero() && h.FirstSent.IsZero() {
		h.FirstSent = now
	}
}

// arrived notes a packet.
func (h *handoff) arrived(byPath bool, since, now time.Time) {
	if h.Marked.IsZero() || now.Sub(h.Marked) >= attention {
		return
	}
	if byPath && !h.FirstSent.IsZero() && h.FirstHeard.IsZero() {
		h.FirstHeard = now
	}
	if gap := now.Sub(since); !since.IsZero() && gap > h.Gap {
		h.Gap, h.GapBegan, h.GapEnded = gap, since, now
	}
}
