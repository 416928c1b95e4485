// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/pion/rtcp"

	"github.com/isthmus-net/isthmus/sip/media/sdes"
)

// Of reports (RFC 3550 section 6.2).
const (
	// bandwidth is the twentieth part of what a call takes, in octets a second: 200 octets
	// 50 times.
	bandwidth = 500
	// shortest is the least time between reports, before chance.
	shortest = 5 * time.Second
	// compensation is for what reconsideration takes away.
	compensation = 2.71828 - 1.5
	// lowerLayers are IP and UDP, whose octets count.
	lowerLayers = 28
	firstSize   = 120 + lowerLayers
	// memberTimeout is how many intervals a member may be silent (section 6.3.5).
	memberTimeout = 5
	// epochNTP is 1970 by the clock of NTP.
	epochNTP = 2208988800
)

// reporter sends reports, and reads the peer's.
type reporter struct {
	started   bool
	initial   bool
	last      time.Time // tp
	next      time.Time // tn
	pmembers  int
	average   float64
	sentAt    [2]uint64 // our packets at the last two reports
	spoken    bool      // we have sent something, so that a BYE may follow
	member    time.Time // when the peer was heard
	sender    time.Time // when its media was
	interval  time.Duration
	sent, got uint64

	peerStamp uint32 // the middle of the NTP time of its last report
	peerCame  time.Time
	// Of the peer's source at the last report (appendix A.3).
	expected, received uint64

	view PeerView
}

// PeerView is what the peer reports of what we send.
type PeerView struct {
	// Valid says that the peer has reported.
	Valid bool
	// Lost is how many of our packets have not come to it, and Fraction the part of them
	// lately, of 256.
	Lost     int64
	Fraction uint8
	// Jitter is by RFC 3550.
	Jitter time.Duration
	// RoundTrip is that of a report and its answer; 0: not known.
	RoundTrip time.Duration
}

// startReports begins with reports as soon as there is somebody to hear them.
func (s *Stream) startReports(now time.Time) {
	r := &s.report
	if r.started || !s.ready() {
		return
	}
	*r = reporter{started: true, initial: true, last: now, pmembers: 1, average: firstSize, member: r.member, sender: r.sender, view: r.view}
	r.next = now.Add(s.drawInterval())
}

// reportAt is when to look whether a report is due.
func (s *Stream) reportAt() time.Time {
	if !s.report.started || !s.ready() {
		return time.Time{}
	}
	return s.report.next
}

// reportDue sends a report when its time has come, by the reconsideration of section 6.3.6.
func (s *Stream) reportDue(now time.Time, out *Output) {
	at := s.reportAt()
	if at.IsZero() || at.After(now) {
		return
	}
	r := &s.report
	s.forgetMembers(now)
	if r.next = r.last.Add(s.drawInterval()); !r.next.After(now) {
		size := s.sendReport(now, out, false)
		r.average += (float64(size+lowerLayers) - r.average) / 16
		r.last = now
		r.next = now.Add(s.drawInterval())
		r.initial = false
		r.sentAt = [2]uint64{r.sentAt[1], s.out.packets}
	}
	r.pmembers = s.members()
}

// weSent reports whether media was sent since the second previous report (section 6.3.8).
func (s *Stream) weSent() bool { return s.out.packets > s.report.sentAt[0] }

func (s *Stream) members() int {
	if s.report.member.IsZero() {
		return 1
	}
	return 2
}

// drawInterval is appendix A.7's rtcp_interval.
func (s *Stream) drawInterval() time.Duration {
	s.report.interval = s.meanInterval(s.weSent())
	spread := 0.5 + float64(s.random.Uint64()>>11)/(1<<53)
	return time.Duration(float64(s.report.interval) * spread / compensation)
}

