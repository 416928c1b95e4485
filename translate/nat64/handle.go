// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// call is one packet on its way through the engine.
type call struct {
	now  time.Time
	mono time.Duration // since the epoch
	at   uint32        // the stamp of that
	path translate.Path
	out  *Out
	// turned is set for a packet that was translated here already and goes back to
	// the IPv6 side.
	turned bool
	// assembly is of the packet, if that is a fragment from the IPv6 side.
	assembly *assembly
}

func (e *Engine) begin(path translate.Path, now time.Time, out *Out) call {
	mono := now.Sub(e.epoch)
	path.IDs, path.Routers, path.HopTaken, path.Reassembled = e.ids, e.routers, false, false
	return call{now: now, mono: mono, at: state.Stamp(mono), path: path, out: out}
}

// HandleIPv6 translates a packet from the IPv6 side. Of path the MTUs alone are read. The
// packet is neither changed nor kept.
func (e *Engine) HandleIPv6(ip []byte, path translate.Path, now time.Time, out *Out) {
	c := e.begin(path, now, out)
	if r := e.from6(&c, ip); r != none {
		e.dropped(&c, ip, r)
	}
}

// HandleIPv4 translates a packet from the IPv4 side.
func (e *Engine) HandleIPv4(ip []byte, path translate.Path, now time.Time, out *Out) {
	c := e.begin(path, now, out)
	if r := e.from4(&c, ip); r != none {
		e.dropped(&c, ip, r)
	}
}

// dropped counts a packet, and tells of it where RFC 7915 wants that.
func (e *Engine) dropped(c *call, ip []byte, r Reason) {
	e.stats.Dropped[r]++
	if int(r) >= translate.NumReasons {
		return
	}
	if told, ok := e.reports.Dropped(ip, translate.Reason(r), c.now); ok {
		c.out.Events = append(c.out.Events, Event{Kind: PacketDropped, Time: c.now, Reason: r, Dropped: told})
	}
}

// from6 judges a packet by its addresses and hands it to the step of its kind.
func (e *Engine) from6(c *call, ip []byte) Reason {
	v, bad := translate.ViewIPv6(ip)
	if !v.Src.IsValid() {
		return Reason(bad)
	}
	if bad == translate.ReasonNone {
		ip = ip[:v.Headers+len(v.Payload)] // a link may have padded it
	}
	if e.detours(v.Src, v.Dst) {
		if bad != translate.ReasonNone {
			return Reason(bad)
		}
		if r, done := e.fromProxy(c, ip, &v); done {
			return r
		}
	}
	to, r := e.destination(v.Dst)
	switch {
	case r == NotPool6:
		return r
	case e.inPool6(v.Src):
		return SourceInPool6
	case !translate.Forwarded(v.Src):
		return Reason(translate.ReasonIllegalSource)
	case r == OwnAddress, r == Reason(translate.ReasonNonGlobal):
		return e.refuse6(c, ip, ErrorProhibited, packet.ICMPv6Unreachable, codeProhibited6, r)
	case r != none:
		return r
	case bad != translate.ReasonNone || ip[7] <= 1:
		return e.malformed6(c, ip, v.Src)
	case v.Fragment():
		return e.fragment6(c, ip, &v, to)
	case v.IsError():
		return e.error6(c, ip, &v, to)
	}
	return e.whole6(c, ip, &v, to)
}

// whole6 translates a packet that is no fragment and no ICMP error.
func (e *Engine) whole6(c *call, ip []byte, v *translate.View, to target) Reason {
	if v.Proto == packet.ProtoTCP {
		if r, done := e.control6(c, ip, v, to); done {
			return r
		}
	}
	ends, r := e.fromIPv6(c, ip, v, to)
	if r != none {
		return r
	}
	return e.send4(c, ip, &translate.Binding{Outer: ends}, v.Src)
}

// fromIPv6 finds or makes the state of a whole packet or first fragment, and returns
// what its headers become (RFC 6146 sections 3.5, 3.6).
func (e *Engine) fromIPv6(c *call, ip []byte, v *translate.View, to target) (translate.Endpoints, Reason) {
	t, r := tupleOf(v)
	switch {
	case r == Protocol:
		return translate.Endpoints{}, e.refuse6(c, ip, ErrorProtocol, packet.ICMPv6Unreachable, codePort6, r)
	case r != none:
		return translate.Endpoints{}, r
	case t.transport == state.ICMP && e.settings.DropICMPInfo:
		return translate.Endpoints{}, ICMPInfo
	}
	key := state.Key6{
		Client: v.Src.As16(), ClientPort: t.src, Peer: to.peer, PeerPort: t.dst,
		Transport: t.transport, Prefix: to.prefix,
	}
	if t.transport == state.ICMP {
		key.PeerPort = 0
	}
	var s state.Session
	switch t.transport {
	case state.TCP:
		r = e.tcp6(c, &key, t.flags, &s)
	case state.UDP:
		r = e.udp6(c, &key, &s)
	default:
		r = e.icmp6(c, &key, &s)
	}
	switch {
	case r != none:
		return translate.Endpoints{}, e.refused6(c, ip, v.Src, r)
	case s.Word.Flags()&state.Detoured != 0:
		return translate.Endpoints{}, DetourUnknown // in fragments, which control connections never are
	}
	return tuple4(&s), none
}

