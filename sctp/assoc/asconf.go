// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// movesAddress reports whether a packet begins with an ASCONF behind its AUTH: it may come from an address that
// the association does not have yet (RFC 5061 section 5.2).
func movesAddress(chunks []byte) bool {
	first, rest, err := chunk.Next(chunks)
	if err != nil || first.Type != chunk.TypeAuth {
		return false
	}
	second, _, err := chunk.Next(rest)
	return err == nil && second.Type == chunk.TypeASCONF
}

// handleASCONF does what the peer asks, once, and answers (RFC 5061 section 5.2, E1 to E7).
func (a *Association) handleASCONF(c chunk.Chunk, in *arrival, out *Output) {
	asconf, err := chunk.ParseASCONF(c.Body)
	ch := &a.changes
	switch {
	case !a.addresses || a.state < established || a.state == shutdownAckSent: // section 5.1.1, C4
		a.endpoint.Counters.Unexpected++
		return
	case err != nil:
		a.endpoint.Counters.BadChunk++
		return
	case ch.answerTo(asconf.Serial) != nil: // E2
	case asconf.Serial != ch.peer+1: // E5
		a.endpoint.Counters.BadChange++
		return
	default:
		ch.peer++
		answers := a.grantAll(asconf.Requests, in, out)
		ack := chunk.ASCONFAck{Serial: asconf.Serial, Answers: answers}
		ch.keep(ack.Append(nil), !a.arrivals.change)
	}
	a.arrivals.change = true
	answer := ch.answerTo(asconf.Serial)
	if chunk.HeaderSize+a.authSize()+len(a.endpoint.control)+len(answer) <= a.destination().room() { // E7
		a.endpoint.control = append(a.endpoint.control, answer...)
	}
}

// maxAnswers is how many answers are kept: a peer sends several requests in one packet when it repeats the first (RFC 5061
// section 5.5).
const maxAnswers = 8

// keep remembers the answer to the peer's last request. If that is the first one of its packet, the peer has those to all
// before it (E1).
func (c *changes) keep(answer []byte, first bool) {
	switch {
	case first:
		c.answers = c.answers[:0]
	case len(c.answers) == maxAnswers:
		c.answers = slices.Delete(c.answers, 0, 1)
	}
	c.answers = append(c.answers, answer)
}

// answerTo is what a request was answered with; nil if that is not remembered.
func (c *changes) answerTo(serial uint32) []byte {
	if ago := c.peer - serial; ago < uint32(len(c.answers)) {
		return c.answers[len(c.answers)-1-int(ago)]
	}
	return nil
}

// Octets of the answers to one ASCONF: they fit, with an AUTH and in UDP, into the least packet of any path, by which they may be
// asked for again (RFC 5061 section 5.2, E7); and of one that says what has failed: before the copy of the request, and with one
// that we know.
const (
	maxAnswer    = leastIPv4 - headerIPv4 - headerUDP - chunk.HeaderSize - (8 + chunk.SizeSHA256) - 8
	failedAnswer = 4 + 4 + 4
	fullAnswer   = failedAnswer + 8 + 20
)

// grantAll does what is asked, in order, and answers. Without an answer a request counts as done before the first that
// has failed, and as failed behind it, so that there what is done is said, too (RFC 5061 section 5.1, A7). Once an
// address could not be added or deleted, no other is (section 5.3, F11); nor is anything when the answer is full.
func (a *Association) grantAll(requests []byte, in *arrival, out *Output) (answers []byte) {
	broken := false
	for len(requests) > 0 && len(answers)+fullAnswer <= maxAnswer {
		r, known, whole, rest, err := chunk.NextRequest(requests)
		if err != nil { // no answer would say that it is done
			a.endpoint.Counters.BadChange++
			return chunk.AppendAnswer(answers, chunk.Answer{
				Correlation: r.Correlation, Failed: true, Causes: chunk.AppendCause(nil, chunk.CauseProtocolViolation, nil),
			})
		}
		requests = rest
		code := granted
		switch {
		case !known && !r.Type.Reported():
			if !r.Type.Skipped() {
				return answers
			}
			continue
		case !known:
			code = chunk.CauseUnrecognizedParameters
		case broken && r.Type != chunk.ParamSetPrimary:
			code = chunk.CauseResourceShortage
		default:
			code = a.grant(r, in, out)
			broken = broken || code != granted && r.Type != chunk.ParamSetPrimary
		}
		answer := chunk.Answer{Correlation: r.Correlation, Failed: code != granted}
		if answer.Failed {
			answer.Causes = chunk.AppendCause(nil, code, whole[:min(len(whole), maxAnswer-len(answers)-failedAnswer)])
		}
		if answer.Failed || len(answers) > 0 {
			answers = chunk.AppendAnswer(answers, answer)
		}
		if !known && !r.Type.Skipped() {
			break
		}
	}
	return answers
}

