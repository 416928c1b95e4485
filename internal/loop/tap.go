// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/trace"
)

// tap shows the packets that reach an engine, with what became of each. The
// loop's mutex guards it.
type tap struct {
	meter  *trace.Meter
	emit   func(*trace.Sample)
	sample trace.Sample
	before []uint64 // drops by reason
}

// Trace implements the engine's part of role.Tracer for the instance of that name.
// While it runs no packet takes a way past the mutex. emit must not wait.
func (l *Loop[O]) Trace(ctx context.Context, instance string, s trace.Sampling, emit func(*trace.Sample)) error {
	t := &tap{meter: trace.NewMeter(s), emit: emit, sample: trace.Sample{
		Instance: instance, Path: trace.Engine, Link: trace.IP, Data: make([]byte, 0, trace.Snap),
	}}
	if !l.tap.CompareAndSwap(nil, t) {
		return trace.ErrBusy
	}
	<-ctx.Done()
	l.tap.Store(nil)
	// Whoever saw the tap before holds the mutex as long as it is in use.
	l.mu.Lock()
	defer l.mu.Unlock()
	return nil
}

// Tracing reports whether a trace runs.
func (l *Loop[O]) Tracing() bool { return l.tap.Load() != nil }

// view shows a packet of type P to a tap.
type view[P any] struct {
	hook string
	// append appends the start of a packet, as IPv4 or IPv6, and returns its whole
	// length.
	append func(p P, b []byte) ([]byte, int)
}

var tunView = view[[]byte]{hook: "tun", append: func(ip, b []byte) ([]byte, int) {
	return append(b, ip[:min(len(ip), trace.Snap)]...), len(ip)
}}

// udpView shows datagrams of a socket behind headers made from their addresses.
func udpView(conn port.UDPConn) view[*port.Message] {
	return view[*port.Message]{hook: "udp", append: func(m *port.Message, b []byte) ([]byte, int) {
		b = appendUDP(b, m.From, netip.AddrPortFrom(m.To, conn.LocalAddr().Port()), len(m.Payload))
		whole := len(b) + len(m.Payload)
		return append(b, m.Payload[:min(len(m.Payload), trace.Snap-len(b))]...), whole
	}}
}

// appendUDP appends IP and UDP headers of a payload of n bytes. What a socket does not
// tell, the time to live and the checksum of UDP, is zero.
func appendUDP(b []byte, from, to netip.AddrPort, n int) []byte {
	if from.Addr().Is6() && !from.Addr().Is4In6() {
		b = appendIPv6(b, from.Addr(), to.Addr(), packet.UDPHeaderLen+n)
	} else {
		b = appendIPv4(b, from, to, n)
	}
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(packet.UDPHeaderLen+n))
	return append(b, 0, 0)
}

func appendIPv6(b []byte, from, to netip.Addr, length int) []byte {
	src, dst := from.As16(), to.As16()
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(b, packet.ProtoUDP, 0)
	return append(append(b, src[:]...), dst[:]...)
}

func appendIPv4(b []byte, from, to netip.AddrPort, n int) []byte {
	const headerLen = 20
	src, dst := as4(from.Addr()), as4(to.Addr())
	ip := [headerLen]byte{0: 0x45, 9: packet.ProtoUDP}
	binary.BigEndian.PutUint16(ip[2:], uint16(headerLen+packet.UDPHeaderLen+n))
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	binary.BigEndian.PutUint16(ip[10:], ^packet.Fold(packet.Sum(0, ip[:])))
	return append(b, ip[:]...)
}

// as4 returns the bytes of an IPv4 address; zeros when it is not known.
func as4(a netip.Addr) [4]byte {
	if a = a.Unmap(); a.Is4() {
		return a.As4()
	}
	return [4]byte{}
}

// traced gives one packet to the engine and shows it; the loop's mutex is held.
func traced[P any, O Output](l *Loop[O], t *tap, v *view[P], p P, now time.Time, out O, handle func(p P, now time.Time, out O)) {
	if !t.meter.Take(now) {
		handle(p, now, out)
		return
	}
	s := &t.sample
	s.Time, s.Hook = now, v.hook
	s.Data, s.Length = v.append(p, s.Data[:0]) // the engine may rewrite the packet
	t.before = t.before[:0]
	l.EachDropped(func(_ string, n uint64) { t.before = append(t.before, n) })
	sent := len(out.Packets().UDP) + len(out.Packets().IP)
	handle(p, now, out)
	s.Verdict, s.Reason = trace.Keep, ""
	if len(out.Packets().UDP)+len(out.Packets().IP) > sent {
		s.Verdict = trace.Forward
	}
	i := 0
	l.EachDropped(func(reason string, n uint64) {
		if n != t.before[i] {
			s.Verdict, s.Reason = trace.Drop, reason
		}
		i++
	})
	t.emit(s)
}
