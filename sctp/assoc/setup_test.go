// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// edited is the peer's INIT or INIT ACK with one thing changed.
func (s *script) edited(kind chunk.Type, change func(*chunk.Init)) []byte {
	i := s.init
	if kind == chunk.TypeInitAck {
		i.Cookie = []byte("cookie")
	}
	change(&i)
	return i.Append(nil, kind)
}

// longer is a chunk with more behind its last parameter.
func longer(c []byte, more ...byte) []byte {
	c = append(c, more...)
	binary.BigEndian.PutUint16(c[2:], uint16(len(c)))
	for len(c)%4 != 0 {
		c = append(c, 0)
	}
	return c
}

// badSetups are INITs and INIT ACKs that cannot be (RFC 9260 sections 3.3.2, 3.3.3 and 5.1).
var badSetups = []struct {
	name      string
	change    func(*chunk.Init)
	more      []byte // parameters behind
	init, ack string // answers
	stays     bool   // in COOKIE-WAIT
}{
	{"no tag", func(i *chunk.Init) { i.Tag = 0 }, nil, "", "ABORT(T)", false},
	{"no streams out", func(i *chunk.Init) { i.Out = 0 }, nil, "ABORT:7", "ABORT:7", false},
	{"no streams in", func(i *chunk.Init) { i.In = 0 }, nil, "ABORT:7", "ABORT:7", false},
	{"a window of 1499", func(i *chunk.Init) { i.Window = 1499 }, nil, "ABORT:7", "ABORT:7", true},
	{"a host name", func(*chunk.Init) {}, []byte{0, 11, 0, 8, 'a', '.', 'b', 0}, "ABORT:5", "ABORT:5", false},
	{"a random number of 31 octets", func(i *chunk.Init) { i.Random = make([]byte, 31) }, nil, "ABORT:13", "ABORT:13", false},
	{"a parameter of length 0", func(*chunk.Init) {}, []byte{0x80, 1, 0, 0}, "ABORT:13", "ABORT:13", false},
	{"a parameter of length 3", func(*chunk.Init) {}, []byte{0x80, 1, 0, 3}, "ABORT:13", "ABORT:13", false},
	{"a parameter longer than the chunk", func(*chunk.Init) {}, []byte{0x80, 1, 0, 9, 0, 0, 0, 0}, "ABORT:13", "ABORT:13", false},
	{"an IPv6 address of 4 octets", func(*chunk.Init) {}, []byte{0, 6, 0, 8, 1, 2, 3, 4}, "ABORT:13", "ABORT:13", false},
	{"half a list of address types", func(*chunk.Init) {}, []byte{0, 12, 0, 5, 1}, "ABORT:13", "ABORT:13", false},
}

func TestBadInits(t *testing.T) {
	for _, tt := range badSetups {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, quiet(), 1, 1)
			s.a = &Association{endpoint: s.e}
			s.raw(s.pair, 0, longer(s.edited(chunk.TypeInit, tt.change), tt.more...))
			for _, p := range s.packets {
				if h, _, _ := chunk.Open(p.Octets); h.Tag != scriptTag {
					t.Errorf("the ABORT has tag %#x", h.Tag)
				}
			}
			if s.e.Counters.BadInit != 1 || len(s.e.byTag) > 0 {
				t.Errorf("%+v", s.e.Counters)
			}
			if tt.init == "" {
				s.expect(tt.name)
			} else {
				s.expect(tt.name, tt.init)
			}
		})
	}
}

// TestLargeCookies has the cookie of a peer leave no room for what goes with it, or be larger than a packet: nothing is lost
// for its size (RFC 9260 sections 5.4, 6.9 and 6.10). An INIT ACK with our own is sent so, too.
func TestLargeCookies(t *testing.T) {
	for _, tt := range []struct {
		size     int
		sent     []string
		fragment bool
	}{
		{1100, []string{"COOKIE-ECHO HEARTBEAT"}, false},
		{1220 - 4, []string{"COOKIE-ECHO", "HEARTBEAT"}, false},
		{1300, []string{"COOKIE-ECHO", "HEARTBEAT"}, true},
	} {
		s := connecting(t, quiet(), 1, 1)
		s.take()
		ack := s.init
		ack.Cookie = make([]byte, tt.size)
		s.remote = scriptRemote[1:] // where the peer answers from, which the user has not named
		s.raw(Pair{s.local[0], scriptRemote[1]}, s.a.tag, ack.Append(nil, chunk.TypeInitAck))
		packets := s.packets
		if s.expect(fmt.Sprint(tt.size), tt.sent...); len(packets) > 0 && packets[0].Fragment != tt.fragment {
			t.Errorf("%d: fragmented %t", tt.size, packets[0].Fragment)
		}
	}
	for _, chunks := range []int{1, 250} { // that the peer wants authenticated: the cookie remembers which
		s := newScript(t, quiet(), 1, 1)
		for i := range maxAddresses {
			s.init.Addresses = append(s.init.Addresses, netip.MustParseAddr(fmt.Sprintf("2001:db8:7::%x", i+1)))
		}
		s.init.Random, s.init.Chunks, s.init.HMACs = make([]byte, chunk.RandomSize), make([]chunk.Type, chunks), []uint16{chunk.HMACSHA1}
		s.raw(s.pair, 0, longer(s.init.Append(nil, chunk.TypeInit), chunk.AppendParameter(nil, 0xc0ff, make([]byte, 480))...))
		if packets := s.take(); len(packets) != 1 || packets[0].Fragment != (chunks > 1) {
			t.Errorf("%d packets, the first of %d octets", len(packets), len(packets[0].Octets))
		}
	}
}

