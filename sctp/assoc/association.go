// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// state is that of an association (RFC 9260 section 4).
type state uint8

const (
	closed state = iota
	cookieWait
	cookieEchoed
	established
	shutdownPending
	shutdownSent
	shutdownReceived
	shutdownAckSent
)

// Association is the connection of two endpoints.
type Association struct {
	// User is the caller's own.
	User any

	// What one at rest needs comes first, close together: among thousands of them each look is a miss of the cache.
	endpoint     *Endpoint
	state        state
	touched      bool
	observed     bool // its passages are told
	peerPort     uint16
	slot         slot // of the endpoint's timers, which have it for
	due          time.Time
	tag, peerTag uint32
	errors       int // in a row (RFC 9260 section 8.1)
	doubted      int // paths that are in doubt
	paths        []*Path
	firstPaths   [2]*Path // what paths begins with
	primary      *Path    // that new data goes by while it works
	current      *Path    // that it goes by
	clocks
	epoch  time.Time // from which heartbeats count
	denied time.Time // from when on the peer's host is believed that it has no SCTP; zero if it has not said so
	features
	receiver
	sender
	changes changes

	par          Parameters
	since        time.Time    // when it was set up
	down         []netip.Addr // local addresses whose link is down
	locals       []netip.Addr // of ours that the peer has
	apart        []remote     // the peer's addresses that no address of ours reaches
	tie          [2]uint32    // what a restart proves itself by (RFC 9260 section 5.2.2)
	verification verification
	handshake
}

// newAssociation makes one that is not yet anything.
func (e *Endpoint) newAssociation(par Parameters, port uint16, tag uint32) *Association {
	a := &Association{endpoint: e, par: par, peerPort: port}
	a.reset(tag)
	return a
}

// reset forgets all but the user, what that has not read yet, the peer's port and the parameters.
func (a *Association) reset(tag uint32) {
	e := a.endpoint
	*a = Association{User: a.User, endpoint: e, par: a.par, peerPort: a.peerPort, epoch: a.epoch, due: a.due, slot: a.slot, touched: a.touched, observed: a.observed, down: a.down, locals: e.config.Addresses, tag: tag, receiver: receiver{unread: a.unread}}
	a.tie = [2]uint32{e.random32() | 1, e.random32() | 1}
	a.setFirst(e.random32())
}

// adopt takes what a cookie says.
func (a *Association) adopt(c *cookie) {
	a.setFirst(c.tsn)
	a.meet(&c.init, c.from, c.out, c.random)
	a.setLocals(c.local, c.from)
	if from := a.addPath(Pair{c.local, c.from}, c.udp, true); !slices.Contains(a.paths, a.primary) {
		a.primary = from
	}
	for _, address := range c.init.Addresses {
		a.enlist(address, c.udp)
	}
	a.addPaths(c.from, c.udp, true)
}

// meet takes what the peer's INIT or INIT ACK says of it, when we have asked for so many streams (RFC 9260
// section 5.1.1) and have sent a random number.
func (a *Association) meet(i *chunk.Init, from netip.Addr, out uint16, random []byte) {
	a.peerTag, a.peerWindow, a.announced = i.Tag, int(i.Window), int(i.Window)
	a.agree(&i.Options, random)
	a.ipv4, a.ipv6 = takesFamily(from, i, true), takesFamily(from, i, false)
	a.changes.begin(a.firstTSN, i.TSN)
	a.streams = min(out, i.In)
	a.expect(i.TSN, min(i.Out, a.par.StreamsIn))
}

// takes reports whether a packet with the right tag is the peer's. While an INIT waits for its answer the
// peer's addresses are not known yet (RFC 9260 section 5.1.2), and an ASCONF may come from a new one (RFC 5061
// section 5.2).
func (a *Association) takes(in *arrival) bool {
	return a.state == cookieWait || a.pathOf(in) != nil || a.addresses && movesAddress(in.chunks)
}

// event tells what has happened.
func (a *Association) event(out *Output, e Event) {
	e.Association = a
	out.Events = append(out.Events, e)
}

// establish makes the association ready for data.
func (a *Association) establish(now time.Time, out *Output, how EventKind) {
	a.state, a.setup, a.since, a.errors = established, time.Time{}, now, 0
	a.event(out, Event{Kind: how})
	a.startHeartbeats(now)
	a.current = a.primary
}

