// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// maxPreserve is by how much a peer may have the life of its cookie prolonged, and by how much we ask for more
// than the cookie was late (RFC 9260 section 5.2.6).
const maxPreserve = time.Second

// handshake is what the end that asks keeps until the association is set up.
type handshake struct {
	tries    int
	raced    int    // INITs to further addresses, which T1-init did not wait for
	target   *Path  // of the INIT or the COOKIE ECHO
	echo     []byte // the peer's cookie
	preserve time.Duration
	stale    bool   // a cookie was, once
	random   []byte // of our INIT, for keys (RFC 4895 section 6.1)
	began    time.Time
}

// startSetup sends an INIT (RFC 9260 section 5.1, A).
func (a *Association) startSetup(now time.Time, out *Output) {
	a.state, a.target, a.tries, a.raced, a.echo, a.peerTag = cookieWait, a.primary, 0, 0, nil, 0
	a.sendInit(now, out)
}

// sendInit sends the INIT by the path that is its turn.
func (a *Association) sendInit(now time.Time, out *Output) {
	e, p := a.endpoint, a.target
	init := chunk.Init{
		Tag: a.tag, Window: uint32(a.par.ReceiveBuffer), Out: a.par.StreamsOut, In: a.par.StreamsIn, TSN: a.firstTSN,
		Options: e.options(p.Local, p.Remote, &a.par, a.random, a.locals),
	}
	init.Preserve = a.preserve
	a.began = now
	a.sendAlone(p, init.Append(nil, chunk.TypeInit), out) // the peer's tag is not known: 0
	a.setup = now.Add(p.rto)
	if a.races() {
		a.setup = earliest(a.setup, now.Add(raceDelay))
	}
}

// raceDelay is how long the INIT has one address to itself before it goes to the next as well, until all that our user
// has named have had it once (RFC 8305 section 5): which of them work is not known, and a dead one must not cost an RTO. RFC 9260
// has T1-init for each: Parameters.SetupRace switches it.
const raceDelay = 250 * time.Millisecond

// races reports whether the INIT, which has not been repeated yet, goes to another address before T1-init.
func (a *Association) races() bool {
	return a.par.SetupRace && a.state == cookieWait && a.tries == 0 && a.raced < a.candidates()-1
}

// candidates is how many paths there are to addresses that our user has named.
func (a *Association) candidates() (n int) {
	for _, p := range a.paths {
		if p.confirmed {
			n++
		}
	}
	return n
}

// sendEcho sends the cookie back, (RFC 9260 section 5.1, C).
func (a *Association) sendEcho(now time.Time, out *Output) {
	a.began = now
	if !a.target.confirmed { // section 5.4
		a.endpoint.control = chunk.AppendHeartbeat(a.endpoint.control, a.heartbeatInfo(a.target, 0, now))
	}
	control := a.endpoint.control // what the INIT ACK has made us say
	echo := chunk.Append(nil, chunk.TypeCookieEcho, 0, a.echo)
	if chunk.HeaderSize+len(echo)+len(control) <= a.target.room() {
		a.sendAlone(a.target, append(echo, control...), out)
	} else {
		a.sendAlone(a.target, echo, out)
		a.sendAlone(a.target, control, out)
	}
	a.endpoint.control = control[:0]
	a.setup = now.Add(a.target.rto)
}

// setupExpired sends once more, by the next path (RFC 9260 sections 5.1 and 5.1.4).
func (a *Association) setupExpired(now time.Time, out *Output) {
	if a.races() {
		a.raced++
	} else {
		a.tries++
		a.target.backOff()
	}
	if a.tries > a.par.MaxInitRetrans {
		a.fail(ReasonNoAnswer, chunk.Cause{}, out)
		return
	}
	at := slices.Index(a.paths, a.target)
	for i := range a.paths {
		if p := a.paths[(at+1+i)%len(a.paths)]; p.confirmed {
			a.target = p
			break
		}
	}
	if a.state == cookieWait {
		a.sendInit(now, out)
		return
	}
	a.sendEcho(now, out)
}

