// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/nat64/state"
)

// fragment6 and fragment4 handle packets that are fragments (RFC 6146 section 3.4). The
// first one, which has the ports, finds the session like a whole packet; the others get
// what it got, and wait for it if they come before. Packets whose checksum needs the
// whole are put together: ICMP, and UDP over IPv4 without a checksum.
func (e *Engine) fragment6(c *call, ip []byte, v *translate.View, to target) Reason {
	switch v.Proto {
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMPv6:
	default:
		return e.refuse6(c, ip, ErrorProtocol, packet.ICMPv6Unreachable, codePort6, Protocol)
	}
	f := &e.fragments6
	k := fragmentKey{src: v.Src.As16(), dst: v.Dst.As16(), id: v.ID, proto: v.Proto}
	a := f.find(&k)
	if a == nil {
		of, r := e.accountOf6(k.src)
		if r != none {
			return r
		}
		if a, r = f.begin(&k, of, c.mono); r != none {
			return r
		}
	}
	switch r := e.note(f, a, ip, v); {
	case r != none:
		return r
	case a.phase == passing:
		return e.passed(f, a, e.pass(c, a, ip, v.Src))
	case a.phase == whole || v.Offset != 0:
		if r = e.wait(f, a, ip); r == none && a.covered.complete() {
			return e.reassembled6(c, a)
		}
		return r
	}
	ends, r := e.fromIPv6(c, ip, v, to)
	if r != none {
		f.spoil(a, FragmentRefused)
		return r
	}
	a.endpoints, a.id = ends, e.ids(ends.Src.As4(), ends.Dst.As4())
	client := e.accountOfClient(k.src)
	return e.found(c, f, a, ip, v.Src, client)
}

func (e *Engine) fragment4(c *call, ip []byte, v *translate.View) Reason {
	switch v.Proto {
	case packet.ProtoTCP, packet.ProtoUDP, protoICMP:
	default:
		return e.refuse4(c, ip, ErrorProtocol, icmpUnreachable, codeProtocol, Protocol)
	}
	if c.turned {
		return e.turnedFragment(c, ip, v)
	}
	f := &e.fragments4
	k := fragmentKey{src: v.Src.As16(), dst: v.Dst.As16(), id: v.ID, proto: v.Proto}
	a := f.find(&k)
	if a == nil {
		var r Reason
		if a, r = f.begin(&k, e.accountOf4(v.Dst.As4(), v.Src.As4()), c.mono); r != none {
			return r
		}
	}
	switch r := e.note(f, a, ip, v); {
	case r != none:
		return r
	case a.phase == passing:
		return e.passed(f, a, e.pass(c, a, ip, v.Src))
	case a.phase == whole || v.Offset != 0:
		return e.wait4(c, f, a, ip, v)
	}
	ends, r := e.fromIPv4(c, ip, v)
	if r != none {
		f.spoil(a, FragmentRefused)
		return r
	}
	a.endpoints = ends
	e.peers.add(v.Dst.As4(), v.Src.As4())
	client := e.accountOfClient(ends.Dst.As16())
	return e.found(c, f, a, ip, v.Src, client)
}

// note notes a fragment in the assembly of its packet.
func (e *Engine) note(f *assemblies, a *assembly, ip []byte, v *translate.View) Reason {
	if a.phase == refused {
		return FragmentRefused
	}
	if v.Offset+len(v.Payload) > largestPayload {
		f.spoil(a, FragmentRefused)
		return FragmentTooLong
	}
	if r := a.covered.add(v.Offset, len(v.Payload), v.More); r != none {
		if r == FragmentOverlap {
			f.spoil(a, FragmentRefused)
		}
		return r
	}
	a.largest = max(a.largest, len(ip))
	if a.phase == unknown && e.needsWhole(v) {
		f.enter(a, whole)
	}
	return none
}

// accountOf6 returns the account of a client whose fragments tell no session yet.
func (e *Engine) accountOf6(src [16]byte) (accountKey, Reason) {
	owner := e.ownerOf(src)
	prefix := e.prefixOf(owner).Addr().As16()
	var s state.Subscriber
	if e.table.FindSubscriber(&owner, &s) {
		return accountKey{ofClient, prefix}, none
	}
	if !e.clients.has(netip.AddrFrom16(owner)) {
		return accountKey{}, NotClient
	}
	clear(prefix[8:])
	return accountKey{ofNewcomer, prefix}, none
}

