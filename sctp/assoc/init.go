// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// handleInit answers an INIT, and keeps nothing of it (RFC 9260 section 5.1, B).
func (e *Endpoint) handleInit(in *arrival, first chunk.Chunk, out *Output) {
	init, err := chunk.ParseInit(first.Body)
	switch {
	case in.header.Tag != 0 || len(in.chunks) > (len(first.Whole)+3)&^3: // section 8.5.1, A; section 6.10
		e.Counters.BadTag++
		return
	case init.Tag == 0, len(first.Whole) > maxInit: // section 3.3.2
		e.Counters.BadInit++
		return
	case err != nil:
		e.refuse(in, init.Tag, chunk.CauseProtocolViolation, nil, out)
		return
	}
	cause, value := invalid(&init)
	if cause == 0 && e.config.Parameters.changesUnprotected(&init.Options) {
		cause = chunk.CauseProtocolViolation
	}
	if cause != 0 {
		e.refuse(in, init.Tag, cause, value, out)
		return
	}
	init.Addresses = e.usable(init.Addresses, in.Remote)
	a := e.existing(in, &init)
	if a == nil {
		if !e.config.Listen || len(e.byTag) >= e.config.MaxAssociations {
			e.Counters.Refused++
			e.reply(in, init.Tag, refusal(e.config.Listen), out)
			return
		}
		e.answerInit(in, &init, &e.config.Parameters, cookie{tag: e.newTag(), tsn: e.random32()}, e.config.Addresses, out)
		return
	}
	e.handleSecondInit(a, in, &init, out)
}

// refusal is the ABORT of an INIT that cannot be taken now (RFC 9260 section 5.1).
func refusal(listening bool) []byte {
	if listening {
		return chunk.AppendError(nil, chunk.TypeAbort, 0, chunk.Cause{Code: chunk.CauseOutOfResource})
	}
	return chunk.AppendError(nil, chunk.TypeAbort, 0)
}

// invalid finds what makes an INIT or an INIT ACK unusable (RFC 9260 sections 3.3.2, 3.3.3 and 5.1.2).
func invalid(i *chunk.Init) (cause chunk.CauseCode, value []byte) {
	switch {
	case i.HostName:
		return chunk.CauseUnresolvableAddress, nil
	case i.Out == 0, i.In == 0, i.Window < minWindow:
		return chunk.CauseInvalidParameter, nil
	case i.Random != nil && len(i.Random) != chunk.RandomSize: // RFC 4895 section 6.1
		return chunk.CauseProtocolViolation, nil
	}
	return 0, nil
}

// refuse answers a set-up with an ABORT.
func (e *Endpoint) refuse(in *arrival, tag uint32, cause chunk.CauseCode, value []byte, out *Output) {
	e.Counters.BadInit++
	e.reply(in, tag, chunk.AppendError(nil, chunk.TypeAbort, 0, chunk.Cause{Code: cause, Value: value}), out)
}

// usable are the addresses of a peer's list that can be its own (RFC 9260 sections 3.3.2.1.2 and 5.1.2).
func (e *Endpoint) usable(list []netip.Addr, from netip.Addr) []netip.Addr {
	return slices.DeleteFunc(list, func(a netip.Addr) bool { return !e.mayBePeers(a, from) })
}

// mayBePeers reports whether an address that a peer names, in a packet from another one, can be its own, and counts
// those that cannot. One of the loopback, or of ours, is that of a peer on this host alone.
func (e *Endpoint) mayBePeers(a, from netip.Addr) bool {
	ours := func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(e.config.Addresses, a) }
	if e.unicast(a) && a.IsLoopback() == from.IsLoopback() && (!ours(a) || ours(from)) {
		return true
	}
	e.Counters.BadAddress++
	return false
}

// existing is the association that an INIT belongs to by where it comes from, or by an address that it lists
// (RFC 9260 section 5.1.2, D).
func (e *Endpoint) existing(in *arrival, init *chunk.Init) *Association {
	if a := e.byPeer[in.peer()]; a != nil {
		return a
	}
	for _, address := range init.Addresses {
		if a := e.byPeer[netip.AddrPortFrom(address, in.header.Source)]; a != nil {
			return a
		}
	}
	return nil
}