// handleInitAck takes the peer's cookie (RFC 9260 section 5.1, C). One that nobody waits for is dropped
// (section 5.2.3).
func (a *Association) handleInitAck(c chunk.Chunk, in *arrival, out *Output) {
	if a.state != cookieWait || len(in.chunks) > (len(c.Whole)+3)&^3 {
		a.endpoint.Counters.Unexpected++
		return
	}
	init, err := chunk.ParseInit(c.Body)
	if !a.acceptable(c, &init, err, in, out) {
		return
	}
	init.Addresses = a.endpoint.usable(init.Addresses, in.Remote)
	a.meet(&init, in.Remote, a.par.StreamsOut, a.random)
	a.setLocals(in.Local, in.Remote)
	a.learn(in, &init)
	if from := a.path(in.Pair); from != nil && from.confirmed { // it works
		a.target = from
	}
	if a.tries+a.raced == 0 {
		a.target.measure(in.now.Sub(a.began))
	}
	a.state, a.tries, a.echo = cookieEchoed, 0, slices.Clone(init.Cookie)
	if unknown := reported(init.Unknown); len(unknown) > 0 { // section 3.2.2
		var list []byte
		for _, whole := range unknown {
			list = append(list, whole...)
			list = append(list, make([]byte, -len(whole)&3)...)
		}
		a.endpoint.control = chunk.AppendError(a.endpoint.control, chunk.TypeError, 0,
			chunk.Cause{Code: chunk.CauseUnrecognizedParameters, Value: list})
	}
	a.sendEcho(in.now, out)
}

// acceptable reports whether an INIT ACK can be used, and answers one that cannot with an ABORT, which ends the set-up
// (RFC 9260 section 3.3.3). One whose window is too small, or that is cut short, changes nothing.
func (a *Association) acceptable(c chunk.Chunk, init *chunk.Init, err error, in *arrival, out *Output) bool {
	cause, value := invalid(init)
	switch {
	case len(c.Whole) < chunk.InitSize:
		a.endpoint.Counters.BadInit++
		return false
	case init.Tag == 0:
		a.endpoint.Counters.BadInit++
		a.endpoint.reply(in, a.tag, chunk.AppendError(nil, chunk.TypeAbort, chunk.Reflected), out)
		a.fail(ReasonViolation, chunk.Cause{Code: chunk.CauseInvalidParameter}, out)
		return false
	case err != nil:
		cause = chunk.CauseProtocolViolation
	case a.par.changesUnprotected(&init.Options):
		a.endpoint.Counters.BadInit++
		a.fail(ReasonViolation, chunk.Cause{Code: chunk.CauseProtocolViolation}, out)
		return false
	case cause == 0 && init.Cookie == nil:
		cause, value = chunk.CauseMissingParameter, binary.BigEndian.AppendUint16([]byte{0, 0, 0, 1}, uint16(chunk.ParamCookie))
	}
	if cause == 0 {
		return true
	}
	a.endpoint.refuse(in, init.Tag, cause, value, out)
	if init.Window >= minWindow {
		a.fail(ReasonViolation, chunk.Cause{Code: cause}, out)
	}
	return false
}

// learn makes the paths to the addresses that the peer has, in place of those that our user supposed (RFC 9260
// section 5.1.2). What the user has named is confirmed, and nothing else (section 5.4).
func (a *Association) learn(in *arrival, init *chunk.Init) {
	e, listed := a.endpoint, append(slices.Clone(init.Addresses[:min(len(init.Addresses), maxAddresses)]), in.Remote)
	gone := func(address netip.Addr) bool {
		gone := !slices.ContainsFunc(listed, func(l netip.Addr) bool { return l == address.WithZone("") || l == address })
		if gone {
			e.forget(a, address)
		}
		return gone
	}
	a.paths = slices.DeleteFunc(a.paths, func(p *Path) bool { return gone(p.Remote) })
	a.apart = slices.DeleteFunc(a.apart, func(r remote) bool { return gone(r.address) })
	p := a.addPath(in.Pair, in.Port, false)
	for _, address := range listed {
		a.enlist(address, in.Port)
	}
	if !slices.Contains(a.paths, a.primary) {
		a.primary = p
	}
	if !slices.Contains(a.paths, a.target) {
		a.target = p
	}
	e.enter(a)
}

// handleStale asks for a cookie that lives longer, once (RFC 9260 section 5.2.6).
func (a *Association) handleStale(cause chunk.Cause, now time.Time, out *Output) {
	if a.stale || len(cause.Value) < 4 {
		a.fail(ReasonStale, chunk.Cause{Code: chunk.CauseStaleCookie}, out)
		return
	}
	a.stale = true
	late := time.Duration(binary.BigEndian.Uint32(cause.Value)) * time.Microsecond
	a.preserve = min(late+a.target.srtt, maxPreserve)
	a.startSetup(now, out)
}