// TestBadInitsOfAssociation has the same ones leave an association as it is.
func TestBadInitsOfAssociation(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	for _, tt := range badSetups {
		s.raw(s.pair, 0, longer(s.edited(chunk.TypeInit, tt.change), tt.more...))
		s.peer(longer(s.edited(chunk.TypeInitAck, tt.change), tt.more...))
	}
	if s.a.state != established || s.a.peerTag != scriptTag {
		t.Errorf("state %d", s.a.state)
	}
}

func TestBadInitAcks(t *testing.T) {
	rows := append(slices.Clone(badSetups), struct {
		name      string
		change    func(*chunk.Init)
		more      []byte
		init, ack string
		stays     bool
	}{"no cookie", func(i *chunk.Init) { i.Cookie = nil }, nil, "", "ABORT:2", false})
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			s := connecting(t, quiet(), 1, 1)
			s.take()
			s.peer(longer(s.edited(chunk.TypeInitAck, tt.change), tt.more...))
			want := uint32(scriptTag)
			if tt.ack == "ABORT(T)" {
				want = s.a.tag // reflected
			}
			for _, p := range s.packets {
				if h, _, _ := chunk.Open(p.Octets); h.Tag != want {
					t.Errorf("the ABORT has tag %#x, want %#x", h.Tag, want)
				}
			}
			s.expect(tt.name, tt.ack)
			if stays := s.a.state == cookieWait; stays != tt.stays {
				t.Errorf("state %d", s.a.state)
			}
			if _, failed := s.saw(Failed); failed == tt.stays || len(s.e.byTag) > 0 != tt.stays {
				t.Errorf("the user is told that it failed: %t", failed)
			}
		})
	}
}

// TestSetupStandsAlone drops INIT and INIT ACK that come with other chunks, and cut short (RFC 9260 sections 5.1 and
// 6.10).
func TestSetupStandsAlone(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit), s.data(0, "x"))
	s.raw(s.pair, 0, s.data(0, "x"), s.init.Append(nil, chunk.TypeInit))
	s.raw(s.pair, 0, chunk.Append(nil, chunk.TypeInit, 0, make([]byte, 15)))
	if len(s.take()) > 0 || s.e.Counters.BadTag != 2 || s.e.Counters.BadInit != 1 {
		t.Errorf("%+v", s.e.Counters)
	}
	s = connecting(t, quiet(), 1, 1)
	s.take()
	s.peer(s.edited(chunk.TypeInitAck, func(*chunk.Init) {}), s.data(0, "x"))
	s.peer(plain(chunk.TypeCookieAck), s.edited(chunk.TypeInitAck, func(*chunk.Init) {}))
	s.peer(chunk.Append(nil, chunk.TypeInitAck, 0, make([]byte, 15)))
	s.expect("INIT ACK with others")
	if s.a.state != cookieWait {
		t.Errorf("state %d", s.a.state)
	}
	s.answerInit("c")
	s.expect("INIT ACK", "COOKIE-ECHO")
}

// TestStreamNumbers has each end use no more streams than the other takes (RFC 9260 sections 3.3.3 and 5.1.1).
func TestStreamNumbers(t *testing.T) {
	par := quiet()
	par.StreamsOut, par.StreamsIn = 20, 30
	s := newScript(t, par, 1, 1)
	s.init.Out, s.init.In = 40, 7
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	ack := s.initAck()
	if ack.Out != 7 || ack.In != 30 {
		t.Errorf("the INIT ACK has %d and %d streams", ack.Out, ack.In)
	}
	s.accept()
	if s.a.Streams() != 7 || s.a.inLimit != 30 {
		t.Errorf("%d out, %d in", s.a.Streams(), s.a.inLimit)
	}
	if err := s.a.Send(Message{Stream: 7, User: []byte("x")}, s.now, &s.out); err != ErrStream {
		t.Error(err)
	}
	s = newScript(t, par, 1, 1)
	s.init.Out, s.init.In = 3, 100
	s.accept()
	if s.a.Streams() != 20 || s.a.inLimit != 3 {
		t.Errorf("%d out, %d in", s.a.Streams(), s.a.inLimit)
	}
}