// refused6 answers a packet for which there was no room (RFC 6146 sections 3.5.1.1,
// 3.5.2.3).
func (e *Engine) refused6(c *call, ip []byte, src netip.Addr, r Reason) Reason {
	switch r {
	case NoPort, NoAddress, SessionLimit, SessionsFull, BindingsFull, SubscribersFull:
		return e.refuse6(c, ip, ErrorAddress, packet.ICMPv6Unreachable, packet.UnreachableAddress, r)
	}
	return r
}

// malformed6 has the translator say what is wrong with a packet that it will refuse
// whatever it is bound to, and sends what is owed.
func (e *Engine) malformed6(c *call, ip []byte, src netip.Addr) Reason {
	any4 := netip.AddrFrom4([4]byte{})
	unbound := translate.Binding{Outer: translate.Endpoints{Src: any4, Dst: any4}}
	path := c.path
	path.HopTaken = false
	return e.icmpReply(c, e.translator.IPv6Bound(ip, &unbound, path, &c.out.Batch), src)
}

// from4 does for IPv4 packets what from6 does for IPv6.
func (e *Engine) from4(c *call, ip []byte) Reason {
	v, bad := translate.ViewIPv4(ip)
	if !v.Src.IsValid() {
		return Reason(bad)
	}
	if bad == translate.ReasonNone {
		ip = ip[:v.Headers+len(v.Payload)]
	}
	switch {
	case !e.pool.has(v.Dst):
		return NotPool4
	case !c.turned && e.pool.has(v.Src):
		return SourceInPool4
	case bad == translate.ReasonNone && !v.IsError() && !translate.Forwarded(v.Src):
		return Reason(translate.ReasonIllegalSource)
	case bad != translate.ReasonNone || ip[8] <= 1 && !c.turned:
		return e.malformed4(c, ip, v.Src)
	case v.Fragment():
		return e.fragment4(c, ip, &v)
	case v.IsError():
		return e.error4(c, ip, &v)
	}
	return e.whole4(c, ip, &v)
}

func (e *Engine) whole4(c *call, ip []byte, v *translate.View) Reason {
	ends, r := e.fromIPv4(c, ip, v)
	if r != none {
		return r
	}
	return e.send6(c, ip, &translate.Binding{Outer: ends}, v.Src)
}

// fromIPv4 is the counterpart of fromIPv6.
func (e *Engine) fromIPv4(c *call, ip []byte, v *translate.View) (translate.Endpoints, Reason) {
	t, r := tupleOf(v)
	switch {
	case r == Protocol:
		return translate.Endpoints{}, e.refuse4(c, ip, ErrorProtocol, icmpUnreachable, codeProtocol, r)
	case r != none:
		return translate.Endpoints{}, r
	}
	key := state.Key4{
		Pool: v.Dst.As4(), PoolPort: t.dst, Peer: v.Src.As4(), PeerPort: t.src, Transport: t.transport,
	}
	if t.transport == state.ICMP {
		key.PeerPort = 0
	}
	var s state.Session
	switch t.transport {
	case state.TCP:
		r = e.tcp4(c, ip, &key, t.flags, &s)
	case state.UDP:
		r = e.udp4(c, &key, &s)
	default:
		r = e.icmp4(c, &key, &s)
	}
	switch {
	case r != none:
		return translate.Endpoints{}, e.refused4(c, ip, t.transport, r)
	case s.Word.Flags()&state.Detoured != 0:
		return e.fromCaller(c, v, &s, t.flags)
	}
	return e.tuple6(&s)
}

// refused4 answers an IPv4 packet, where RFC 6146 allows that (sections 3.5.1, 3.5.3).
func (e *Engine) refused4(c *call, ip []byte, transport state.Transport, r Reason) Reason {
	switch {
	case r == NoBinding && transport == state.UDP:
		return e.refuse4(c, ip, ErrorUnreachable, icmpUnreachable, codePort, r)
	case r == NoBinding && transport == state.ICMP:
		return e.refuse4(c, ip, ErrorUnreachable, icmpUnreachable, codeHost, r)
	case r == Filtered && transport != state.TCP:
		return e.refuse4(c, ip, ErrorFiltered, icmpUnreachable, codeProhibited, r)
	}
	return r
}

// malformed4 is the counterpart of malformed6.
func (e *Engine) malformed4(c *call, ip []byte, src netip.Addr) Reason {
	any6 := netip.IPv6Unspecified()
	unbound := translate.Binding{Outer: translate.Endpoints{Src: any6, Dst: any6}}
	path := c.path
	path.HopTaken = false
	return e.icmpReply(c, e.translator.IPv4Bound(ip, &unbound, path, &c.out.Batch), src)
}