// handleSecondInit answers an INIT of a peer that there is an association with (RFC 9260 sections 5.2.1, 5.2.2
// and 9.2). It changes nothing of that.
func (e *Endpoint) handleSecondInit(a *Association, in *arrival, init *chunk.Init, out *Output) {
	if a.state == shutdownAckSent {
		a.sendAlone(a.answersBy(a.pathOf(in)), chunk.Append(nil, chunk.TypeShutdownAck, 0, nil), out)
		return
	}
	if a.state != cookieWait {
		if strangers := a.strangers(in.Remote, init.Addresses); strangers != nil {
			e.refuse(in, init.Tag, chunk.CauseRestartNewAddresses, strangers, out)
			return
		}
	}
	c, ours := cookie{tag: a.tag, tsn: a.firstTSN}, e.config.Addresses
	switch a.state {
	case cookieWait:
		if in = a.named(in, init); in == nil {
			e.Counters.Stranger++
			return
		}
		c.random, ours = a.random, a.locals
	case cookieEchoed:
		c.tie, c.random, ours = a.tie, a.random, a.locals
	default:
		c.tag, c.tsn, c.tie = e.newTag(), e.random32(), a.tie
	}
	e.answerInit(in, init, &a.par, c, ours, out)
}

// named is an INIT that has crossed ours, as if it came from an address that our user has named, for the answer goes
// there alone (RFC 9260 section 5.2.1). It is nil if the peer has named none of those.
func (a *Association) named(in *arrival, init *chunk.Init) *arrival {
	for _, address := range append([]netip.Addr{in.Remote}, init.Addresses...) {
		at := slices.IndexFunc(a.paths, func(p *Path) bool { return p.Remote.WithZone("") == address.WithZone("") })
		if at >= 0 && address == in.Remote {
			return in
		}
		if at >= 0 {
			other := *in
			other.Pair, other.Port = a.paths[at].Pair, a.paths[at].port
			return &other
		}
	}
	return nil
}

// strangers are addresses that are not the peer's, as parameters; nil if there are none.
func (a *Association) strangers(from netip.Addr, listed []netip.Addr) (b []byte) {
	for _, address := range append([]netip.Addr{from}, listed...) {
		if !a.has(address) && slices.ContainsFunc(a.endpoint.config.Addresses, func(l netip.Addr) bool { return reach(l, address) }) {
			b = chunk.AppendAddress(b, address.WithZone(""))
		}
	}
	return b
}

// answerInit sends an INIT ACK that tells of addresses of ours, and whose cookie holds all that there is to know.
func (e *Endpoint) answerInit(in *arrival, init *chunk.Init, par *Parameters, c cookie, ours []netip.Addr, out *Output) {
	unknown := reported(init.Unknown)
	init.Unknown, init.Addresses = nil, init.Addresses[:min(len(init.Addresses), maxAddresses)]
	c.made, c.life = in.now.UnixNano(), e.config.Parameters.CookieLife+min(init.Preserve, maxPreserve)
	if c.random == nil {
		c.random = e.random(chunk.RandomSize)
	}
	c.out, c.port, c.udp, c.local, c.from, c.init = par.StreamsOut, in.header.Source, in.Port, in.Local, in.Remote, *init
	c.edition = e.edition
	signed := c.append(nil)
	e.secrets.sign(signed, in.now)
	ack := chunk.Init{
		Tag: c.tag, Window: uint32(par.ReceiveBuffer), TSN: c.tsn,
		Out: min(c.out, init.In), In: par.StreamsIn, // section 3.3.3
		Options: e.options(in.Local, in.Remote, par, c.random, ours),
	}
	ack.AddressTypes = nil // of an INIT alone
	ack.Addresses = slices.DeleteFunc(ack.Addresses, func(a netip.Addr) bool { return !takesFamily(in.Remote, init, a.Is4()) })
	ack.Cookie, ack.Unknown = signed, unknown
	e.reply(in, init.Tag, ack.Append(nil, chunk.TypeInitAck), out)
}

// takesFamily reports whether a peer can use addresses of a family: it says so, or has some itself (RFC 9260 section
// 5.1.2).
func takesFamily(from netip.Addr, init *chunk.Init, ipv4 bool) bool {
	family := chunk.AddressIPv6
	if ipv4 {
		family = chunk.AddressIPv4
	}
	return init.AddressTypes == nil || slices.Contains(init.AddressTypes, family) ||
		slices.ContainsFunc(append([]netip.Addr{from}, init.Addresses...), func(a netip.Addr) bool { return a.Is4() == ipv4 })
}

// options are the parameters of our INIT and INIT ACK between two addresses, when we have these.
func (e *Endpoint) options(local, remote netip.Addr, par *Parameters, random []byte, ours []netip.Addr) chunk.Options {
	o := par.offer(random)
	if e.config.Hidden { // nor address types (RFC 8261 section 6.1)
		return o
	}
	o.AddressTypes = []uint16{chunk.AddressIPv4, chunk.AddressIPv6}
	for _, address := range ours {
		if isTold(address, remote) {
			o.Addresses = append(o.Addresses, address.WithZone(""))
		}
	}
	if len(o.Addresses) == 1 && o.Addresses[0] == local.WithZone("") {
		o.Addresses = nil // the packet says it
	}
	return o
}