// TestAddressLists has peers list addresses (RFC 9260 section 5.1.2).
func TestAddressLists(t *testing.T) {
	many := make([]netip.Addr, 500)
	for i := range many {
		many[i] = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 9, 14: byte(i >> 8), 15: byte(i)})
	}
	for _, tt := range []struct {
		name  string
		list  []netip.Addr
		paths int // from one address of ours
		bad   uint64
	}{
		{"none", nil, 1, 0},
		{"the source", scriptRemote[:1], 1, 0},
		{"another, without the source", scriptRemote[1:], 2, 0},
		{"both", scriptRemote, 2, 0},
		{"twice the same", []netip.Addr{scriptRemote[1], scriptRemote[1]}, 2, 0},
		{"of another family", addresses("192.0.2.7"), 1, 0},
		{"of many hosts, of none, and of this one", addresses("ff02::1", "224.0.0.1", "255.255.255.255", "::", "0.0.0.0", "::1", "127.0.0.1", "fe80::7"), 1, 7},
		{"of ours", scriptLocal[:1], 1, 1},
		{"of IPv4 in the form of IPv6", addresses("::ffff:192.0.2.7"), 1, 1},
		{"hundreds", many, maxAddresses + 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, made := range []func() *script{func() *script {
				s := newScript(t, quiet(), 1, 1)
				s.init.Addresses = tt.list
				s.accept()
				return s
			}, func() *script {
				s := connecting(t, quiet(), 1, 1)
				s.init.Addresses = tt.list
				s.answerInit("c")
				s.peer(plain(chunk.TypeCookieAck))
				return s
			}} {
				s := made()
				if got := s.e.Counters.BadAddress; got != tt.bad {
					t.Errorf("%d addresses are counted, want %d", got, tt.bad)
				}
				if len(s.a.paths) != tt.paths {
					t.Errorf("%d paths, want %d", len(s.a.paths), tt.paths)
				}
				for _, p := range s.a.paths {
					if p.confirmed != (p.Remote == s.remote[0]) {
						t.Errorf("%v is confirmed: %t", p.Pair, p.confirmed)
					}
				}
			}
		})
	}
}

// TestAddressTypes lists no addresses of a family that the peer cannot use (RFC 9260 section 5.1.2).
func TestAddressTypes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		types []uint16
		want  int
	}{{"all", nil, 3}, {"IPv6", []uint16{chunk.AddressIPv6}, 2}, {"IPv4 and IPv6", []uint16{chunk.AddressIPv4, chunk.AddressIPv6}, 3},
		{"IPv4, but IPv6 is used", []uint16{chunk.AddressIPv4}, 3}} {
		s := newScript(t, quiet(), 2, 1)
		s.e.SetAddresses(append(addresses("192.0.2.1"), s.local...))
		s.init.AddressTypes = tt.types
		s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
		if ack := s.initAck(); len(ack.Addresses) != tt.want || ack.AddressTypes != nil {
			t.Errorf("%s: %v are listed", tt.name, ack.Addresses)
		}
	}
}

// TestSetupTimers follows T1-init and T1-cookie: RTO doubles, the addresses take turns, the chunks are the same, and
// after Max.Init.Retransmits the user is told (RFC 9260 sections 4, 5.1 and 5.1.4).
func TestSetupTimers(t *testing.T) {
	for _, state := range []string{"INIT", "COOKIE-ECHO"} {
		t.Run(state, func(t *testing.T) {
			par := quiet()
			par.MaxInitRetrans, par.AddressChanges = 4, false
			s := connecting(t, par, 1, 2)
			if state == "COOKIE-ECHO" {
				s.take()
				s.answerInit("cookie")
			}
			first := s.packets[0].Octets
			s.expect("the first", state)
			for _, step := range []struct {
				after time.Duration
				to    string
			}{{1, "to 1: "}, {1, ""}, {2, "to 1: "}, {2, ""}} {
				s.run(step.after*time.Second - time.Millisecond)
				s.expect("too early")
				s.run(time.Millisecond)
				if len(s.packets) != 1 || !bytes.Equal(s.packets[0].Octets, first) {
					t.Error("not the same chunk again")
				}
				s.expect("again", step.to+state)
			}
			s.run(time.Minute)
			s.expect("after the last")
			if e, failed := s.saw(Failed); !failed || e.Reason != ReasonNoAnswer || len(s.e.byTag)+len(s.e.byPeer) > 0 {
				t.Errorf("%v: %+v", failed, e)
			}
		})
	}
}

