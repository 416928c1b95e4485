// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"math"
	"net/netip"
	"time"

	"github.com/pion/rtp"

	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/sdes"
)

// receiver is what has come.
type receiver struct {
	wanted   bool // both sides want media
	header   rtp.Header
	opened   []byte // the last packet of SRTP
	sequence sequence
	octets   uint64
	timing   timing

	last      time.Time // the newest packet
	since     time.Time // the last packet, unless a pause was since
	quiet     time.Time // since when media is missing, if it is
	longest   time.Duration
	began     bool
	lost      bool // and it has been told
	pathHeard bool
}

// handleMedia takes a packet of RTP.
func (s *Stream) handleMedia(path int, from netip.AddrPort, b []byte, now time.Time, out *Output) {
	h := &s.in.header
	if len(b) < headerLen || b[0]>>6 != 2 || b[1] >= 192 && b[1] <= 223 { // RFC 5761 section 4
		s.drops[DropNotRTP]++
		return
	}
	headerLen, err := h.Unmarshal(b)
	if err != nil {
		s.drops[DropNotRTP]++
		return
	}
	if h.SSRC == s.out.ssrc {
		s.collide(from, now, out)
		return
	}
	drop, isNew := s.guard.judge(from, h, &s.in, s.secure, now)
	var payload []byte
	if drop == dropNone {
		payload, drop = s.unseal(b, headerLen, h, now)
	}
	var a arrival
	if drop == dropNone {
		a, drop = s.count(h.SequenceNumber, isNew, now, out)
	}
	if drop != dropNone {
		s.drops[drop]++
		if drop == DropDuplicate {
			s.guard.alive(from, now)
		}
		return
	}
	if old := s.guard.target; s.guard.admit(from, h, isNew, a == arrivalNext, now) {
		out.Events = append(out.Events, Event{Kind: SourceMoved, Path: path, From: old, To: from})
	}
	s.in.octets += uint64(len(payload))
	s.arrived(path, a, now, out)
	s.deliver(path, h, payload, a, now, out)
}

// unseal opens a packet of SRTP, and returns the payload without padding.
func (s *Stream) unseal(b []byte, headerLen int, h *rtp.Header, now time.Time) ([]byte, Drop) {
	if s.secure {
		opened, err := s.openBy((*sdes.Context).Open, s.in.opened[:0], b, now)
		if err != nil {
			return nil, DropNotAuthentic
		}
		s.in.opened, b = opened, opened
	}
	end := len(b)
	if h.Padding {
		padding := int(b[end-1])
		if padding == 0 || padding > end-headerLen {
			return nil, DropNotRTP
		}
		end -= padding
	}
	return b[headerLen:end], dropNone
}

// openBy opens a packet by the key in use, or the one before.
func (s *Stream) openBy(open func(by *sdes.Context, dst, packet []byte) ([]byte, error), dst, b []byte, now time.Time) ([]byte, error) {
	opened, err := open(s.open, dst, b)
	if err != nil && s.opened != nil && now.Before(s.openedUntil) {
		return open(s.opened, dst, b)
	}
	return opened, err
}

// count takes the number of a packet.
func (s *Stream) count(number uint16, isNew bool, now time.Time, out *Output) (a arrival, drop Drop) {
	q := &s.in.sequence
	begun := q.begun
	if isNew {
		q.begin(number)
		s.in.timing.anew()
		s.report.peerCame = time.Time{}
	} else {
		a = q.take(number, max(maxDropout, s.in.allowed(now)))
	}
	if q.begun != begun {
		s.listener.restart(out)
		s.report.expected, s.report.received = 0, 0 // RFC 3550 appendix A.1, init_seq
	}
	return a, [...]Drop{arrivalDuplicate: DropDuplicate, arrivalJump: DropJump}[a]
}

// loopMemory is how long a place that had our SSRC counts as a loop if it has the next one, too: ten intervals of reports.
const loopMemory = 10 * shortest

// collide handles a packet with our own SSRC (RFC 3550 section 8.2): of a peer that has no
// other, it is chance, and we take another; if that one comes back as well, or else, our packets are sent back to us.
func (s *Stream) collide(from netip.AddrPort, now time.Time, out *Output) {
	o := &s.out
	loop := from == o.collided && now.Sub(o.collidedAt) < loopMemory
	if loop {
		o.collidedAt = now
	}
	if loop || s.guard.known || from != s.guard.signalled || s.secure {
		s.drops[DropOwn]++
		return
	}
	s.bye(now, out)
	o.collided, o.collidedAt = from, now
	o.pastPackets, o.pastOctets = o.packets, o.octets
	o.ssrc = uint32(s.random.Uint64())
	o.sequence = uint16(s.random.Uint64() & 0x7fff)
	s.drops[DropCollision]++
}

// arrived notes that a packet of the peer has come.
func (s *Stream) arrived(path int, a arrival, now time.Time, out *Output) {
	in := &s.in
	tell := func(k EventKind) { out.Events = append(out.Events, Event{Kind: k, Path: path}) }
	switch {
	case !in.began:
		tell(MediaBegan)
	case in.lost:
		tell(MediaBack)
	}
	in.began, in.lost = true, false
	if path == s.out.path && !in.pathHeard {
		in.pathHeard = true
		tell(PathHeard)
	}
	if !in.since.IsZero() {
		in.longest = max(in.longest, now.Sub(in.since))
	}
	s.handoff.arrived(path == s.out.path, in.since, now)
	if a == arrivalNext {
		in.last = now
	}
	in.since, in.quiet = now, now
	s.report.heard(now, true)
}

// pause forgets when the last packet came, since none are to come, or were.
func (r *receiver) pause(now time.Time) { r.since, r.quiet, r.lost = time.Time{}, now, false }

// silentAt is when media is lost; zero: it is not expected, or told already.
func (r *receiver) silentAt(after time.Duration) time.Time {
	if !r.wanted || r.lost {
		return time.Time{}
	}
	return r.quiet.Add(after)
}

// deliver gives a payload to whom it is for.
func (s *Stream) deliver(path int, h *rtp.Header, payload []byte, a arrival, now time.Time, out *Output) {
	law := g711.PCMU
	switch s.kinds[h.PayloadType] {
	case kindUnknown:
		if len(payload) > 0 { // else it keeps the way open
			s.drops[DropPayloadType]++
		}
		return
	case kindEvents:
		if !s.listener.take(path, h.Timestamp, payload, now, out) {
			s.drops[DropEvent]++
		}
		return
	case kindPCMA:
		law = g711.PCMA
	}
	leaps := s.in.timing.leaps
	at := s.in.timing.take(h.Timestamp, a == arrivalNext, now)
	if s.in.timing.leaps != leaps {
		s.listener.restart(out)
	}
	if !s.in.wanted {
		s.drops[DropHeld]++
		return
	}
	if s.set.Sink != nil && len(payload) > 0 {
		s.set.Sink.Write(at, law, payload)
	}
}

// allowed is how far ahead the next number may be, by the time since the last.
func (r *receiver) allowed(now time.Time) int {
	return int(min(now.Sub(r.last)/Frame+slack, math.MaxInt16))
}

// plausible reports whether a packet from a new place continues what has come: its number is
// ahead by no more than the time allows, and its timestamp is of about this time, unless it
// is of a key that is pressed.
func (r *receiver) plausible(h *rtp.Header, now time.Time) bool {
	ahead := r.sequence.ahead(h.SequenceNumber)
	if !r.sequence.started || ahead < 1 || ahead > min(r.allowed(now), maxDropout) {
		return false
	}
	return r.timing.near(h.Timestamp, now)
}
