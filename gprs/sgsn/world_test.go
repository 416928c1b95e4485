// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

var (
	ours   = netip.MustParseAddr("192.0.2.1")
	ours2  = netip.MustParseAddr("192.0.2.2")
	theirs = netip.MustParseAddr("198.51.100.1")
	other  = netip.MustParseAddr("198.51.100.2")

	four      = netip.MustParseAddr("203.0.113.7")
	linkLocal = netip.MustParseAddr("fe80::aabb:ccdd:1122:3344")
	prefix    = netip.MustParseAddr("2001:db8:6:7::")
	six       = netip.MustParseAddr("2001:db8:6:7:aabb:ccdd:1122:3344")
	router    = netip.MustParseAddr("fe80::1")
	host      = netip.MustParseAddr("2001:db8:9::2")
	host4     = netip.MustParseAddr("203.0.113.200")
)

// world is an engine, and a GGSN that a test plays.
type world struct {
	t     *testing.T
	e     *Engine
	now   time.Time
	out   Output
	codec gtp.Codec
	seen  int   // datagrams of out that next has returned
	class uint8 // traffic class of datagrams from GGSNs
	// teid counts the tunnel identifiers of the GGSN, data and control in turn.
	teid uint32
}

func newWorld(t *testing.T, set Settings) *world {
	t.Helper()
	if set.Addresses == nil {
		set.Addresses = []netip.Addr{ours, ours2}
	}
	e, err := New(set, bytes.NewReader(bytes.Repeat([]byte("an SGSN's randomness"), 100)))
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, e: e, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), teid: 0x1000}
}

// attachment is that of a terminal.
func attachment(v gtp.Version, kind gtp.PDPType) *Attachment {
	imsi, _ := gtp.ParseIMSI("240010123456789")
	msisdn, _ := gtp.ParseMSISDN("46702123456")
	apn, _ := gtp.ParseAPN("internet")
	return &Attachment{Link: 1, GGSN: theirs, Version: v, IMSI: imsi, APN: apn, Type: kind, MSISDN: msisdn}
}

