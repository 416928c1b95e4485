// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64

import (
	"encoding/binary"
	"net/netip"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/translate"
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
	k := fragmentKey{src: v.Src.As16(), dst: v.Dst.As16(), id: v.ID, proto: v.Proto}
	a, r := e.assemble(c, ip, v, k)
	switch {
	case r != none:
		return r
	case a.phase == whole && a.covered.complete():
		return e.reassembled6(c, a)
	case a.phase == passing:
		return e.pass6(c, a, ip, v.Src)
	case a.phase == whole || v.Offset != 0:
		return e.wait(a, ip)
	}
	ends, r := e.outgoing6(c, ip, v, to)
	if r != none {
		e.spoil(a)
		return r
	}
	a.phase, a.endpoints = passing, ends
	r = e.pass6(c, a, ip, v.Src)
	e.flush(c, a, v.Src)
	return r
}

func (e *Engine) fragment4(c *call, ip []byte, v *translate.View) Reason {
	switch v.Proto {
	case packet.ProtoTCP, packet.ProtoUDP, protoICMP:
	default:
		return e.refuse4(c, ip, ErrorProtocol, icmpUnreachable, codeProtocol, Protocol)
	}
	k := fragmentKey{src: v.Src.As16(), dst: v.Dst.As16(), id: v.ID, proto: v.Proto, turned: c.turned}
	a, r := e.assemble(c, ip, v, k)
	switch {
	case r != none:
		return r
	case a.phase == whole && a.covered.complete():
		return e.reassembled4(c, a)
	case a.phase == passing:
		return e.pass4(c, a, ip, v.Src)
	case a.phase == whole || v.Offset != 0:
		return e.wait(a, ip)
	}
	ends, r := e.outgoing4(c, ip, v)
	if r != none {
		e.spoil(a)
		return r
	}
	a.phase, a.endpoints = passing, ends
	r = e.pass4(c, a, ip, v.Src)
	e.flush(c, a, v.Src)
	return r
}

// assemble notes a fragment in the assembly of its packet, and keeps it if the packet is
// to be put together.
func (e *Engine) assemble(c *call, ip []byte, v *translate.View, k fragmentKey) (*assembly, Reason) {
	a, r := e.fragments.find(k, c.mono)
	if r != none {
		return nil, r
	}
	if a.phase == refused {
		return nil, FragmentRefused
	}
	if v.Offset+len(v.Payload) > largestPayload {
		e.spoil(a)
		return nil, FragmentTooLong
	}
	if r = a.covered.add(v.Offset, len(v.Payload), v.More); r != none {
		if r == FragmentOverlap {
			e.spoil(a)
		}
		return nil, r
	}
	a.largest = max(a.largest, len(ip))
	if a.phase == unknown && e.needsWhole(v) {
		a.phase = whole
	}
	if a.phase == whole && a.covered.complete() {
		// The last one to come waits for nobody, but lies with the others.
		r = e.wait(a, ip)
	}
	if r != none {
		return nil, r
	}
	return a, none
}

// largestPayload is the longest payload that fits an IPv4 packet behind its header.
const largestPayload = 65535 - 20

// needsWhole tells whether a packet must be put together before it is translated.
func (e *Engine) needsWhole(v *translate.View) bool {
	if isICMP(v) {
		return true
	}
	return v.Src.Is4() && v.Proto == packet.ProtoUDP && v.Offset == 0 && len(v.Payload) >= packet.UDPHeaderLen &&
		v.Payload[6]|v.Payload[7] == 0 && e.settings.Translate.UDPZeroChecksum == translate.ZeroChecksumCompute
}

// wait keeps a fragment for later. Without memory for one the packet is given up: it
// could not be put together.
func (e *Engine) wait(a *assembly, ip []byte) Reason {
	if r := e.fragments.keep(a, ip); r != none {
		e.spoil(a)
		return r
	}
	e.stats.FragmentsStored++
	return none
}

// spoil makes an assembly one whose fragments are dropped: those that wait, and those to
// come.
func (e *Engine) spoil(a *assembly) {
	e.fragments.discard(a, FragmentRefused)
	a.phase = refused
}

// pass6 and pass4 translate a fragment as its first one was.
func (e *Engine) pass6(c *call, a *assembly, ip []byte, src netip.Addr) Reason {
	return e.send4(c, ip, &translate.Binding{Outer: a.endpoints}, src)
}

func (e *Engine) pass4(c *call, a *assembly, ip []byte, src netip.Addr) Reason {
	return e.send6(c, ip, &translate.Binding{Outer: a.endpoints}, src)
}

// flush translates what waited for the first fragment, in the order of arrival.
func (e *Engine) flush(c *call, a *assembly, src netip.Addr) {
	for a.waiting != noChunk {
		ip := e.fragments.memory.appendTo(c.out.Alloc(e.fragments.memory.size(a.waiting)), a.waiting)
		a.waiting = e.fragments.memory.release(a.waiting)
		r := none
		if src.Is4() {
			r = e.pass4(c, a, ip, src)
		} else {
			r = e.pass6(c, a, ip, src)
		}
		if r != none {
			e.stats.Dropped[r]++
		}
	}
	a.last = noChunk
}

// reassembled6 puts a packet together and translates it. It keeps an atomic Fragment
// Header, by which it may be cut again on the IPv4 side with its own identification
// (RFC 7915 section 5.1.1).
func (e *Engine) reassembled6(c *call, a *assembly) Reason {
	b, headers := e.gather(c, a)
	if len(b)-packet.IPv6HeaderLen > 65535 {
		return FragmentTooLong
	}
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-packet.IPv6HeaderLen))
	b[headers-6], b[headers-5] = 0, 0 // offset and M flag
	again := *c
	again.path.Reassembled = true
	again.path.MTU4 = smaller(c.path.MTU4, a.largest-20)
	e.done(a)
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
	b, headers := e.gather(c, a)
	if len(b) > 65535 {
		return FragmentTooLong
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	b[6], b[7], b[10], b[11] = 0, 0, 0, 0
	binary.BigEndian.PutUint16(b[10:], ^packet.Fold(packet.Sum(0, b[:headers])))
	e.done(a)
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
// and gives the memory of the fragments back.
func (e *Engine) gather(c *call, a *assembly) (b []byte, headers int) {
	payload := c.out.Alloc(a.covered.end)[:a.covered.end]
	var first []byte
	for a.waiting != noChunk {
		ip := e.fragments.memory.appendTo(c.out.Alloc(e.fragments.memory.size(a.waiting)), a.waiting)
		a.waiting = e.fragments.memory.release(a.waiting)
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
	a.last = noChunk
	return append(append(c.out.Alloc(headers+len(payload)), first[:headers]...), payload...), headers
}

// done ends the assembly of a packet that is whole.
func (e *Engine) done(a *assembly) {
	e.stats.Reassembled++
	e.fragments.remove(a)
}

// smaller returns the lesser of an MTU, of which 0 is unknown, and a size; no IPv4 link
// takes less than 68 octets.
func smaller(mtu, size int) int {
	if mtu == 0 {
		return max(size, 68)
	}
	return max(min(mtu, size), 68)
}
