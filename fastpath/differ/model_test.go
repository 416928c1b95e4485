// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package differ_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/runtest"
	"github.com/isthmus-net/isthmus/internal/packet"
)

// outcome is what engine and kernel make of a frame.
type outcome struct {
	frames  [][]byte // what leaves
	dropped bool     // the engine, or the kernel before it, dropped the packet
	kernel  bool     // the packet is the kernel's, or it answers by itself
}

// engine models what becomes of a frame that the programs leave alone: the kernel
// takes it, routes it into the TUN device or to the socket, and sends what the
// engine hands back. It knows the rules of the kernel that come before the engine.
type engine struct {
	w   *world
	out packet.Batch
}

func (e *engine) handle(frame []byte) outcome {
	if len(frame) < ethLen || !bytes.Equal(frame[:6], ports[0].mac) {
		return outcome{kernel: true}
	}
	p := slices.Clone(frame[ethLen:])
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherIPv6:
		return e.handle6(p)
	case etherIPv4:
		return e.handle4(p)
	}
	return outcome{kernel: true}
}

// handle6 is IPv6 forwarding into the TUN device.
func (e *engine) handle6(b []byte) outcome {
	p, _, ok := packet.ParseIPv6(b)
	if !ok {
		return outcome{dropped: true}
	}
	if !slices.ContainsFunc(prefixes, func(x netip.Prefix) bool { return x.Contains(p.Dst()) }) {
		return outcome{kernel: true}
	}
	if !e.w.isHost() && p.HopLimit() <= 1 || len(p) > tunnelMTU {
		return outcome{kernel: true} // answers by an ICMPv6 error
	}
	finish(p) // before the packet goes where no hardware is
	return e.after(func() { e.w.relay.HandleIP(p, e.w.now(), &e.out) })
}

// handle4 is IPv4 reception and UDP.
func (e *engine) handle4(b []byte) outcome {
	if len(b) < ip4Len || b[0]>>4 != 4 || b[0]&0xf < 5 {
		return outcome{dropped: true}
	}
	header, total := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	if len(b) < total || total < header || packet.Fold(packet.Sum(0, b[:header])) != 0xffff {
		return outcome{dropped: true}
	}
	b = b[:total]
	from, to := netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	fragment := binary.BigEndian.Uint16(b[6:])&0x3fff != 0
	if b[9] != packet.ProtoUDP || !isOwn(to) || fragment || isOwn(from) {
		return outcome{kernel: true}
	}
	if isMartian(from) {
		return outcome{dropped: true}
	}
	udp := b[header:]
	if len(udp) < udpLen {
		return outcome{dropped: true}
	}
	if binary.BigEndian.Uint16(udp[2:]) != relayPort {
		return outcome{kernel: true}
	}
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if length < udpLen || length > len(udp) {
		return outcome{dropped: true}
	}
	udp = udp[:length]
	if !sumOK(b, udp) {
		return outcome{dropped: true}
	}
	source := netip.AddrPortFrom(from, binary.BigEndian.Uint16(udp))
	payload := udp[udpLen:]
	if p, _, ok := packet.ParseIPv6(payload); ok {
		finish(p)
	}
	return e.after(func() { e.w.relay.HandleUDP(source, payload, e.w.now(), &e.out) })
}

// sumOK reports whether the kernel takes a datagram: it believes a local sender that
// has left the checksum to hardware. In the mask list: what damages nothing but a
// payload that has a checksum of its own, the programs leave to the end host.
func sumOK(b, udp []byte) bool {
	field, pseudo := binary.BigEndian.Uint16(udp[6:]), pseudo4(b)
	if field == 0 || field == packet.Fold(pseudo) || packet.Fold(packet.Sum(pseudo, udp)) == 0xffff {
		return true
	}
	p, rest, ok := packet.ParseIPv6(udp[udpLen:])
	return ok && len(rest) == 0 && isCovered(p) && packet.Fold(headerSum(pseudo, udp, p)) == 0xffff
}

// headerSum is the sum of a datagram whose inner checksum is right, by its headers.
func headerSum(pseudo uint64, udp []byte, p packet.IPv6) uint64 {
	sum := packet.Sum(packet.Sum(pseudo, udp[:udpLen]), p[:4])
	return packet.Sum(sum, p[6:8]) + uint64(^uint16(p.NextHeader()))
}

func isOwn(a netip.Addr) bool { return a == relayIP || a == secondIP }

// isMartian reports whether the kernel refuses a as a source.
func isMartian(a netip.Addr) bool {
	first := a.As4()[0]
	return a.IsMulticast() || a.IsLoopback() || first == 0 || a == netip.MustParseAddr("255.255.255.255")
}

// finish finishes a checksum that the sender has left to hardware.
func finish(p packet.IPv6) {
	at, payload := checksumAt(p.NextHeader()), p.Payload()
	if p.NextHeader() == packet.ProtoICMPv6 || at < 0 || at+2 > len(payload) || binary.BigEndian.Uint16(payload[at:]) != pseudo6(p) {
		return
	}
	sum := ^packet.Fold(packet.Sum(0, payload))
	if p.NextHeader() == packet.ProtoUDP && sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(payload[at:], sum)
}

