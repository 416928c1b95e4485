// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"

	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// error4 translates an ICMP error from the IPv4 side. The packet that it quotes tells by
// its source, T,t, whom it is for (RFC 6146 sections 3.4, 3.6). Errors neither make nor
// change any state (RFC 5508 REQ-6).
func (e *Engine) error4(c *call, ip []byte, v *translate.View) Reason {
	inner, t, r := quoted(v)
	if r != none {
		return r
	}
	if inner.Src != v.Dst {
		return Reason(translate.ReasonInner) // it was not sent to who sent the packet
	}
	s, r := e.quotedSession4(&inner, t)
	if r != none {
		return r
	}
	if s.Word.Flags()&state.Detoured != 0 {
		return e.errorOfCaller(c, ip, v, &s)
	}
	there, r := e.tuple6(&s) // of a packet from Z to X'
	if r != none {
		return r
	}
	router, told := e.routerOf(v.Src, s.Prefix, there.Src)
	b := translate.Binding{
		Outer:  translate.Endpoints{Src: router, Dst: there.Dst},
		Inner:  translate.Endpoints{Src: there.Dst, Dst: there.Src, Ports: true, SrcPort: s.ClientPort, DstPort: s.PeerPort},
		Router: !told,
	}
	return e.send6(c, ip, &b, v.Src)
}

// quoted reads what an ICMP error quotes.
func quoted(v *translate.View) (inner translate.View, t tuple, r Reason) {
	inner, bad := v.Quoted()
	switch {
	case bad == translate.ReasonTransport:
		return inner, t, Reason(bad)
	case bad != translate.ReasonNone || !inner.Src.IsValid():
		return inner, t, Reason(translate.ReasonInner)
	}
	t, r = quotedTuple(&inner)
	return inner, t, r
}

// quotedSession4 finds the session of a packet from T,t to Z,z. Without one the binding
// is enough, as for segments that let a session end early.
func (e *Engine) quotedSession4(inner *translate.View, t tuple) (s state.Session, r Reason) {
	k := state.Key4{Pool: inner.Src.As4(), PoolPort: t.src, Peer: inner.Dst.As4(), PeerPort: t.dst, Transport: t.transport}
	if t.transport == state.ICMP {
		k.PeerPort = 0
	}
	if e.table.Find4(&k, &s) {
		return s, none
	}
	var b state.Binding
	if !e.table.FindBinding4(&state.Outside{Pool: k.Pool, Port: k.PoolPort, Transport: k.Transport}, &b) {
		return s, NoBinding
	}
	prefix, ok := e.prefixFor(&b, k.Peer)
	if !ok {
		return s, Reason(translate.ReasonNonGlobal)
	}
	return state.Session{
		Client: b.Client, ClientPort: b.ClientPort, Pool: b.Pool, PoolPort: b.PoolPort,
		Peer: k.Peer, PeerPort: k.PeerPort, Prefix: prefix, Transport: k.Transport,
	}, none
}

// routerOf returns the source of a translated error: the router's, unless the letter of
// RFC 6146 section 3.6.1 is wanted, or the prefix may not represent the router. Then it
// is the address that the client sent to, so that the error is not lost; told is false of
// a router that an address for routers may stand for.
func (e *Engine) routerOf(router netip.Addr, prefix uint8, peer netip.Addr) (source netip.Addr, told bool) {
	if e.settings.RouterAsInner {
		return peer, true
	}
	if a, r := e.embed(prefix, router); r == none {
		return a, true
	}
	return peer, false
}

// error6 translates an ICMPv6 error: the packet that it quotes went from Y',z to X',x. Its
// source becomes T. A router on the way to the client gets an address of [translate.Settings]
// for routers instead, if there are any (RFC 6791).
func (e *Engine) error6(c *call, ip []byte, v *translate.View, to target) Reason {
	inner, t, r := quoted(v)
	if r != none {
		return r
	}
	if inner.Src != v.Dst {
		return Reason(translate.ReasonInner)
	}
	in := state.Inside{Client: inner.Dst.As16(), Port: t.dst, Transport: t.transport}
	var b state.Binding
	if !e.table.FindBinding6(&in, &b) {
		return NoBinding
	}
	k := state.Key6{Client: in.Client, ClientPort: in.Port, Peer: to.peer, PeerPort: t.src, Transport: in.Transport, Prefix: to.prefix}
	var s state.Session
	if t.dst == ftpControl && e.table.Find6(&k, &s) && s.Word.Flags()&state.Detoured != 0 {
		return DetourUnknown // about what the proxy has sent; the IPv4 client knows nothing of it
	}
	pool, peer := netip.AddrFrom4(b.Pool), netip.AddrFrom4(to.peer)
	ends := translate.Endpoints{Src: peer, Dst: pool, Ports: true, SrcPort: t.src, DstPort: b.PoolPort}
	if t.transport == state.ICMP {
		ends.SrcPort = b.PoolPort
	}
	return e.send4(c, ip, &translate.Binding{
		Outer:  translate.Endpoints{Src: pool, Dst: peer},
		Inner:  ends,
		Router: v.Src != inner.Dst,
	}, v.Src)
}