// accountOf4 returns the account of an IPv4 packet of which it is not known yet whom it is for.
// A host that no one has a session with can be anybody's forgery: all that such a sender
// cannot choose freely is the address of the pool.
func (e *Engine) accountOf4(pool, peer [4]byte) accountKey {
	if e.peers.has(pool, peer) {
		return accountKey{ofPeer, netip.AddrFrom4(peer).As16()}
	}
	return accountKey{ofStranger, netip.AddrFrom4(pool).As16()}
}

// accountOfClient returns the account of the client that an address belongs to.
func (e *Engine) accountOfClient(a [16]byte) accountKey {
	return accountKey{ofClient, e.prefixOf(e.ownerOf(a)).Addr().As16()}
}

// receiver4 returns the client that a first fragment is for which waits for the whole.
func (e *Engine) receiver4(v *translate.View) (client [16]byte, t tuple, r Reason) {
	if v.IsError() {
		var inner translate.View
		if inner, t, r = quoted(v); r != none {
			return client, t, r
		}
		s, r := e.quotedSession4(&inner, t)
		return s.Client, t, r
	}
	if t, r = tupleOf(v); r != none {
		return client, t, r
	}
	var b state.Binding
	if !e.table.FindBinding4(&state.Outside{Pool: v.Dst.As4(), Port: t.dst, Transport: t.transport}, &b) {
		return client, t, NoBinding
	}
	return b.Client, t, none
}

// wait4 keeps a fragment from the IPv4 side, on the account of the client if it reports that,
// and translates the packet that is whole with it.
func (e *Engine) wait4(c *call, f *assemblies, a *assembly, ip []byte, v *translate.View) Reason {
	if v.Offset == 0 {
		client, t, r := e.receiver4(v)
		if r == none {
			r = f.charge(a, e.accountOfClient(client))
		} else if r != NoBinding {
			r = none // judged when it is whole
		} else if !v.IsError() {
			r = e.refused4(c, ip, t.transport, r)
		}
		if r != none {
			f.spoil(a, FragmentRefused)
			return r
		}
	}
	r := e.wait(f, a, ip)
	if r == none && a.phase == whole && a.covered.complete() {
		return e.reassembled4(c, a)
	}
	return r
}

// found translates the first fragment of a packet, and those that waited for it. From here
// on the packet is on the account of its client.
func (e *Engine) found(c *call, f *assemblies, a *assembly, ip []byte, src netip.Addr, client accountKey) Reason {
	f.enter(a, passing)
	r := e.pass(c, a, ip, src)
	e.flush(c, f, a, src)
	if !a.covered.complete() {
		f.charge(a, client)
	}
	return e.passed(f, a, r)
}

// passed ends the assembly of a packet that has come as a whole.
func (e *Engine) passed(f *assemblies, a *assembly, r Reason) Reason {
	if a.covered.complete() {
		f.remove(a, FragmentRefused)
	}
	return r
}

// turnedFragment handles a fragment that was translated here already and goes back to the
// IPv6 side. Its packet is known: this side remembers nothing of it.
func (e *Engine) turnedFragment(c *call, ip []byte, v *translate.View) Reason {
	a := c.assembly
	if a == nil {
		return FragmentRefused
	}
	if v.Offset == 0 {
		ends, r := e.fromIPv4(c, ip, v)
		if r != none {
			return r
		}
		a.turned = ends
	}
	if !a.turned.Dst.IsValid() {
		return FragmentRefused
	}
	return e.send6(c, ip, &translate.Binding{Outer: a.turned}, v.Src)
}

// largestPayload is the longest payload that fits an IPv4 packet behind its header.
const largestPayload = 65535 - 20

// needsWhole reports whether a packet must be put together before it is translated.
func (e *Engine) needsWhole(v *translate.View) bool {
	if isICMP(v) {
		return true
	}
	return v.Src.Is4() && v.Proto == packet.ProtoUDP && v.Offset == 0 && len(v.Payload) >= packet.UDPHeaderLen &&
		v.Payload[6]|v.Payload[7] == 0 && e.settings.Translate.UDPZeroChecksum == translate.ZeroChecksumCompute
}

