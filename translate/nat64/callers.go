// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// FTP control connections of IPv4 hosts, the callers, to servers that are bound, X',21, take
// the detour too. What opens one is judged as any connection is, and makes a session, which
// is marked state.Detoured: programs leave it to the engine. By that session go both
// connections of the proxy, with the client and with the server:
//
//	Z,z to T,t        is  P:0:1::n,z to A,21             towards the proxy,
//	X',21 to Y',z     is  P:0:3::n,21 to P:0:2::n,p
//
// and so back. The server sees Y',z as without a proxy; p is what the proxy's socket has.

// firstCaller is the number of the first caller: callers have numbers of their own, so that
// no one who forges IPv4 addresses takes those of clients.
const firstCaller = maxAliases

// control6 handles segments of control connections: those of servers to IPv4 hosts, and those
// to servers that have IPv4. done is false for all others.
func (e *Engine) control6(c *call, ip []byte, v *translate.View, to target) (r Reason, done bool) {
	t, r := tupleOf(v)
	if r != none || t.src != ftpControl && t.dst != ftpControl {
		return none, false
	}
	k := state.Key6{Client: v.Src.As16(), ClientPort: t.src, Peer: to.peer, PeerPort: t.dst, Transport: state.TCP, Prefix: to.prefix}
	var s state.Session
	switch {
	case t.src == ftpControl && e.find6(c, &k, &s) && s.Word.Flags()&state.Detoured != 0:
		e.step(c, &s, FromIPv6, t.flags)
		return e.fromCalled(c, ip, v, &s, t.flags), true
	case t.dst == ftpControl && e.detouring() && !e.isProxy(v.Src):
		return e.toProxy(c, ip, v, t), true
	}
	return none, false
}

// fromCaller returns what the headers of a segment of an IPv4 client become, which has met the
// session.
func (e *Engine) fromCaller(c *call, v *translate.View, s *state.Session, flags uint8) (translate.Endpoints, Reason) {
	a := e.caller(s)
	switch {
	case opens(flags) && !e.detouring():
		e.table.Step(s, s.Word.Status(), s.Word.Flags()&^state.Detoured, c.at)
		return e.tuple6(s)
	case opens(flags):
		var r Reason
		if a, r = e.openCaller(c, s, a); r != none {
			return translate.Endpoints{}, r
		}
	case a == nil:
		e.resetCaller(c, v, s, flags)
		return translate.Endpoints{}, DetourUnknown
	}
	e.stepAlias(c, a, FromIPv6, flags)
	e.stats.Detoured++
	src, dst := e.proxyEnds(a)
	return translate.Endpoints{Src: src.Addr(), Dst: dst.Addr(), Ports: true, SrcPort: src.Port(), DstPort: dst.Port()}, none
}

// caller returns the control connection of a session, or nil.
func (e *Engine) caller(s *state.Session) *alias {
	if n, ok := e.callers.index[callerKey(s)]; ok {
		return e.callers.of(n)
	}
	return nil
}

func callerKey(s *state.Session) aliasKey {
	return aliasKey{
		netip.AddrPortFrom(netip.AddrFrom4(s.Peer), s.PeerPort),
		netip.AddrPortFrom(netip.AddrFrom4(s.Pool), s.PoolPort),
	}
}

// openCaller notes a connection that begins, or begins again.
func (e *Engine) openCaller(c *call, s *state.Session, a *alias) (*alias, Reason) {
	seen, r := e.embed(s.Prefix, netip.AddrFrom4(s.Peer))
	if r != none {
		return nil, r
	}
	if a == nil {
		key := callerKey(s)
		n, ok := e.number(c, &e.callers, key.client.Addr())
		if !ok {
			return nil, DetourFull
		}
		a = e.callers.open(c, Alias{Number: n, Client: key.client, Server: key.server})
	}
	a.Inside, a.Seen, a.prefix = netip.AddrPortFrom(netip.AddrFrom16(s.Client), s.ClientPort), seen, s.Prefix
	return a, none
}