// fail ends the association without a word to the peer.
func (a *Association) fail(why Reason, cause chunk.Cause, out *Output) {
	if a.state == closed {
		return
	}
	a.failMessages(why, out)
	a.state, a.clocks = closed, clocks{}
	for _, p := range a.paths {
		p.flight, p.t3 = 0, time.Time{}
	}
	a.event(out, Event{Kind: Failed, Reason: why, Cause: cause.Code, Text: textOf(cause)})
}

// maxText is how much of what a peer says is told.
const maxText = 256

// textOf is what a cause says in words: those of our user or the peer's, or of whose protocol was broken (RFC 9260 sections
// 3.3.10.12 and 3.3.10.13).
func textOf(cause chunk.Cause) string {
	if cause.Code != chunk.CauseUserAbort && cause.Code != chunk.CauseProtocolViolation {
		return ""
	}
	return string(bytes.TrimRight(cause.Value[:min(len(cause.Value), maxText)], "\x00"))
}

// abort ends it with an ABORT (RFC 9260 section 9.1).
func (a *Association) abort(p *Path, why Reason, cause chunk.Cause, out *Output) {
	if a.state == closed {
		return
	}
	if p = a.answersBy(p); a.peerTag != 0 && p.carries() {
		a.sendAlone(p, chunk.AppendError(nil, chunk.TypeAbort, 0, cause), out)
	}
	a.fail(why, cause, out)
}

// Abort ends the association at once; what is under way is lost. The peer is told why, in 256 octets at most.
func (a *Association) Abort(reason string, out *Output) {
	text := []byte(reason[:min(len(reason), maxText)])
	a.abort(a.destination(), ReasonAborting, chunk.Cause{Code: chunk.CauseUserAbort, Value: text}, out)
	a.endpoint.settle(a)
}

// destination is the path that control chunks take which answer nothing.
func (a *Association) destination() *Path {
	if a.current != nil {
		return a.current
	}
	return a.primary
}

// answersBy is the path of answers to what has come by one: the same, if anything may go there.
func (a *Association) answersBy(p *Path) *Path {
	if p != nil && p.carries() {
		return p
	}
	return a.destination()
}

// handle takes a packet of the association, whose chunks a cookie may stand in front of.
func (a *Association) handle(in *arrival, out *Output) {
	p := a.pathOf(in)
	if p != nil {
		a.hear(p, in.Port)
	}
	a.arrivals = arrivals{octets: len(in.chunks)}
	for rest := in.chunks; len(rest) > 0 && a.state != closed; {
		c, after, err := chunk.Next(rest)
		if err != nil {
			a.endpoint.Counters.BadChunk++
			break
		}
		if !a.mayCome(c.Type, p) {
			a.endpoint.Counters.Unauthenticated++
		} else if c.Type == chunk.TypeAuth {
			if !a.verify(c, rest) {
				break
			}
		} else if !a.take(p, c, in, out) {
			break
		}
		if rest = after; p == nil {
			p = a.pathOf(in) // that an INIT ACK or an ASCONF has made
		}
	}
	if a.state == closed {
		return
	}
	if p != nil {
		a.startSearch(p, in.now)
	}
	a.noticeReturn(p, in.now, out)
	if a.arrivals.answer {
		a.compareAnswers(p, in.now)
	}
	if p == nil && len(a.endpoint.control) > 0 {
		a.answerStranger(in, out)
	}
	a.heardWhileEnding(in.now)
	a.acknowledge(p, in.now)
	a.transmit(p, in.now, out)
}

// mayCome reports whether a chunk may be handled: what we want authenticated comes behind an AUTH (RFC 4895 section
// 6.3), and from an address that is not the peer's nothing does but what may make it so (RFC 5061 section 5.2).
func (a *Association) mayCome(t chunk.Type, p *Path) bool {
	switch {
	case t == chunk.TypeASCONF, t == chunk.TypeASCONFAck:
		return a.arrivals.authentic
	case p == nil && a.state != cookieWait:
		return t == chunk.TypeAuth
	}
	return true
}

