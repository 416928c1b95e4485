// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

// TestNoStreamReset has a peer ask for what nobody has offered: its streams stay as they are (RFC 8260 section 2.3.2,
// RFC 6525).
func TestNoStreamReset(t *testing.T) {
	const reconfig chunk.Type = 130
	par := quiet()
	par.Interleaving = true
	offer := par.offer(nil)
	if slices.Contains(offer.Extensions, reconfig) {
		t.Error("a reset of streams is offered")
	}
	s := newScript(t, par, 1, 1)
	s.init.Extensions = []chunk.Type{chunk.TypeIData}
	s.accept()
	data := func(n, message int, user string) []byte {
		return (&chunk.Data{TSN: s.init.TSN + uint32(n), Message: uint32(message), First: true, Last: true, User: []byte(user)}).Append(nil, true)
	}
	s.peer(data(0, 0, "a"))
	outgoing := []byte{0, 13, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0} // an Outgoing SSN Reset Request for all streams
	s.peer(chunk.Append(nil, reconfig, 0, outgoing))
	s.peer(data(1, 0, "counted anew"))
	s.peer(data(2, 1, "b"))
	if got := s.received(); got != "a b" {
		t.Errorf("received is %q", got)
	}
}

// TestInterleavingIsAgreedUpon uses I-DATA if both ends list it (RFC 8260 section 2.2.1), and I-FORWARD-TSN if both list
// that (section 2.3.1).
func TestInterleavingIsAgreedUpon(t *testing.T) {
	for _, tt := range []struct {
		ours                  bool
		peers                 []chunk.Type
		forward               bool
		interleaved, forwards bool
	}{
		{true, []chunk.Type{chunk.TypeIData, chunk.TypeIForwardTSN}, true, true, true},
		{true, []chunk.Type{chunk.TypeIData}, true, true, false},
		{true, []chunk.Type{chunk.TypeIData}, false, true, false},
		{true, nil, true, false, true},
		{false, []chunk.Type{chunk.TypeIData, chunk.TypeIForwardTSN}, true, false, true},
	} {
		par := quiet()
		par.Interleaving = tt.ours
		s := newScript(t, par, 1, 1)
		s.init.Extensions, s.init.ForwardTSN = tt.peers, tt.forward
		s.accept()
		if status := s.a.Status(); status.Interleaving != tt.interleaved || status.PartialReliability != tt.forwards {
			t.Errorf("%v: interleaved %t, forwards %t", tt, status.Interleaving, status.PartialReliability)
		}
	}
}

// TestInterleavedNumbers numbers messages by stream, ordered ones and others apart, and fragments from 0 (RFC 8260
// section 2.1).
func TestInterleavedNumbers(t *testing.T) {
	s := forwarding(t, true)
	for _, m := range []Message{
		{Stream: 1, User: make([]byte, 2500)}, {Stream: 2, User: make([]byte, 2500)}, {Stream: 1, User: make([]byte, 10)},
		{Stream: 1, Unordered: true, User: make([]byte, 10)}, {Stream: 2, Unordered: true, User: make([]byte, 1300)}, {Stream: 1, Unordered: true, User: make([]byte, 10)},
	} {
		m.Protocol = 77
		s.a.peerWindow = 0 // all wait
		s.send(m)
	}
	s.a.ask = true
	s.peer(s.sack(0, large))
	next := map[string]uint32{}
	fragment := map[string]uint32{}
	var order []string
	for _, p := range s.take() {
		_, rest, err := chunk.Open(p.Octets)
		for len(rest) > 0 && err == nil {
			var c chunk.Chunk
			if c, rest, err = chunk.Next(rest); c.Type != chunk.TypeIData {
				continue
			}
			d, err := chunk.ParseData(c)
			if err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprint(d.Stream, d.Unordered)
			order = append(order, fmt.Sprint(d.Stream))
			if d.First {
				fragment[key] = 0
				if d.Message != next[key] || d.Protocol != 77 {
					t.Errorf("%s: message %d, want %d", key, d.Message, next[key])
				}
				next[key]++
			} else if fragment[key]++; d.Fragment != fragment[key] || d.Message != next[key]-1 {
				t.Errorf("%s: fragment %d of message %d", key, d.Fragment, d.Message)
			}
		}
	}
	if got := strings.Join(order, ""); len(got) != 11 || !strings.HasPrefix(got, "1212") {
		t.Errorf("the streams take turns as %s", got)
	}
}