// meanInterval is the interval before chance.
func (s *Stream) meanInterval(weSent bool) time.Duration {
	members, senders, share := s.members(), 0, float64(bandwidth)
	if weSent {
		senders++
	}
	if !s.report.sender.IsZero() {
		senders++
	}
	n := members
	if 4*senders <= members {
		if weSent {
			share, n = share/4, senders
		} else {
			share, n = share*3/4, members-senders
		}
	}
	least := shortest
	if s.report.initial {
		least /= 2
	}
	return max(time.Duration(s.report.average*float64(n)/share*float64(time.Second)), least)
}

// forgetMembers ends the membership of a peer that was not heard for long (section 6.3.5).
func (s *Stream) forgetMembers(now time.Time) {
	r := &s.report
	if !r.sender.IsZero() && now.Sub(r.sender) > 2*s.report.interval {
		r.sender = time.Time{}
	}
	if !r.member.IsZero() && now.Sub(r.member) > memberTimeout*s.meanInterval(false) {
		s.memberLeft(now)
	}
}

// memberLeft takes the peer off the list, and has the next report come earlier (section
// 6.3.4).
func (s *Stream) memberLeft(now time.Time) {
	r := &s.report
	r.member, r.sender = time.Time{}, time.Time{}
	if members := s.members(); members < r.pmembers {
		part := func(d time.Duration) time.Duration { return d * time.Duration(members) / time.Duration(r.pmembers) }
		r.next, r.last = now.Add(part(r.next.Sub(now))), now.Add(-part(now.Sub(r.last)))
		r.pmembers = members
	}
}

// heard notes that the peer was heard.
func (r *reporter) heard(now time.Time, media bool) {
	r.member = now
	if media {
		r.sender = now
	}
}

// sendReport sends SR or RR with the name, and a BYE behind them if the stream ends, and
// returns how long it is. Where reports go nowhere, nothing is sent.
func (s *Stream) sendReport(now time.Time, out *Output, bye bool) int {
	if !s.guard.control.IsValid() {
		return 0
	}
	var blocks []rtcp.ReceptionReport
	if s.guard.known {
		blocks = append(blocks, s.block(now))
	}
	var packets []rtcp.Packet
	if s.weSent() {
		ntp := ntpTime(now)
		packets = append(packets, &rtcp.SenderReport{
			SSRC: s.out.ssrc, NTPTime: ntp, RTPTime: s.timestamp(now),
			PacketCount: uint32(s.out.packets - s.out.pastPackets), OctetCount: uint32(s.out.octets - s.out.pastOctets), Reports: blocks,
		})
	} else {
		packets = append(packets, &rtcp.ReceiverReport{SSRC: s.out.ssrc, Reports: blocks})
	}
	packets = append(packets, &rtcp.SourceDescription{Chunks: []rtcp.SourceDescriptionChunk{{
		Source: s.out.ssrc, Items: []rtcp.SourceDescriptionItem{{Type: rtcp.SDESCNAME, Text: s.set.Name}},
	}}})
	if bye {
		packets = append(packets, &rtcp.Goodbye{Sources: []uint32{s.out.ssrc}})
	}
	b, err := rtcp.Marshal(packets)
	if err == nil && s.secure {
		b, err = s.protect.ProtectControl(nil, b)
	}
	if err != nil {
		s.drops[DropUnsent]++
		return 0
	}
	out.SendUDP(Socket(s.out.path, true), s.guard.control, b)
	s.report.sent++
	s.report.spoken = true
	return len(b)
}

// block is what we report of the peer's source (section 6.4.1, appendix A.3).
func (s *Stream) block(now time.Time) rtcp.ReceptionReport {
	r, q := &s.report, &s.in.sequence
	expected, received := uint64(q.highest-q.first+1), q.received-q.pastReceived
	lost := int64(expected) - int64(received)
	b := rtcp.ReceptionReport{
		SSRC: s.guard.ssrc, LastSequenceNumber: uint32(q.highest), Jitter: uint32(s.in.timing.jitter),
		TotalLost: uint32(min(max(lost, 0), 1<<23-1)),
	}
	if span, lately := expected-r.expected, int64(expected-r.expected)-int64(received-r.received); span > 0 && lately > 0 {
		b.FractionLost = uint8(min(lately*256/int64(span), 255))
	}
	r.expected, r.received = expected, received
	if !r.peerCame.IsZero() {
		b.LastSenderReport = r.peerStamp
		b.Delay = uint32(now.Sub(r.peerCame) * 65536 / time.Second)
	}
	return b
}