// take handles one chunk. It returns false if what follows is not to be read.
func (a *Association) take(p *Path, c chunk.Chunk, in *arrival, out *Output) bool {
	if a.state == cookieWait && c.Type != chunk.TypeInitAck && c.Type != chunk.TypeAbort {
		a.endpoint.Counters.Unexpected++
		return true
	}
	if c.Type != chunk.TypeHeartbeat && c.Type != chunk.TypeHeartbeatAck && c.Type != chunk.TypePad {
		a.endpoint.busyAt = in.now
	}
	switch c.Type {
	case chunk.TypeData, chunk.TypeIData:
		a.handleData(p, c, in, out)
	case chunk.TypeSACK:
		a.handleSACK(p, c, in.now, out)
	case chunk.TypeForwardTSN, chunk.TypeIForwardTSN:
		return a.handleForwardTSN(p, c, out)
	case chunk.TypeInitAck:
		a.handleInitAck(c, in, out)
	case chunk.TypeCookieAck:
		if a.state != cookieEchoed { // section 5.2.5
			a.endpoint.Counters.Unexpected++
			break
		}
		a.establish(in.now, out, Connected)
	case chunk.TypeCookieEcho, chunk.TypePad: // the endpoint has read the one; the other is empty
	case chunk.TypeHeartbeat:
		a.handleHeartbeat(p, c, in.now)
	case chunk.TypeHeartbeatAck:
		a.handleHeartbeatAck(c, in.now, out)
	case chunk.TypeASCONF:
		a.handleASCONF(c, in, out)
	case chunk.TypeASCONFAck:
		a.handleASCONFAck(p, c, in.now, out)
	case chunk.TypeShutdown, chunk.TypeShutdownAck, chunk.TypeShutdownComplete:
		a.handleEnd(p, c, in, out)
	case chunk.TypeAbort:
		if a.authentic(c, in) && !a.strange(p) {
			cause, _, _ := chunk.NextCause(c.Body)
			a.fail(ReasonAborted, cause, out)
		}
		return false
	case chunk.TypeError:
		a.handleError(c, in, out)
	default:
		return a.handleUnknown(c)
	}
	return true
}

// authentic reports whether an ABORT or a SHUTDOWN COMPLETE carries the tag that its T bit names (RFC 9260
// section 8.5.1, B and C).
func (a *Association) authentic(c chunk.Chunk, in *arrival) bool {
	if c.Flags&chunk.Reflected != 0 {
		return in.header.Tag == a.peerTag
	}
	return in.header.Tag == a.tag
}

// handleReflected takes the first chunk of a packet that carries the peer's own tag: an ABORT, or a SHUTDOWN COMPLETE where one
// is awaited. Nothing else in the packet is the association's, and a packet that is not wanted changes nothing (RFC 9260 sections
// 8.5 and 8.5.1, B and C).
func (a *Association) handleReflected(in *arrival, c chunk.Chunk, out *Output) {
	aborts := c.Type == chunk.TypeAbort
	if !aborts && a.state != shutdownAckSent {
		a.endpoint.Counters.Unexpected++
		return
	}
	p := a.pathOf(in)
	switch {
	case p == nil:
		a.endpoint.Counters.Stranger++
	case !aborts:
		a.end(out)
	case !a.strange(p):
		cause, _, _ := chunk.NextCause(c.Body)
		a.fail(ReasonAborted, cause, out)
	}
}

// handleUnknown does what the type's highest bits say (RFC 9260 section 3.2).
func (a *Association) handleUnknown(c chunk.Chunk) (goOn bool) {
	a.endpoint.Counters.Unknown++
	if c.Type.Reported() {
		a.answerError(chunk.Cause{Code: chunk.CauseUnrecognizedChunk, Value: c.Whole})
	}
	return c.Type.Skipped()
}

// maxErrors is how much of a packet's faults is told to its sender: no answer is larger than a packet.
const maxErrors = 512

// reported are those of a list of unknown parameters that are told to their sender.
func reported(list [][]byte) [][]byte {
	size := 0
	for i, whole := range list {
		if size += 4 + (len(whole)+3)&^3; size > maxErrors {
			return list[:i]
		}
	}
	return list
}

// answerError adds an ERROR to the answer of the packet that is handled, until that is as large as what has come.
func (a *Association) answerError(cause chunk.Cause) {
	cause.Value = cause.Value[:min(len(cause.Value), maxErrors)]
	if len(a.endpoint.control) < min(a.arrivals.octets, maxErrors) {
		a.endpoint.control = chunk.AppendError(a.endpoint.control, chunk.TypeError, 0, cause)
	}
}

// handleError takes an ERROR: what it means for the set-up, and for changes of addresses; of all else there is nothing
// to be done.
func (a *Association) handleError(c chunk.Chunk, in *arrival, out *Output) {
	if cause, stale := findCause(c.Body, chunk.CauseStaleCookie); stale && a.state == cookieEchoed {
		a.handleStale(cause, in.now, out)
	}
	if cause, unknown := findCause(c.Body, chunk.CauseUnrecognizedChunk); unknown && len(cause.Value) > 0 && chunk.Type(cause.Value[0]) == chunk.TypeASCONF {
		a.refuseChanges(in.now, out)
	}
}