// order gives an order.
func (w *world) order(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// clear forgets what was put out.
func (w *world) clear() {
	w.out.Reset()
	w.seen = 0
}

// wait lets time pass, timer by timer.
func (w *world) wait(d time.Duration) {
	end := w.now.Add(d)
	for {
		next := w.e.Next()
		if next.IsZero() || next.After(end) {
			w.now = end
			return
		}
		w.now = next
		w.e.Tick(w.now, &w.out)
	}
}

// next returns the next datagram that was put out, taken apart.
func (w *world) next() (packet.Datagram, gtp.Header) {
	w.t.Helper()
	if w.seen >= len(w.out.UDP) {
		w.t.Fatal("nothing more was sent")
	}
	d := w.out.UDP[w.seen]
	w.seen++
	h, err := gtp.ParseHeader(d.Payload)
	if err != nil {
		w.t.Fatalf("%v: %x", err, d.Payload)
	}
	return d, h
}

// none fails if there is a datagram that next has not returned.
func (w *world) none() {
	w.t.Helper()
	if n := len(w.out.UDP) - w.seen; n > 0 {
		w.t.Errorf("%d datagrams more were sent: %x", n, w.out.UDP[w.seen].Payload)
	}
}

// request returns the next datagram, whose elements are read into m.
func (w *world) request(m gtp.Message) (packet.Datagram, gtp.Header) {
	w.t.Helper()
	d, h := w.next()
	if _, err := w.codec.Parse(&h, m); err != nil {
		w.t.Fatalf("%s: %v", h.Type, err)
	}
	return d, h
}

// say sends a message from the GGSN.
func (w *world) say(socket int, h gtp.Header, m gtp.Message) {
	w.t.Helper()
	b, err := w.codec.Append(nil, h, m)
	if err != nil {
		w.t.Fatal(err)
	}
	w.send(socket, theirs, b)
}

func (w *world) send(socket int, from netip.Addr, b []byte) {
	_, plane := planeOf(socket)
	w.e.Handle(socket, netip.AddrPortFrom(from, plane.Port()), w.class, b, w.now, &w.out)
}

// reply is the header of a response.
func reply(h gtp.Header, teid uint32) gtp.Header {
	return gtp.Header{Version: h.Version, HasSequence: true, Sequence: h.Sequence, TEID: teid, FlowLabel: uint16(teid), TID: h.TID}
}

// accept answers a create request as a GGSN does that grants it.
func (w *world) accept(change func(*gtp.CreateResponse)) (gtp.Header, gtp.CreateRequest) {
	w.t.Helper()
	var m gtp.CreateRequest
	d, h := w.request(&m)
	w.teid += 2
	given := gtp.EndUserAddress{Type: m.EndUserAddress.Value.Type}
	if given.Type != gtp.PDPTypeIPv6 {
		given.IPv4 = four
	}
	if given.Type != gtp.PDPTypeIPv4 {
		given.IPv6 = netip.MustParseAddr("2001:db8:ffff::aabb:ccdd:1122:3344")
	}
	answer := gtp.CreateResponse{
		Cause: gtp.CauseAccepted, Reordering: gtp.Some(false), Recovery: gtp.Some(uint8(9)),
		TEIDData: gtp.Some(w.teid), TEIDControl: gtp.Some(w.teid + 1), ChargingID: gtp.Some(w.teid),
		AddressControl: gtp.Some(theirs), AddressUser: gtp.Some(theirs), QoS: gtp.Some(m.QoS),
	}
	if !m.LinkedNSAPI.Present {
		answer.EndUserAddress = gtp.Some(given)
	}
	if change != nil {
		change(&answer)
	}
	w.say(d.Socket, reply(h, m.TEIDControl.Value), &answer)
	return h, m
}

// attach opens a context.
func (w *world) attach(v gtp.Version, kind gtp.PDPType) gtp.TID {
	w.t.Helper()
	key, err := w.e.Attach(attachment(v, kind), w.now, &w.out)
	w.order(err)
	w.accept(nil)
	w.event(Attached)
	return key
}

// online opens a context of IPv6 whose router has advertised.
func (w *world) online(v gtp.Version) gtp.TID {
	w.t.Helper()
	key := w.attach(v, gtp.PDPTypeIPv6)
	w.advertise(key, defaultRA())
	w.event(Configured)
	w.clear()
	return key
}

// event checks the last event.
func (w *world) event(k EventKind) Event {
	w.t.Helper()
	if n := len(w.out.Events); n == 0 || w.out.Events[n-1].Kind != k {
		w.t.Fatalf("events %+v, want the last to be %q", w.out.Events, k)
	}
	return w.out.Events[len(w.out.Events)-1]
}

// info returns a context.
func (w *world) info(key gtp.TID) Info {
	w.t.Helper()
	i, ok := w.e.Context(key)
	if !ok {
		w.t.Fatalf("there is no context %s", key)
	}
	return i
}

// down sends a user packet from the GGSN by the tunnel of a context.
func (w *world) down(key gtp.TID, ip []byte) {
	w.t.Helper()
	i := w.info(key)
	h := gtp.Header{Version: i.Version, TEID: i.TEIDData, FlowLabel: uint16(i.TEIDData), TID: key}
	socket := Socket(0, PlaneUser)
	if h.Version == gtp.V0 {
		socket = Socket(0, PlaneV0)
	}
	b, err := gtp.Encapsulate(nil, &h, ip)
	if err != nil {
		w.t.Fatal(err)
	}
	w.send(socket, theirs, b)
}

// drops returns the counter of a reason.
func (w *world) drops(reason string) (n uint64) {
	w.t.Helper()
	known := false
	w.e.EachDropped(func(r string, count uint64) {
		if r == reason {
			n, known = count, true
		}
	})
	if !known {
		w.t.Fatalf("no drop is called %s", reason)
	}
	return n
}

// ra is an advertisement that a test varies.
type ra struct {
	source           netip.Addr
	hopLimit         uint8
	lifetime         uint16
	flags            uint8
	bitsOfRouter     uint8 // M and O
	prefix           netip.Addr
	bits             uint8
	valid, preferred uint32
	mtu              uint32
	servers          []netip.Addr
	more             []byte
	spoil            func(packet.IPv6) packet.IPv6 // nil: it is right
}

func defaultRA() *ra {
	return &ra{
		source: router, hopLimit: 255, lifetime: 64800, flags: 0x40, prefix: prefix, bits: 64, valid: 1<<32 - 1, preferred: 1<<32 - 1, mtu: 1400,
		servers: []netip.Addr{netip.MustParseAddr("2001:db8::53")},
	}
}

func (r *ra) packet() []byte {
	be := binary.BigEndian
	body := be.AppendUint16([]byte{64, r.bitsOfRouter}, r.lifetime)
	body = append(body, make([]byte, 8)...)
	if r.bits != 0 {
		raw := r.prefix.As16()
		body = append(body, 3, 4, r.bits, r.flags)
		body = be.AppendUint32(be.AppendUint32(body, r.valid), r.preferred)
		body = append(append(body, 0, 0, 0, 0), raw[:]...)
	}
	if r.mtu != 0 {
		body = be.AppendUint32(append(body, 5, 1, 0, 0), r.mtu)
	}
	if len(r.servers) > 0 {
		body = be.AppendUint32(append(body, 25, byte(1+2*len(r.servers)), 0, 0), 600)
		for _, s := range r.servers {
			raw := s.As16()
			body = append(body, raw[:]...)
		}
	}
	body = append(body, r.more...)
	p := packet.AppendICMPv6(nil, r.source, packet.AllNodes, r.hopLimit, packet.ICMPv6RouterAdvert, 0, body)
	if r.spoil != nil {
		return r.spoil(p)
	}
	return p
}

// of has the advertisement be of other prefixes than its own.
func (r *ra) of(valid, preferred uint32, prefixes ...string) *ra {
	r.bits = 0
	for _, p := range prefixes {
		r.more = packet.AppendPrefixInformation(r.more, netip.MustParsePrefix(p), packet.PrefixAutonomous, valid, preferred)
	}
	return r
}

func (w *world) advertise(key gtp.TID, r *ra) {
	w.t.Helper()
	w.down(key, r.packet())
}

// udp6 is a packet of IPv6.
func udp6(src, dst netip.Addr, size int) []byte {
	b := packet.AppendIPv6Header(nil, packet.ProtoUDP, 64, 8+size, src, dst)
	return append(append(b, 0x30, 0x39, 0, 53, 0, byte(8+size), 0, 0), make([]byte, size)...)
}

// udp4 is one of IPv4.
func udp4(src, dst netip.Addr, port uint16, size int) []byte {
	s, d := src.As4(), dst.As4()
	b := []byte{0x45, 0, 0, byte(28 + size), 0, 0, 0, 0, 64, 17, 0, 0}
	b = append(append(b, s[:]...), d[:]...)
	b = binary.BigEndian.AppendUint16(append(b, 0x30, 0x39), port)
	return append(append(b, 0, byte(8+size), 0, 0), make([]byte, size)...)
}