// bye says that our source ends, unless nobody has heard of it (section 6.3.7).
func (s *Stream) bye(now time.Time, out *Output) {
	if s.ready() && (s.report.spoken || s.out.packets > 0) {
		s.sendReport(now, out, true)
	}
}

// Bye tells the peer that the stream ends. Nothing is sent afterwards until signalling agrees
// on something again.
func (s *Stream) Bye(now time.Time, out *Output) {
	s.bye(now, out)
	s.out.wanted, s.report.started = false, false
	s.guard.signal(netip.AddrPort{}, netip.AddrPort{}, now)
	s.guard.target = netip.AddrPort{}
	s.resume(now)
}

// ntpTime is a time as NTP has it.
func ntpTime(t time.Time) uint64 {
	return uint64(t.Unix()+epochNTP)<<32 | uint64(t.Nanosecond())<<32/uint64(time.Second)
}

// handleControl takes a compound packet of RTCP.
func (s *Stream) handleControl(from netip.AddrPort, b []byte, now time.Time, out *Output) {
	// The first is a report (appendix A.2).
	if len(b) < 8 || b[0]>>6 != 2 || b[1] != uint8(rtcp.TypeSenderReport) && b[1] != uint8(rtcp.TypeReceiverReport) {
		s.drops[DropNotRTCP]++
		return
	}
	if s.secure {
		opened, err := s.openBy((*sdes.Context).OpenControl, nil, b, now)
		if err != nil {
			s.drops[DropNotAuthentic]++
			return
		}
		b = opened
	}
	packets, err := rtcp.Unmarshal(b)
	if err != nil {
		s.drops[DropNotRTCP]++
		return
	}
	if !s.guard.admitControl(from, binary.BigEndian.Uint32(b[4:]), s.secure) {
		s.drops[DropStranger]++
		return
	}
	r := &s.report
	r.got++
	r.average += (float64(len(b)+lowerLayers) - r.average) / 16
	r.heard(now, false)
	for _, p := range packets {
		switch p := p.(type) {
		case *rtcp.SenderReport:
			r.peerStamp, r.peerCame = uint32(p.NTPTime>>16), now
			s.readBlocks(p.Reports, now)
		case *rtcp.ReceiverReport:
			s.readBlocks(p.Reports, now)
		case *rtcp.Goodbye:
			if s.guard.known && slices.Contains(p.Sources, s.guard.ssrc) {
				s.guard.left()
				s.memberLeft(now)
				out.Events = append(out.Events, Event{Kind: PeerLeft, Path: s.out.path})
			}
		}
	}
}

// readBlocks reads what the peer says of our source.
func (s *Stream) readBlocks(blocks []rtcp.ReceptionReport, now time.Time) {
	for _, b := range blocks {
		if b.SSRC != s.out.ssrc {
			continue
		}
		lost := int64(int32(b.TotalLost<<8) >> 8) // 24 bits with a sign
		v := PeerView{Valid: true, Lost: lost, Fraction: b.FractionLost, Jitter: time.Duration(b.Jitter) * time.Second / 8000, RoundTrip: s.report.view.RoundTrip}
		if b.LastSenderReport != 0 {
			trip := uint32(ntpTime(now)>>16) - b.LastSenderReport - b.Delay
			if trip < 1<<31 { // else the peer says that it waited longer than it did
				v.RoundTrip = time.Duration(trip) * time.Second / 65536
			}
		}
		s.report.view = v
	}
}