// grant does one thing that the peer asks.
func (a *Association) grant(r chunk.Request, in *arrival, out *Output) chunk.CauseCode {
	wild := r.Address.IsUnspecified()
	if wild {
		r.Address = in.Remote
	}
	switch r.Type {
	case chunk.ParamAddIP:
		return a.grantAdd(r.Address, in, out)
	case chunk.ParamDeleteIP:
		return a.grantDelete(r.Address, wild, in, out)
	}
	at := slices.IndexFunc(a.paths, func(p *Path) bool { return p.Remote == r.Address })
	if at < 0 { // section 5.4
		return chunk.CauseUnresolvableAddress
	}
	old := a.primary
	a.changes.wish, a.changes.wished = r.Address, in.Pair
	a.fulfil()
	if a.par.EarlyProbe && old != a.primary && r.Address == in.Remote && old.Parameters.HeartbeatInterval >= 0 {
		a.moveFrom(old, in.now) // the peer does not use the old way any more to tell us
		old.congestion.resume(a.fragmentRoom(old), old.Remote.Is4())
	}
	return granted
}

// grantAdd makes the paths to a new address of the peer, which are verified before data goes by them (F14). One that none of
// ours reaches is the peer's, too: there may be one of ours later.
func (a *Association) grantAdd(address netip.Addr, in *arrival, out *Output) chunk.CauseCode {
	owner := a.endpoint.byPeer[netip.AddrPortFrom(address, a.peerPort)]
	switch {
	case owner == a:
		return granted
	case owner != nil || !a.endpoint.mayBePeers(address, in.Remote):
		return chunk.CauseNoAuthorization
	}
	remotes := map[netip.Addr]bool{}
	for r := range a.remotes() {
		remotes[r.address] = true
	}
	if len(remotes) >= maxAddresses {
		return chunk.CauseResourceShortage
	}
	before := len(a.paths)
	if address == in.Remote && slices.Contains(a.Locals(), in.Local) {
		a.addPath(in.Pair, in.Port, false)
	}
	a.addPaths(address, in.Port, false)
	switch {
	case len(a.paths) > before:
	case slices.ContainsFunc(a.locals, func(ours netip.Addr) bool { return reach(ours, address) }):
		return chunk.CauseResourceShortage // there are as many paths as may be
	default:
		a.apart = append(a.apart, remote{address, in.Port, false})
	}
	for _, p := range a.paths[before:] {
		p.heartbeatAt = in.now
	}
	a.endpoint.enter(a)
	a.event(out, Event{Kind: AddressAdded, Pair: Pair{in.Local, address}})
	return granted
}

// grantDelete forgets an address of the peer, or all but the packet's (F7, F8, F13).
func (a *Association) grantDelete(address netip.Addr, allOthers bool, in *arrival, out *Output) chunk.CauseCode {
	goes := func(p *Path) bool { return (p.Remote == address) != allOthers }
	switch {
	case !slices.ContainsFunc(a.paths, func(p *Path) bool { return !goes(p) }):
		return chunk.CauseDeleteLastAddress
	case !allOthers && address == in.Remote:
		return chunk.CauseDeleteSource
	}
	a.apart = slices.DeleteFunc(a.apart, func(r remote) bool {
		leaves := (r.address == address) != allOthers
		if leaves {
			a.endpoint.forget(a, r.address)
			a.event(out, Event{Kind: AddressRemoved, Pair: Pair{in.Local, r.address}})
		}
		return leaves
	})
	for _, p := range slices.Clone(a.paths) {
		if goes(p) {
			a.removePath(p)
			a.endpoint.forget(a, p.Remote)
			a.event(out, Event{Kind: AddressRemoved, Pair: p.Pair})
		}
	}
	return granted
}

// fulfil makes the address the primary one that the peer has wished for, once it is known to be the peer's (RFC
// 5061 section 5.4).
func (a *Association) fulfil() {
	if !a.changes.wish.IsValid() {
		return
	}
	var best *Path
	for _, p := range a.paths {
		if p.Remote == a.changes.wish && p.confirmed && (best == nil || a.suits(p) > a.suits(best)) {
			best = p
		}
	}
	if best != nil {
		a.primary, a.changes.wish = best, netip.Addr{}
	}
}

// suits says how well a path does for what the peer has wished: best is that by which the wish has come, then one that
// the peer was heard by, then one that changes the peer's address alone.
func (a *Association) suits(p *Path) int {
	switch {
	case p.Pair == a.changes.wished:
		return 3
	case p.heard:
		return 2
	case p.Local == a.primary.Local:
		return 1
	}
	return 0
}

// SetPrimary has new data go by a path as long as it works.
func (a *Association) SetPrimary(pair Pair) bool {
	p := a.path(pair)
	if p == nil || !p.confirmed || p.use != normal {
		return false
	}
	a.primary, a.changes.wish = p, netip.Addr{}
	return true
}
