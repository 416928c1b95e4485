// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"net/netip"
	"time"

	"github.com/pion/rtp"
)

// headerLen is that of the packets that are sent.
const headerLen = 12

// maxBurst is how many packets a late tick makes up for; what is older is left out, so that a
// host that was asleep does not flood its peer.
const maxBurst = 5

// sender is what is sent.
type sender struct {
	path     int  // -1: none
	wanted   bool // both sides want media
	running  bool // it is sent
	ssrc     uint32
	sequence uint16 // of the next packet
	base     uint32 // the timestamp of the first sample of the clock
	frame    int64  // the number of the next packet's time
	started  bool   // something was sent
	first    int64  // the number of the first packet's time, at which the source begins
	spurt    bool   // the next packet is the first after silence

	last            time.Time // when something was sent
	began           time.Time // when the first packet left by this path
	packets, octets uint64
	// What was sent by another SSRC, and who had that.
	pastPackets, pastOctets uint64
	collided                netip.AddrPort
	collidedAt              time.Time

	skipped uint64 // frames that were left out
	kept    uint64 // keep-alives
	plain   [headerLen + Samples]byte
}

// ready reports whether there is where to send to and by.
func (s *Stream) ready() bool { return s.out.path >= 0 && s.guard.target.IsValid() }

// resume begins to send with the next time of the clock, or stops.
func (s *Stream) resume(now time.Time) {
	running := s.out.wanted && s.ready()
	if running && !s.out.running {
		elapsed := now.Sub(s.epoch)
		s.out.frame = int64((elapsed + Frame - 1) / Frame)
		s.out.spurt = true
	}
	if !running {
		s.dialer.active = false
	}
	s.out.running = running
}

// sendAt is when something is to be sent.
func (s *Stream) sendAt() time.Time {
	switch {
	case s.out.running:
		return s.epoch.Add(time.Duration(s.out.frame) * Frame)
	case s.ready():
		return s.out.keepAt(s.epoch, s.set.KeepAlive)
	}
	return time.Time{}
}

// keepAt is when a keep-alive is due.
func (o *sender) keepAt(epoch time.Time, interval time.Duration) time.Time {
	if o.last.IsZero() {
		return epoch
	}
	return o.last.Add(interval)
}

// sendDue sends the packets whose time has come.
func (s *Stream) sendDue(now time.Time, out *Output) {
	if !s.out.running {
		if s.ready() && !s.sendAt().After(now) {
			s.sendKeepAlive(now, out)
		}
		return
	}
	if late := int64(now.Sub(s.epoch)/Frame) - s.out.frame; late >= maxBurst {
		s.out.skipped += uint64(late - maxBurst + 1)
		s.out.frame += late - maxBurst + 1
	}
	for !s.sendAt().After(now) {
		s.sendFrame(now, out)
		s.out.frame++
	}
}

// sendFrame sends the packet of a time: a key that is pressed, or sound.
func (s *Stream) sendFrame(now time.Time, out *Output) {
	if !s.out.started {
		s.out.started, s.out.first = true, s.out.frame
	}
	at := s.out.frame * Samples
	h := rtp.Header{PayloadType: s.format.Send.Of(s.format.Law), Timestamp: s.out.base + uint32(at), Marker: s.out.spurt}
	s.out.spurt = false
	payload := s.out.plain[headerLen:]
	if s.dialer.next(s, h.Timestamp) {
		payload = s.dialer.packet(&h, s.format.Send.Events, payload)
	} else {
		s.sound(payload, at-s.out.first*Samples)
	}
	s.out.octets += uint64(len(payload))
	s.out.packets++
	s.emit(&h, len(payload), now, out)
}

// sound fills a frame by the source.
func (s *Stream) sound(b []byte, at int64) {
	if s.set.Source != nil {
		s.set.Source.Frame(b, s.format.Law, at)
		return
	}
	Silence{}.Frame(b, s.format.Law, at)
}

// sendKeepAlive sends a packet without payload, of a type that nobody has agreed on (RFC 6263
// section 4.6): it keeps the way open, and shows the peer a new one, since it has our SSRC
// and the next number.
func (s *Stream) sendKeepAlive(now time.Time, out *Output) {
	s.out.kept++
	s.emit(&rtp.Header{PayloadType: s.keepType, Timestamp: s.timestamp(now)}, 0, now, out)
}

// timestamp is that of a time, which runs on while nothing is sent.
func (s *Stream) timestamp(now time.Time) uint32 {
	return s.out.base + uint32(samples(now.Sub(s.epoch)))
}

// emit completes the header and sends the packet, whose payload lies behind its place.
func (s *Stream) emit(h *rtp.Header, payload int, now time.Time, out *Output) {
	h.Version, h.SSRC, h.SequenceNumber = 2, s.out.ssrc, s.out.sequence
	s.out.sequence++
	plain := s.out.plain[:headerLen+payload]
	if _, err := h.MarshalTo(plain); err != nil {
		s.drops[DropUnsent]++
		return
	}
	var b []byte
	if s.secure {
		var err error
		if b, err = s.protect.Protect(out.Alloc(len(plain)+s.protect.Overhead()), plain); err != nil {
			s.drops[DropUnsent]++
			return
		}
	} else {
		b = out.Copy(plain)
	}
	out.SendUDP(Socket(s.out.path, false), s.guard.target, b)
	s.out.last = now
	if s.out.began.IsZero() {
		s.out.began = now
		s.handoff.sent(now)
	}
}