// wait keeps a fragment for later. Without memory for one the packet is given up: it
// could not be put together.
func (e *Engine) wait(f *assemblies, a *assembly, ip []byte) Reason {
	r := f.keep(a, ip)
	if r != none {
		f.spoil(a, FragmentRefused)
	}
	return r
}

// pass translates a fragment as its first one was.
func (e *Engine) pass(c *call, a *assembly, ip []byte, src netip.Addr) Reason {
	b := translate.Binding{Outer: a.endpoints}
	if src.Is4() {
		return e.send6(c, ip, &b, src)
	}
	c.assembly, c.path.FragmentID = a, a.id
	return e.send4(c, ip, &b, src)
}

// flush translates what waited for the first fragment, in the order of arrival.
func (e *Engine) flush(c *call, f *assemblies, a *assembly, src netip.Addr) {
	at := a.waiting.first
	for range a.waiting.packets {
		var ip []byte
		ip, at = f.memory.appendTo(c.out.Alloc(f.memory.size(at)), at)
		if r := e.pass(c, a, ip, src); r != none {
			e.stats.Dropped[r]++
		}
	}
	f.release(a)
}

// reassembled6 puts a packet together and translates it. It keeps an atomic Fragment
// Header, by which it may be cut again on the IPv4 side with its own identification
// (RFC 7915 section 5.1.1).
func (e *Engine) reassembled6(c *call, a *assembly) Reason {
	largest := a.largest
	b, headers := e.gather(c, &e.fragments6, a)
	if len(b)-packet.IPv6HeaderLen > 65535 {
		return FragmentTooLong
	}
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-packet.IPv6HeaderLen))
	b[headers-6], b[headers-5] = 0, 0 // offset and M flag
	again := *c
	again.path.Reassembled = true
	again.path.MTU4 = smaller(c.path.MTU4, largest-20)
	v, bad := translate.ViewIPv6(b)
	to, r := e.destination(v.Dst)
	switch {
	case bad != translate.ReasonNone:
		return Reason(bad)
	case r != none:
		return r
	case v.IsError():
		return e.error6(&again, b, &v, to)
	}
	return e.whole6(&again, b, &v, to)
}

// reassembled4 does so for IPv4. DF goes: what came in fragments may be cut again.
func (e *Engine) reassembled4(c *call, a *assembly) Reason {
	b, headers := e.gather(c, &e.fragments4, a)
	if len(b) > 65535 {
		return FragmentTooLong
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	b[6], b[7], b[10], b[11] = 0, 0, 0, 0
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(0, b[:headers])))
	v, bad := translate.ViewIPv4(b)
	switch {
	case bad != translate.ReasonNone:
		return Reason(bad)
	case v.IsError():
		return e.error4(c, b, &v)
	}
	return e.whole4(c, b, &v)
}

// gather returns the headers of the first fragment with the payloads of all behind them,
// and ends the assembly.
func (e *Engine) gather(c *call, f *assemblies, a *assembly) (b []byte, headers int) {
	payload := c.out.Alloc(a.covered.end)[:a.covered.end]
	var first []byte
	at := a.waiting.first
	for range a.waiting.packets {
		var ip []byte
		ip, at = f.memory.appendTo(c.out.Alloc(f.memory.size(at)), at)
		var v translate.View
		if ip[0]>>4 == 4 {
			v, _ = translate.ViewIPv4(ip)
		} else {
			v, _ = translate.ViewIPv6(ip)
		}
		copy(payload[v.Offset:], v.Payload)
		if v.Offset == 0 {
			first, headers = ip, v.Headers
		}
	}
	f.release(a)
	f.remove(a, FragmentRefused)
	e.stats.Reassembled++
	return append(append(c.out.Alloc(headers+len(payload)), first[:headers]...), payload...), headers
}

// smaller returns the lesser of an MTU, of which 0 is unknown, and a size; no IPv4 link
// takes less than 68 octets.
func smaller(mtu, size int) int {
	if mtu == 0 {
		return max(size, 68)
	}
	return max(min(mtu, size), 68)
}
