// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/pion/rtp"

	"github.com/isthmus-net/isthmus/internal/special"
)

// guard tells the peer's media from that of strangers, and finds out where the peer is. What
// it goes by is the SSRC and the numbers, which a stranger does not see; the address says
// little, since the peer's may change before it has said so. Only while no source is known, for
// none has been heard, or it has left or been silent since signalling named another place, is
// there nothing else to go by: then media has to come from where signalling has said that the
// peer is, or from beside it.
//
// A packet with the peer's SSRC, a number just ahead and a timestamp that fits is played
// wherever it comes from. But media goes to another place than SDP says only if the stream may
// latch, two such packets came in a row, nothing came from the old place between them,
// and either signalling has told of a change a moment ago or the old place is silent.
type guard struct {
	latch             bool
	window, lostAfter time.Duration

	signalled netip.AddrPort // by SDP
	target    netip.AddrPort // where media goes, and is expected from
	previous  netip.AddrPort // where it was before signalling changed it
	control   netip.AddrPort // where reports go
	reports   netip.AddrPort // where SDP says they go
	changed   time.Time      // when signalling said something
	moved     time.Time      // when it named another place than before
	latched   time.Time
	heard     time.Time // when a packet came from the target

	known bool
	ssrc  uint32
	early netip.AddrPort // where the source was first heard, if nobody had said where the peer is
	// new is a source that may replace the one that is known, and other a place.
	new, other candidate
}

// candidate is a source, or a place, that has not proved itself yet.
type candidate struct {
	from netip.AddrPort
	ssrc uint32
	next uint16
	run  int
}

// probation is how many packets in sequence prove a source or a place (RFC 3550 appendix A.1).
const probation = 2

// flight is how long packets that left before a move may take: nothing latches back to where
// the peer was for so long after signalling has said where it is.
const flight = 500 * time.Millisecond

// sourceLost is when a source is gone that nobody has said anything of.
const sourceLost = 500 * time.Millisecond

// slack is how many packets more than the time allows a number may be ahead.
const slack = 10

// takes counts packets in a row.
func (c *candidate) takes(from netip.AddrPort, h *rtp.Header) int {
	if c.from != from || c.ssrc != h.SSRC || c.next != h.SequenceNumber {
		c.run = 0
	}
	c.from, c.ssrc, c.next = from, h.SSRC, h.SequenceNumber+1
	c.run++
	return c.run
}

// signal takes where SDP says that the peer is.
func (g *guard) signal(rtp, rtcp netip.AddrPort, now time.Time) {
	g.changed = now
	if rtp == g.signalled && rtcp == g.reports {
		return // what was latched stays
	}
	old := g.target
	if rtp != g.signalled && (old.IsValid() || g.previous.IsValid()) {
		g.moved = now
	}
	g.signalled, g.reports = rtp, rtcp
	// The peer's media may have shown its new place before signalling did; and where SDP
	// has a private address it is the one that works.
	early := rtp.IsValid() && old.IsValid() && !g.latched.IsZero() && now.Sub(g.latched) < g.window
	if !early {
		g.target, g.control = rtp, rtcp
		g.heard = time.Time{}
	}
	if old.IsValid() && old != g.target {
		g.previous = old
	}
	g.other = candidate{}
	if g.early.IsValid() && rtp.IsValid() {
		if !g.expected(g.early) {
			g.left()
		}
		g.early = netip.AddrPort{}
	}
}

// open reports whether signalling has said something a moment ago.
func (g *guard) open(now time.Time) bool {
	return !g.changed.IsZero() && now.Sub(g.changed) < g.window
}

// silent reports whether the target has sent nothing of late.
func (g *guard) silent(now time.Time) bool { return now.Sub(g.heard) >= g.lostAfter }

// patience is how long the source that is known must be silent before another may take its
// place: who knows the peer's address, and no more, could otherwise do so in any gap.
func (g *guard) patience(now time.Time) time.Duration {
	if g.open(now) {
		return g.lostAfter
	}
	return max(sourceLost, g.lostAfter)
}

// replaced reports whether the source that is known has been silent since about when signalling named another
// place: address and source may change with it (RFC 3264 section 8.3.1).
func (g *guard) replaced(last, now time.Time) bool {
	return !g.moved.IsZero() && last.Before(g.moved.Add(g.window)) && now.Sub(last) >= g.patience(now)
}

// familiar reports whether the peer has been, or should be, at a place.
func (g *guard) familiar(from netip.AddrPort) bool {
	return from == g.target || from == g.signalled || from == g.previous
}