// handleCookieEcho sets up the association that a cookie stands for, or finds out what it means for one that
// there is (RFC 9260 sections 5.1.5 and 5.2.4).
func (e *Endpoint) handleCookieEcho(in *arrival, value []byte, out *Output) {
	if !e.secrets.signed(value) {
		e.Counters.BadCookie++
		return
	}
	c, err := parseCookie(value)
	if err != nil || c.tag != in.header.Tag || c.port != in.header.Source {
		e.Counters.BadCookie++
		return
	}
	c.local, c.from = c.local.WithZone(in.Local.Zone()), c.from.WithZone(in.Remote.Zone())
	a := e.existing(in, &c.init)
	if late := in.now.UnixNano() - c.made - int64(c.life); late > 0 && (a == nil || a.tag != c.tag || a.peerTag != c.init.Tag) {
		e.Counters.StaleCookie++
		micro := binary.BigEndian.AppendUint32(nil, uint32(min(late/1000, 1<<31)))
		e.reply(in, c.init.Tag, chunk.AppendError(nil, chunk.TypeError, 0, chunk.Cause{Code: chunk.CauseStaleCookie, Value: micro}), out)
		return
	}
	if a == nil {
		e.accept(in, &c, out)
		return
	}
	e.handleSecondCookie(a, in, &c, out)
}

// accept makes the association.
func (e *Endpoint) accept(in *arrival, c *cookie, out *Output) {
	e.spent.forget(in.now.Add(-e.config.Parameters.CookieLife - maxPreserve))
	switch {
	case e.byTag[c.tag] != nil: // another has drawn the tag since
		e.Counters.OldCookie++
		return
	case e.spent.has(c):
		e.Counters.OldCookie++
		e.outOfTheBlue(in, out)
		return
	case !e.config.Listen || len(e.byTag) >= e.config.MaxAssociations:
		e.Counters.Refused++
		e.reply(in, c.init.Tag, refusal(e.config.Listen), out)
		return
	}
	a := e.newAssociation(e.config.Parameters, in.header.Source, c.tag)
	a.epoch, a.locals = in.now, e.told(in, c)
	a.adopt(c)
	switch {
	case a.pathOf(in) == nil: // neither where the INIT came from, nor on its list
		e.Counters.Stranger++
		return
	case !a.verifyCookie(in):
		return
	}
	e.enter(a)
	a.establish(in.now, out, Accepted)
	e.control = chunk.Append(e.control, chunk.TypeCookieAck, 0, nil)
	a.handle(in, out)
	e.settle(a)
}

// handleSecondCookie looks into table 12 of RFC 9260 section 5.2.4.
func (e *Endpoint) handleSecondCookie(a *Association, in *arrival, c *cookie, out *Output) {
	if !a.verifyCookie(in) {
		return
	}
	ours, theirs := c.tag == a.tag, c.init.Tag == a.peerTag
	tied := c.tie == a.tie && c.tie != [2]uint32{}
	switch {
	case !ours && !theirs && tied && a.state == shutdownAckSent: // A, in the end of an association
		e.control = chunk.Append(e.control, chunk.TypeShutdownAck, 0, nil)
		e.control = chunk.AppendError(e.control, chunk.TypeError, 0, chunk.Cause{Code: chunk.CauseCookieInShutdown})
		a.sendAlone(a.answersBy(a.pathOf(in)), e.control, out)
		return
	case !ours && !theirs && tied: // A
		e.restart(a, in, c, out)
	case ours && theirs: // D
		if a.state == cookieEchoed {
			a.establish(in.now, out, Connected)
		}
	case ours && (a.state == cookieWait || a.state == cookieEchoed): // B
		a.adopt(c)
		e.enter(a)
		a.establish(in.now, out, Connected)
	case ours: // B, of an association that is set up
		a.peerTag = c.init.Tag
	default: // C, and what the table does not show
		e.Counters.OldCookie++
		return
	}
	e.control = chunk.Append(e.control, chunk.TypeCookieAck, 0, nil)
	a.handle(in, out)
	e.settle(a)
}

// restart begins an association anew, since its peer has (RFC 9260 section 5.2.4, A).
func (e *Endpoint) restart(a *Association, in *arrival, c *cookie, out *Output) {
	e.leave(a)
	a.failMessages(ReasonRestarted, out)
	a.unblock(out) // there is room now, and the new beginning knows of no one who waits for it
	a.reset(c.tag)
	a.locals = e.told(in, c)
	a.adopt(c)
	e.enter(a)
	a.establish(in.now, out, Restarted)
}