// after runs the engine and puts into frames what comes out.
func (e *engine) after(run func()) (o outcome) {
	before := e.drops()
	e.out.Reset()
	run()
	e.w.relay.Publish()
	for _, d := range e.out.UDP {
		r, ok := route(d.To.Addr())
		if !ok {
			continue
		}
		p := udp4(netip.AddrPortFrom(relayIP, relayPort), d.To, 64, d.Payload)
		o.frames = append(o.frames, link(r, etherIPv4, p))
	}
	for _, p := range e.out.IP {
		v, _, _ := packet.ParseIPv6(p)
		if r, ok := route(v.Dst()); ok {
			o.frames = append(o.frames, link(r, etherIPv6, slices.Clone(p)))
		}
	}
	o.dropped = e.drops() != before
	return o
}

// drops adds up the engine's drop counters.
func (e *engine) drops() (n uint64) {
	s := e.w.relay.Stats()
	for _, d := range s.Dropped {
		n += d
	}
	return n
}

// link puts a frame together, for a next hop.
func link(r way, kind uint16, payload []byte) []byte {
	f := append(slices.Clone(r.mac), ports[r.port].mac...)
	return append(binary.BigEndian.AppendUint16(f, kind), payload...)
}

// The mask list: where a frame that the programs send may differ from the engine's.
//
//   - The outer IPv4 identification: the kernel sets the engine's, and the header
//     checksum with it.
//   - The outer UDP checksum is absent where it cannot be made from the inner header:
//     neither TCP, nor ICMPv6, nor UDP with a checksum over all of it.
//   - It is wrong where the inner checksum is wrong: the packet is lost either way.
//   - A datagram whose outer checksum is wrong by its payload alone is forwarded: the
//     inner checksum is wrong too, and the end host drops it.
//   - On tc, a checksum that the sender left to hardware is left to it still.
func masked(got, want []byte) error {
	g, w := slices.Clone(got), slices.Clone(want)
	if len(g) < ethLen || len(w) < ethLen || !bytes.Equal(g[:ethLen], w[:ethLen]) {
		return fmt.Errorf("Ethernet headers differ:\n got %x\nwant %x", got, want)
	}
	inner := g[ethLen:]
	if binary.BigEndian.Uint16(g[12:]) == etherIPv4 {
		if len(g) < ethLen+ip4Len+udpLen || packet.Fold(packet.Sum(0, g[ethLen:ethLen+ip4Len])) != 0xffff {
			return fmt.Errorf("wrong IPv4 header: %x", got)
		}
		inner = g[ethLen+ip4Len+udpLen:]
	}
	p, _, ok := packet.ParseIPv6(inner)
	if !ok {
		return fmt.Errorf("no IPv6 packet: %x", got)
	}
	finish(p)
	if binary.BigEndian.Uint16(g[12:]) == etherIPv4 {
		if len(w) < ethLen+ip4Len+udpLen {
			return fmt.Errorf("lengths differ: %d, %d", len(g), len(w))
		}
		for _, f := range [][]byte{g, w} {
			clear(f[ethLen+4 : ethLen+6])
			clear(f[ethLen+10 : ethLen+12])
		}
		if mayLack(p, binary.BigEndian.Uint16(g[ethLen+ip4Len+6:])) {
			for _, f := range [][]byte{g, w} {
				clear(f[ethLen+ip4Len+6 : ethLen+ip4Len+8])
			}
		}
	}
	if !bytes.Equal(g, w) {
		return fmt.Errorf("frames differ:\n got %x\nwant %x", got, want)
	}
	return nil
}

// mayLack reports whether the outer checksum of a packet, which has this value, is in
// the mask list.
func mayLack(p packet.IPv6, value uint16) bool {
	if !isCovered(p) {
		return value == 0
	}
	return packet.Checksum(p.SrcBytes(), p.DstBytes(), p.NextHeader(), p.Payload()) != 0
}

// isCovered reports whether the transport has a checksum over all of the packet.
func isCovered(p packet.IPv6) bool {
	payload, at := p.Payload(), checksumAt(p.NextHeader())
	if at < 0 || at+2 > len(payload) {
		return false
	}
	if p.NextHeader() != packet.ProtoUDP {
		return true
	}
	return int(binary.BigEndian.Uint16(payload[4:])) == len(payload) && binary.BigEndian.Uint16(payload[6:]) != 0
}

// compare returns how a result breaks the promise: what is forwarded the engine
// forwards, alone, the same way and to the same place; what is dropped the engine
// drops; what is punted is untouched.
func compare(frame []byte, r runtest.Result, o outcome) error {
	switch r.Verdict {
	case fastpath.Forward:
		if len(o.frames) != 1 || o.dropped || o.kernel {
			return fmt.Errorf("forwarded what the engine does not: %s\nengine: %+v", r, o)
		}
		return masked(r.Out, o.frames[0])
	case fastpath.Drop:
		if len(o.frames) != 0 || !o.dropped {
			return fmt.Errorf("dropped what the engine does not: %s\nengine: %+v", r, o)
		}
	case fastpath.Punt:
		if !bytes.Equal(r.Out, frame) {
			return fmt.Errorf("punted a changed frame:\n got %x\nwant %x", r.Out, frame)
		}
	}
	return nil
}