// resetCaller ends a session whose connection the proxy does not know, since it was restarted
// or is switched off, and tells the client so. The server, to whom the proxy has spoken with
// numbers of its own, is told when it speaks.
func (e *Engine) resetCaller(c *call, v *translate.View, s *state.Session, flags uint8) {
	e.end(c, s)
	from, r := e.embed(s.Prefix, netip.AddrFrom4(s.Peer))
	if r != none || flags&flagRST != 0 || !e.mayAnswer(c, ErrorUnreachable, v.Src) {
		return
	}
	e.stats.ErrorsSent[ErrorUnreachable]++
	ip := resetOf(c, netip.AddrFrom16(s.Client), from, v.Payload)
	if r := e.send4(c, ip, &translate.Binding{Outer: tuple4(s)}, v.Src); r != none {
		e.stats.Dropped[r]++
	}
}

// toCaller sends a segment of the proxy to an IPv4 client, in the server's name.
func (e *Engine) toCaller(c *call, ip []byte, v *translate.View, a *alias) Reason {
	e.stats.Detoured++
	return e.send4(c, ip, &translate.Binding{Outer: translate.Endpoints{
		Src: a.Server.Addr(), Dst: a.Client.Addr(), Ports: true, SrcPort: a.Server.Port(), DstPort: a.Client.Port(),
	}}, v.Src)
}

// toCalled sends a segment of the proxy to the server of an IPv4 client, in the client's name,
// as long as there is a session.
func (e *Engine) toCalled(c *call, ip []byte, v *translate.View, a *alias) Reason {
	if v.Proto != packet.ProtoTCP || v.Fragment() {
		return DetourUnknown
	}
	t, r := tupleOf(v)
	if r != none {
		return r
	}
	key := state.Key4{
		Pool: a.Server.Addr().As4(), PoolPort: a.Server.Port(), Peer: a.Client.Addr().As4(), PeerPort: a.Client.Port(),
		Transport: state.TCP,
	}
	var s state.Session
	switch {
	case ip[7] <= 1:
		return Reason(translate.ReasonHopLimit)
	case opens(t.flags) && ip[7] != DetourHops:
		return DetourForged
	case opens(t.flags):
		a.dialed = t.src
	}
	if t.dst != ftpControl || t.src != a.dialed || !e.find4(c, &key, &s) || s.Word.Flags()&state.Detoured == 0 {
		return DetourUnknown
	}
	e.redirect(c, ip, v, netip.AddrPortFrom(a.Seen, a.Client.Port()), a.Inside)
	return none
}

// fromCalled sends a segment of the server of an IPv4 client to the proxy.
func (e *Engine) fromCalled(c *call, ip []byte, v *translate.View, s *state.Session, flags uint8) Reason {
	a := e.caller(s)
	if a == nil || a.dialed == 0 {
		e.reset(c, v, flags)
		return DetourUnknown
	}
	p := e.settings.DetourPrefix
	e.redirect(c, ip, v,
		netip.AddrPortFrom(DetourAddress(p, DetourServer, a.Number), ftpControl),
		netip.AddrPortFrom(DetourAddress(p, DetourDial, a.Number), a.dialed))
	return none
}

// errorOfCaller gives the proxy an ICMP error about what it has sent to an IPv4 client.
func (e *Engine) errorOfCaller(c *call, ip []byte, v *translate.View, s *state.Session) Reason {
	a := e.caller(s)
	if a == nil {
		return DetourUnknown
	}
	src, dst := e.proxyEnds(a)
	router, told := e.routerOf(v.Src, s.Prefix, src.Addr())
	return e.send6(c, ip, &translate.Binding{
		Outer:  translate.Endpoints{Src: router, Dst: dst.Addr()},
		Router: !told,
		Inner:  translate.Endpoints{Src: dst.Addr(), Dst: src.Addr(), Ports: true, SrcPort: dst.Port(), DstPort: src.Port()},
	}, v.Src)
}
