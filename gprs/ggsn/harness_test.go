// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
)

var (
	start  = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	node4  = netip.MustParseAddr("192.0.2.1")
	node6  = netip.MustParseAddr("2001:db8:9::1")
	sgsn   = netip.MustParseAddr("198.51.100.1")
	other  = netip.MustParseAddr("198.51.100.2")
	rnc    = netip.MustParseAddr("203.0.113.9")
	server = netip.MustParseAddr("8.8.8.8")
	host6  = netip.MustParseAddr("2600::1")
	imsi1  = testIMSI(1)
)

// subscribersOf makes subscribers that may have what is said.
func subscribersOf(by map[gtp.IMSI]Subscription) *Subscribers {
	var list []Subscriber
	for imsi, subscription := range by {
		list = append(list, Subscriber{imsi, subscription})
	}
	s, err := NewSubscribers(list)
	if err != nil {
		panic(err)
	}
	return s
}

func testIMSI(n int) gtp.IMSI {
	digits := []byte("240010000000000")
	for i := len(digits) - 1; n > 0; i-- {
		digits[i] = '0' + byte(n%10)
		n /= 10
	}
	m, err := gtp.ParseIMSI(string(digits))
	if err != nil {
		panic(err)
	}
	return m
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// testSettings have an access point for each type, in one network.
func testSettings() Settings {
	s := Defaults()
	s.Address4, s.Address6 = node4, node6
	s.Peers = prefixes("198.51.100.0/24", "2001:db8:51::/48")
	s.RestartCounter, s.EchoInterval = 7, 0
	apn := func(name string, types Types, four, six string) APN {
		a := APN{
			Name: name, Types: types, MTU: DefaultMTU,
			Router4: netip.MustParseAddr("192.0.2.254"), Router6: netip.MustParseAddr("2001:db8:9::fe"),
			DNS4: addrs("192.0.2.53", "192.0.2.54"), DNS6: addrs("2001:db8::53"),
			PCSCF4: addrs("192.0.2.60"), PCSCF6: addrs("2001:db8::60", "2001:db8::61"),
		}
		if four != "" {
			a.Pools4 = prefixes(four)
		}
		if six != "" {
			a.Pools6 = prefixes(six)
		}
		return a
	}
	s.APNs = []APN{
		apn("internet", TypeIPv4, "10.45.0.0/16", ""),
		apn("inet6", TypeIPv6, "", "2001:db8:6000::/44"),
		apn("dual", TypeIPv4|TypeIPv6|TypeIPv4v6, "10.46.0.0/16", "2001:db8:7000::/44"),
	}
	s.APNs[2].Static4, s.APNs[2].Static6 = prefixes("10.47.0.0/24"), prefixes("2001:db8:7100::/56")
	return s
}

// world is an engine with SGSNs around it, in virtual time.
type world struct {
	testing.TB
	e     *sharedEngine
	now   time.Time
	out   Output
	codec gtp.Codec
	seq   uint16
	from  netip.Addr
	port  uint16
	class uint8 // traffic class of datagrams from nodes
}

func newWorld(t testing.TB, change func(*Settings)) *world {
	t.Helper()
	s := testSettings()
	if change != nil {
		change(&s)
	}
	e, err := New(s, start, rand.NewChaCha8([32]byte{1}))
	if err != nil {
		t.Fatal(err)
	}
	return &world{TB: t, e: share(t, e), now: start, from: sgsn, port: 40000, seq: 100}
}

// socket is the one for a port of this world's node.
func (w *world) socket(path int) Socket { return Socket(path).of(w.from) }

// raw hands a datagram to the engine and returns what comes out.
func (w *world) raw(path int, b []byte) []packet.Datagram {
	w.out.Reset()
	w.e.HandleUDP(w.socket(path), netip.AddrPortFrom(w.from, w.port), w.class, b, w.now, &w.out)
	return w.out.UDP
}

func (w *world) encode(h gtp.Header, m gtp.Message) []byte {
	w.Helper()
	b, err := w.codec.Append(nil, h, m)
	if err != nil {
		w.Fatalf("%v: %v", m.Type(), err)
	}
	return b
}

// ask sends a request with a new sequence number, and reads the answer into r.
func (w *world) ask(path int, h gtp.Header, m, r gtp.Message) gtp.Header {
	w.Helper()
	w.seq++
	h.Version, h.HasSequence, h.Sequence = gtp.V1, true, w.seq
	if path == pathV0 {
		h.Version = gtp.V0
	}
	return w.answer(w.raw(path, w.encode(h, m)), r)
}

// answer reads the one datagram that came out.
func (w *world) answer(got []packet.Datagram, r gtp.Message) gtp.Header {
	w.Helper()
	for i, d := range got {
		h, err := gtp.ParseHeader(d.Payload)
		if err != nil {
			w.Fatalf("answer %x: %v", d.Payload, err)
		}
		if h.Type != r.Type() {
			continue
		}
		if _, err := w.codec.Parse(&h, r); err != nil {
			w.Fatalf("answer %x: %v", d.Payload, err)
		}
		if d.To.Addr() != w.from {
			w.Fatalf("answer %d goes to %v", i, d.To)
		}
		return h
	}
	w.Fatalf("%d datagrams and no %v; dropped %v", len(got), r.Type(), w.dropped())
	return gtp.Header{}
}

// dropped are the reasons that were counted.
func (w *world) dropped() map[string]uint64 {
	all := make(map[string]uint64)
	for i, n := range w.e.stats.Dropped {
		if n > 0 {
			all[Reason(i).String()] = n
		}
	}
	return all
}

// silent fails unless nothing came out, for a reason.
func (w *world) silent(why Reason, before uint64) {
	w.Helper()
	if len(w.out.UDP)+len(w.out.IP) > 0 || w.e.stats.Dropped[why] != before+1 {
		w.Errorf("%d datagrams and %d packets came out, dropped %v; want %v", len(w.out.UDP), len(w.out.IP), w.dropped(), why)
	}
}

// tick lets time pass, and has the engine do all that is due on the way.
func (w *world) tick(d time.Duration) (got []packet.Datagram) {
	until := w.now.Add(d)
	for {
		next := w.e.Next()
		if next.IsZero() || next.After(until) {
			break
		}
		if next.After(w.now) {
			w.now = next
		}
		w.out.Reset()
		w.e.Tick(w.now, &w.out)
		for _, d := range w.out.UDP {
			d.Payload = append([]byte(nil), d.Payload...)
			got = append(got, d)
		}
	}
	w.now = until
	return got
}

// ofType returns the datagrams of a message.
func ofType(list []packet.Datagram, t gtp.MessageType) (out []packet.Datagram) {
	for _, d := range list {
		if d.Payload[1] == byte(t) {
			out = append(out, d)
		}
	}
	return out
}

func qosOf(octets ...byte) gtp.QoS {
	q, _ := gtp.ParseQoS(octets)
	return q
}

func apnOf(name string) gtp.APN {
	a, err := gtp.ParseAPN(name)
	if err != nil {
		panic(err)
	}
	return a
}

// createRequest asks for a context of version 1.
func (w *world) createRequest(m gtp.IMSI, apn string, kind gtp.PDPType) *gtp.CreateRequest {

	return &gtp.CreateRequest{
		IMSI: gtp.Some(m), SelectionMode: gtp.Some(gtp.SelectionVerified), TEIDData: 0x1000, TEIDControl: gtp.Some(uint32(0x2000)), NSAPI: 5,
		EndUserAddress: gtp.Some(gtp.EndUserAddress{Type: kind}), APN: gtp.Some(apnOf(apn)),
		AddressControl: w.from, AddressUser: w.from, QoS: qosOf(2, 0x0b, 0x92, 0x1f),
		CommonFlags: gtp.Some(gtp.FlagDualAddressBearer),
	}
}

// context is what a create has made.
type context struct {
	gtp.CreateResponse
	header gtp.Header
}

func (w *world) create(m *gtp.CreateRequest) context {
	w.Helper()
	var c context
	c.header = w.ask(pathControl, gtp.Header{}, m, &c.CreateResponse)
	return c
}

// open makes a context of an access point, which must be accepted.
func (w *world) open(n int, apn string, kind gtp.PDPType) context {
	w.Helper()
	m := w.createRequest(testIMSI(n), apn, kind)
	m.TEIDData, m.TEIDControl = 0x1000+uint32(n), gtp.Some(0x2000+uint32(n))
	c := w.create(m)
	if !c.Cause.Accepted() {
		w.Fatalf("create refused: %v", c.Cause)
	}
	return c
}

// remove deletes a context and returns the cause.
func (w *world) remove(teid uint32, nsapi uint8, teardown bool) gtp.Cause {
	w.Helper()
	m := &gtp.DeleteRequest{NSAPI: nsapi}
	if teardown {
		m.Teardown = gtp.Some(true)
	}
	var r gtp.DeleteResponse
	w.ask(pathControl, gtp.Header{TEID: teid}, m, &r)
	return r.Cause
}

// empty fails unless nothing is left of any context.
func (w *world) empty() {
	w.Helper()
	e := w.e
	if n := e.sessions.used() + e.contexts.used() + e.requests.used() + e.aggregates.used(); n != 0 {
		w.Errorf("%d sessions, %d contexts, %d requests, %d shared rates are left", e.sessions.used(), e.contexts.used(), e.requests.used(), e.aggregates.used())
	}
	for name, n := range map[string]int{
		"TIDs": len(e.byTID) + len(e.byIMEI), "TEIDs": len(e.byTEID), "control TEIDs": len(e.byControl), "peers' TEIDs": len(e.byPeer), "Charging-IDs": len(e.byCharging), "filters": len(e.filters),
		"changes": len(e.changes), "delegations": len(e.delegations) + len(e.delegates), "routes": len(e.routes), "accounts": len(e.accounts), "charging records": len(e.records), "former prefixes": len(e.formers), "further prefixes": len(e.further), "own links": len(e.ownLinks), "sequence numbers": len(e.bySequence), "waiting": len(e.held.byKey) + len(e.held.byOf) + len(e.held.byTicket) + e.held.queue.Len(), "session times": e.sessionTimes.Len(),
		"request times": e.requestTimes.Len(), "to release": e.toRelease,
	} {
		if n != 0 {
			w.Errorf("%d %s are left", n, name)
		}
	}
	for _, v := range e.vrfs {
		if n := v.behind.Size(); n != 0 {
			w.Errorf("%d routes are left", n)
		}
		if len(v.by4)+len(v.by6) != 0 {
			w.Errorf("%d IPv4 and %d IPv6 addresses are left", len(v.by4), len(v.by6))
		}
	}
	for _, p := range e.Sizes().Pools {
		if p.Used != 0 {
			w.Errorf("%d leases of %s are left", p.Used, p.APN)
		}
	}
	for h := handle(1); h <= e.peers.last; h++ {
		if p := e.peers.at(h); p.addr.IsValid() && (p.needed() || p.contexts != 0) {
			w.Errorf("peer %v has %+v", p.addr, p.paths)
		}
	}
}