// TestSetupRace has the INIT go to another address as well before T1-init, which counts for nothing.
func TestSetupRace(t *testing.T) {
	par := quiet()
	par.SetupRace = true
	s := connecting(t, par, 1, 2)
	s.expect("the first", "INIT")
	s.run(raceDelay - time.Millisecond)
	s.expect("too early for the other address")
	s.run(time.Millisecond)
	s.expect("to the other address as well", "to 1: INIT")
	s.run(par.RTOInitial - time.Millisecond)
	s.expect("too early for T1-init")
	s.run(time.Millisecond)
	s.expect("T1-init", "INIT")
	if s.a.tries != 1 {
		t.Errorf("%d tries", s.a.tries)
	}
}

// TestDeadAddress dials a peer of which the first address does not answer: the other is not kept waiting for T1-init, from
// whatever address of ours.
func TestDeadAddress(t *testing.T) {
	w := newWorld(t, dual(), Defaults())
	dead := w.hosts[1].end.config.Addresses[0]
	w.lost = func(_ int, p Packet) bool { return p.Remote == dead }
	h := w.hosts[0]
	a, err := h.end.Connect(w.hosts[1].end.config.Addresses, 5000, 0, h.end.config.Parameters, w.now, &h.out)
	if err != nil {
		t.Fatal(err)
	}
	h.flush()
	w.run(3 * raceDelay)
	if a.state != established {
		t.Errorf("state %d", a.state)
	}
}

// TestNothingIsKeptOfInits has INITs come that no cookie follows: nothing is kept of them (RFC 9260 section 5.1, B).
func TestNothingIsKeptOfInits(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	flood := func() {
		for i := range 5000 {
			s.init.Tag, s.init.TSN = uint32(i+1), uint32(i)
			s.remote[0] = scriptRemote[0]
			from := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 9, 12: byte(i >> 8), 13: byte(i)})
			s.raw(Pair{s.local[0], from}, 0, s.init.Append(nil, chunk.TypeInit))
			s.take()
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	flood()
	before := heap()
	flood()
	if grown := heap() - before; grown > 64<<10 || len(s.e.byTag)+len(s.e.byPeer) > 0 || !s.e.Next().IsZero() {
		t.Errorf("%d octets more after 5000 INITs, %d associations", grown, len(s.e.byTag))
	}
}

// TestNoRoom refuses associations beyond those that may be, and all where no one listens, when the INIT comes and when
// the cookie does (RFC 9260 section 5.1).
func TestNoRoom(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	ack := s.initAck()
	s.a = &Association{endpoint: s.e}
	s.e.config.MaxAssociations = 0
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	s.expect("INIT", "ABORT:4")
	s.raw(s.pair, ack.Tag, chunk.Append(nil, chunk.TypeCookieEcho, 0, ack.Cookie))
	s.expect("COOKIE ECHO", "ABORT:4")
	s.e.config.Listen = false
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	s.expect("INIT where no one listens", "ABORT")
	if s.e.Counters.Refused != 3 || len(s.e.byTag) > 0 {
		t.Errorf("%+v", s.e.Counters)
	}
}

// TestCookieAckComesFirst has data come with the cookie: it is acknowledged at once, behind the COOKIE ACK (RFC 9260
// section 5.1.5).
func TestCookieAckComesFirst(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.raw(s.pair, 0, s.init.Append(nil, chunk.TypeInit))
	ack := s.initAck()
	s.raw(s.pair, ack.Tag, chunk.Append(nil, chunk.TypeCookieEcho, 0, ack.Cookie), s.data(0, "one"), s.data(1, "two"))
	s.expect("cookie and data", "COOKIE-ACK SACK+1")
	if got := s.received(); got != "one two" {
		t.Errorf("received is %q", got)
	}
}

// TestNoRandomTagIsZero draws tags until none is 0 and none is in use (RFC 9260 section 5.3.1).
func TestNoRandomTagIsZero(t *testing.T) {
	s := newScript(t, quiet(), 1, 1)
	s.e.byTag[5] = &Association{}
	drawn := []byte{0, 5, 6}
	s.e.config.Random = func(b []byte) {
		clear(b)
		b[len(b)-1], drawn = drawn[0], drawn[1:]
	}
	if tag := s.e.newTag(); tag != 6 {
		t.Errorf("the tag is %d", tag)
	}
}

// TestLinkLocalSetup sets up between addresses of a link.
func TestLinkLocalSetup(t *testing.T) {
	w := newWorld(t, [2][]netip.Addr{addresses("fe80::a%eth0"), addresses("fe80::b%eth0")}, Defaults())
	w.connect(w.hosts[1].end.config.Addresses...)
	w.hosts[1].say(0, []byte("x"), false)
	w.run(time.Second)
	w.expect(0, []string{"0:x"})
}