// TestReassembly puts messages together whatever comes first, at the wrap of all numbers (RFC 8260 section 2.2, RFC
// 9260 section 6.9).
func TestReassembly(t *testing.T) {
	type fragment struct {
		stream    uint16
		message   uint32
		unordered bool
		number    uint32
		first     bool
		last      bool
		user      string
	}
	fragments := []fragment{
		{0, 0xfffffffe, false, 0, true, false, "a0"}, {1, 0xffffffff, false, 0, true, false, "b0"}, {0, 0xfffffffe, false, 1, false, true, "a1"},
		{0, 0xffffffff, false, 0, true, true, "c0"}, {1, 0xffffffff, false, 1, false, false, "b1"}, {0, 0, false, 0, true, false, "d0"},
		{1, 0xffffffff, false, 2, false, true, "b2"}, {0, 0, false, 1, false, true, "d1"}, {1, 0, false, 0, true, true, "e0"},
		{0, 0xffffffff, true, 0, true, false, "u0"}, {0, 0, true, 0, true, false, "v0"}, {0, 0xffffffff, true, 1, false, true, "u1"}, {0, 0, true, 1, false, true, "v1"},
	}
	w := newWorld(t, dual(), Defaults())
	for round := range 300 {
		s := forwarding(t, true)
		s.peer((&chunk.Data{TSN: scriptTSN, Stream: 5, First: true, Last: true, User: []byte("z")}).Append(nil, true))
		s.a.in[0].next, s.a.in[1].next, s.a.in[0].oldest = 0xfffffffe, 0xffffffff, 0xfffffff0
		for _, i := range w.dice.Perm(len(fragments)) {
			f := fragments[i]
			s.peer((&chunk.Data{TSN: scriptTSN + 1 + uint32(i), Stream: f.stream, Message: f.message, Unordered: f.unordered, Fragment: f.number,
				First: f.first, Last: f.last, User: []byte(f.user)}).Append(nil, true))
		}
		order := map[uint16]string{}
		loose := map[string]bool{}
		part := ""
		for _, e := range s.events {
			switch {
			case e.Kind != Received:
			case e.Data.Unordered:
				part += string(e.Data.User)
				if e.Data.Last {
					loose[part], part = true, ""
				}
			default:
				order[e.Data.Stream] += string(e.Data.User)
			}
		}
		if order[0] != "a0a1c0d0d1" || order[1] != "b0b1b2e0" || !loose["u0u1"] || !loose["v0v1"] || s.a.held != 0 {
			t.Fatalf("round %d: %v, %v, %d octets are held", round, order, loose, s.a.held)
		}
	}
}

// TestReassemblyOfData does so of DATA, whose fragments count by TSN, and SSNs wrap at 16 bits.
func TestReassemblyOfData(t *testing.T) {
	fragments := []chunk.Data{
		{Message: 0xffff, First: true, User: []byte("a0")}, {Message: 0xffff, User: []byte("a1")}, {Message: 0xffff, Last: true, User: []byte("a2")},
		{Message: 0, First: true, Last: true, User: []byte("b0")}, {Unordered: true, Message: 9, First: true, User: []byte("u0")},
		{Unordered: true, Message: 9, Last: true, User: []byte("u1")}, {Unordered: true, First: true, User: []byte("v0")}, {Unordered: true, Last: true, User: []byte("v1")},
		{Message: 1, First: true, User: []byte("c0")}, {Message: 1, Last: true, User: []byte("c1")},
	}
	w := newWorld(t, dual(), Defaults())
	for round := range 300 {
		s := accepted(t, quiet(), 1, 1)
		s.peer((&chunk.Data{TSN: scriptTSN, Stream: 5, First: true, Last: true, User: []byte("z")}).Append(nil, false))
		s.a.in[0].next = 0xffff
		s.events = nil
		for _, i := range w.dice.Perm(len(fragments)) {
			d := fragments[i]
			d.TSN = scriptTSN + 1 + uint32(i)
			s.peer(d.Append(nil, false))
		}
		var ordered, loose string
		for _, e := range s.events {
			if e.Kind == Received && e.Data.Unordered {
				loose += string(e.Data.User)
			} else if e.Kind == Received {
				ordered += string(e.Data.User)
			}
		}
		if ordered != "a0a1a2b0c0c1" || loose != "u0u1v0v1" && loose != "v0v1u0u1" || s.a.held != 0 {
			t.Fatalf("round %d: %q, %q, %d octets are held", round, ordered, loose, s.a.held)
		}
	}
}

// TestNumbersWrap sends so many messages that the numbers of DATA wrap: 65,535 is followed by 0 (RFC 9260 section 6.5),
// and unordered ones do not count.
func TestNumbersWrap(t *testing.T) {
	s := accepted(t, quiet(), 1, 1)
	s.say(1)
	s.a.outs[0].next = 0xffff
	s.say(1)
	s.send(Message{Unordered: true, User: []byte("x")})
	s.say(1)
	var got []uint32
	for _, p := range s.take() {
		_, rest, _ := chunk.Open(p.Octets)
		c, _, _ := chunk.Next(rest)
		if d, _ := chunk.ParseData(c); !d.Unordered {
			got = append(got, d.Message)
		}
	}
	if fmt.Sprint(got) != "[0 65535 0]" {
		t.Errorf("numbered %v", got)
	}
}

// TestTSNWraps sends across the end of all TSNs, with losses and gaps.
func TestTSNWraps(t *testing.T) {
	w := pair(t, Defaults())
	a, b := w.hosts[0].a, w.hosts[1].a
	a.setFirst(0xfffffff0)
	b.expect(0xfffffff0, 10)
	w.lost = func(int, Packet) bool { return w.dice.IntN(10) == 0 }
	var want []string
	for i := range 200 {
		octets := fmt.Appendf(nil, "%d %0*d", i, 1+i*11%3000, i)
		want = append(want, fmt.Sprintf("%d:%s", i%3, octets))
		w.hosts[0].say(uint16(i%3), octets, false)
	}
	w.run(60e9)
	w.expect(1, want)
	if before(a.nextTSN, 0x10) || !before(a.nextTSN, 0x1000) {
		t.Errorf("the TSN is %#x", a.nextTSN)
	}
}

// TestKindsOfData ends an association that gets DATA where I-DATA was agreed upon, and the other way round (RFC 8260
// section 2.2.3).
func TestKindsOfData(t *testing.T) {
	for _, interleaved := range []bool{false, true} {
		s := forwarding(t, interleaved)
		s.peer((&chunk.Data{TSN: scriptTSN, First: true, Last: true, User: []byte("x")}).Append(nil, !interleaved))
		s.expect(fmt.Sprint(interleaved), "ABORT:13")
	}
}