// expected reports whether a source that is not known may be heard from a place: signalling has named it, or
// one beside it, or the peer was there. An address behind a NAT says nothing of where that has led, so there
// the first comes first, until the stream has latched. What comes before signalling has said anything, as
// media may (RFC 3264 section 5.1), is looked at again when it does.
func (g *guard) expected(from netip.AddrPort) bool {
	if !g.signalled.IsValid() && !g.previous.IsValid() {
		return true
	}
	for _, place := range [...]netip.AddrPort{g.signalled, g.target, g.previous} {
		if place.IsValid() && beside(place.Addr(), from.Addr()) {
			return true
		}
	}
	return g.latched.IsZero() && special.Hidden(g.signalled.Addr())
}

// beside reports whether two addresses are those of one host, as far as that shows: IPv6 hosts may have
// several in a network (RFC 8981).
func beside(a, b netip.Addr) bool {
	if a == b {
		return true
	}
	network, err := a.Prefix(64)
	return err == nil && a.Is6() && network.Contains(b) && !slices.ContainsFunc(shared, func(p netip.Prefix) bool { return p.Contains(a) })
}

// shared are networks in which hosts everywhere have addresses: those of a Teredo server's clients (RFC 4380),
// and of IPv4 behind a NAT64 (RFC 6052, RFC 8215).
var shared = []netip.Prefix{netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48")}

// judge says whether a packet may be the peer's, before it is opened, and whether it is of a
// source that is not known yet. authentic says that opening it will prove it.
func (g *guard) judge(from netip.AddrPort, h *rtp.Header, in *receiver, authentic bool, now time.Time) (drop Drop, isNew bool) {
	if g.known && h.SSRC == g.ssrc {
		if g.familiar(from) || in.plausible(h, now) || from == g.other.from && in.sequence.ahead(h.SequenceNumber) > -window {
			return dropNone, false
		}
		return DropWindow, false
	}
	known, silent := g.known && !g.replaced(in.last, now), now.Sub(in.last) >= g.patience(now)
	switch {
	case !known && g.signalled.IsValid() && from == g.signalled, authentic && (!known || silent):
		return dropNone, true
	case known && (!silent || !g.familiar(from)):
		return DropSSRC, false
	case !known && !g.expected(from):
		return DropPlace, false
	case g.new.takes(from, h) >= probation:
		return dropNone, true
	}
	return DropProbation, false
}

// admit takes a packet of the peer that is proved, and reports whether media goes to where
// it comes from from now on. newest says that it is ahead of all others.
func (g *guard) admit(from netip.AddrPort, h *rtp.Header, isNew, newest bool, now time.Time) bool {
	if isNew {
		g.known, g.ssrc, g.new = true, h.SSRC, candidate{}
		if g.early = (netip.AddrPort{}); !g.signalled.IsValid() {
			g.early = from
		}
		g.other = candidate{from: from, ssrc: h.SSRC, next: h.SequenceNumber, run: probation - 1}
	}
	if g.alive(from, now) || !newest {
		return false
	}
	run := g.other.run + 1
	if g.other.from != from {
		run = 1
	}
	g.other = candidate{from: from, ssrc: h.SSRC, next: h.SequenceNumber + 1, run: run}
	switch {
	case !g.latch || !g.signalled.IsValid():
		return false
	case from == g.previous && from != g.signalled && now.Sub(g.changed) < flight:
		return false
	case run < probation && from != g.signalled, !g.open(now) && !g.silent(now):
		return false
	}
	g.previous, g.target = g.target, from
	g.control = g.reports
	if from != g.signalled && from.Port() != math.MaxUint16 { // else none is beside it
		g.control = netip.AddrPortFrom(from.Addr(), from.Port()+1)
	}
	g.latched, g.heard, g.other = now, now, candidate{}
	return true
}

// alive reports whether a packet shows that the peer is where media goes: whatever comes from
// there does, even what somebody else was quicker with.
func (g *guard) alive(from netip.AddrPort, now time.Time) bool {
	if from != g.target {
		return false
	}
	g.heard, g.other = now, candidate{}
	return true
}

// admitControl reports whether a report may be the peer's, and notes where it comes from.
func (g *guard) admitControl(from netip.AddrPort, ssrc uint32, authentic bool) bool {
	if g.known && ssrc != g.ssrc {
		return false
	}
	near := from == g.control
	for _, place := range [...]netip.AddrPort{g.target, g.signalled, g.previous, g.other.from} {
		near = near || from.Addr() == place.Addr()
	}
	if !near && !(authentic && g.known) {
		return false
	}
	if g.latch && g.known && g.target.IsValid() && from.Addr() == g.target.Addr() {
		g.control = from
	}
	return true
}

// left forgets the peer's source, which has said that it ends.
func (g *guard) left() { g.known, g.new = false, candidate{} }
