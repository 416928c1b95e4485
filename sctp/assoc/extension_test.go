// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp/chunk"
)

func TestInterleaving(t *testing.T) {
	par := Defaults()
	par.Interleaving = true
	w := pair(t, par)
	big := bytes.Repeat([]byte("x"), 100_000)
	w.lost = func(int, Packet) bool { return w.dice.IntN(100) < 2 }
	var want []string
	for i := range 50 {
		w.hosts[0].say(0, big, i%2 == 0)
		w.hosts[0].say(1, fmt.Appendf(nil, "control %d", i), false)
		want = append(want, "0:"+string(big), fmt.Sprintf("1:control %d", i))
		if i == 0 {
			w.run(50 * time.Millisecond)
			if got := w.hosts[1].got; len(got) != 1 || got[0] != "1:control 0" {
				t.Errorf("the small message waits for the large one: %d have come", len(got))
			}
		}
	}
	w.run(time.Minute)
	w.expect(1, want)
}

// Messages that come beside each other fill the receive buffer before any of them is whole.
func TestInterleavingInASmallBuffer(t *testing.T) {
	par := Defaults()
	par.Interleaving, par.ReceiveBuffer = true, 100_000
	w := pair(t, par)
	big := bytes.Repeat([]byte("x"), 50_000)
	var want []string
	for i := range 40 {
		w.hosts[0].say(uint16(i%4), big, false)
		want = append(want, fmt.Sprintf("%d:%s", i%4, big))
	}
	w.run(time.Minute)
	w.expect(1, want)
}

func TestMixedDataAborts(t *testing.T) {
	par := Defaults()
	par.Interleaving = true
	w := pair(t, par)
	w.hosts[0].a.interleaved = false
	w.hosts[0].say(0, []byte("x"), false)
	w.run(time.Second)
	if !w.hosts[1].saw(Failed) || !w.hosts[0].saw(Failed) {
		t.Error("DATA where I-DATA was agreed upon is borne")
	}
}

func TestPartialReliability(t *testing.T) {
	for _, interleaved := range []bool{false, true} {
		for _, unordered := range []bool{false, true} {
			t.Run(fmt.Sprint(interleaved, unordered), func(t *testing.T) {
				testPartialReliability(t, interleaved, unordered)
			})
		}
	}
}

// testPartialReliability loses a fifth of all packets of messages that are sent once, between others that must
// arrive.
func testPartialReliability(t *testing.T, interleaved, unordered bool) {
	par := Defaults()
	par.Interleaving, par.PathMaxRetrans, par.AssociationMaxRetrans = interleaved, 20, 100
	w := pair(t, par)
	h := w.hosts[0]
	w.lost = func(int, Packet) bool { return w.dice.IntN(5) == 0 }
	var must []string
	for i := range 300 {
		m := Message{Stream: uint16(i % 3), Unordered: unordered, User: fmt.Appendf(nil, "%d %0*d", i, 1+i*17%4000, i)}
		if i%10 != 0 {
			m.Tries = 1
		} else {
			must = append(must, fmt.Sprintf("%d:%s", m.Stream, m.User))
		}
		for h.a.Send(m, w.now, &h.out) == ErrBlocked {
			w.run(10 * time.Millisecond)
		}
		h.flush()
		w.run(5 * time.Millisecond)
	}
	w.run(10 * time.Minute)
	got := w.hosts[1].got
	for _, m := range must {
		if !slices.Contains(got, m) {
			t.Fatalf("a message that must arrive has not: %.20q", m)
		}
	}
	failed := 0
	for h.saw(SendFailed) {
		failed++
	}
	if failed == 0 || len(got)+failed < 300 || len(got) > 300 {
		t.Errorf("%d messages have come, %d were given up, of 300", len(got), failed)
	}
	receiver := w.hosts[1].a
	if h.a.sent.length != 0 || h.a.queued != 0 || receiver.held != 0 || receiver.unread != 0 {
		t.Errorf("left over: %d chunks, %d octets at the sender; %d (%d unread) at the receiver",
			h.a.sent.length, h.a.queued, receiver.held, receiver.unread)
	}
	for _, p := range h.a.paths {
		if p.flight != 0 {
			t.Errorf("%d octets are in flight for ever", p.flight)
		}
	}
}

func TestLifetimeInTheQueue(t *testing.T) {
	w := pair(t, Defaults())
	h := w.hosts[0]
	h.a.peerWindow = 0
	if err := h.a.Send(Message{User: []byte("late"), Lifetime: 100 * time.Millisecond}, w.now, &h.out); err != nil {
		t.Fatal(err)
	}
	w.run(5 * time.Second)
	h.say(0, []byte("next"), false)
	w.run(5 * time.Second)
	if got := w.hosts[1].got; len(got) != 1 || got[0] != "0:next" || !h.saw(SendFailed) {
		t.Errorf("%q have come", got)
	}
}

// single is a world where the first host has one address and the second two, of which only the first is known.
func changing(t *testing.T) *world {
	at := dual()
	second := at[0][1]
	at[0] = at[0][:1]
	w := newWorld(t, at, Defaults())
	w.connect(at[1]...)
	w.hosts[0].end.SetAddresses(append(at[0], second))
	w.run(5 * time.Second)
	return w
}

func TestAddAndPreferAddress(t *testing.T) {
	w := changing(t)
	h, second := w.hosts[0], dual()[0][1]
	w.trace = func(from int, p Packet) {
		if has(p, chunk.TypeASCONF) && types(p)[0] != chunk.TypeAuth {
			t.Error("an ASCONF without an AUTH before it")
		}
		if from == 0 && p.Local == second && has(p, chunk.TypeData) && !h.saw(ChangeDone) {
			t.Error("data comes from an address that the peer does not have yet")
		}
	}
	if err := h.a.Change([]Change{{AddAddress, second}, {PreferAddress, second}}, w.now, &h.out); err != nil {
		t.Fatal(err)
	}
	h.flush()
	w.run(time.Second)
	w.trace = nil
	peer := w.hosts[1]
	if !peer.saw(AddressAdded) || !peer.saw(PathConfirmed) || peer.a.primary.Remote != second {
		t.Fatalf("the peer's primary path is %v: %v", peer.a.primary.Pair, peer.events)
	}
	peer.say(1, []byte("to the new one"), false)
	w.run(time.Second)
	w.expect(0, []string{"1:to the new one"})
	if err := h.a.Change([]Change{{DeleteAddress, dual()[0][0]}}, w.now, &h.out); err != nil {
		t.Fatal(err)
	}
	h.flush()
	w.run(time.Second)
	if !h.saw(ChangeDone) || !peer.saw(AddressRemoved) || len(peer.a.paths) != 2 || len(h.a.paths) != 2 {
		t.Errorf("%d and %d paths are left", len(h.a.paths), len(peer.a.paths))
	}
	h.say(2, []byte("from the new one"), false)
	w.run(time.Second)
	w.expect(1, []string{"2:from the new one"})
	if err := h.a.Change([]Change{{DeleteAddress, second}}, w.now, &h.out); err != ErrLast {
		t.Errorf("the last address may go: %v", err)
	}
}

// TestRenumber has the only address replaced while nothing passes by the old one any more.
func TestRenumber(t *testing.T) {
	w := changing(t)
	h, first, second := w.hosts[0], dual()[0][0], dual()[0][1]
	w.lost = func(_ int, p Packet) bool { return p.Local == first || p.Remote == first }
	h.say(0, []byte("on its way"), false)
	if err := h.a.Change([]Change{{AddAddress, second}, {PreferAddress, second}, {DeleteAddress, first}}, w.now, &h.out); err != nil {
		t.Fatal(err)
	}
	h.flush()
	w.run(3 * time.Second)
	w.expect(1, []string{"0:on its way"})
	if !h.saw(ChangeDone) || len(w.hosts[1].a.paths) != 2 {
		t.Errorf("%v, %d paths", h.events, len(w.hosts[1].a.paths))
	}
}

// An answer that refuses something has all of that in it (RFC 5061 section 4.3).
func TestRefusedChange(t *testing.T) {
	w := pair(t, Defaults())
	h := w.hosts[1]
	from := h.a.primary.Pair
	request := chunk.AppendRequest(nil, chunk.Request{Type: chunk.ParamDeleteIP, Correlation: 7, Address: from.Remote})
	answer, known, _, err := chunk.NextAnswer(h.a.grantAll(request, &arrival{Packet: Packet{Pair: from}}, &h.out))
	if err != nil || !known || !answer.Failed || answer.Correlation != 7 {
		t.Fatalf("answer %+v, %t, %v", answer, known, err)
	}
	cause, _, err := chunk.NextCause(answer.Causes)
	if err != nil || cause.Code != chunk.CauseDeleteSource || !bytes.Equal(cause.Value, request) {
		t.Errorf("cause %v %x, %v, want what is refused: %x", cause.Code, cause.Value, err, request)
	}
}

func TestForgedChange(t *testing.T) {
	w := changing(t)
	peer := w.hosts[1]
	asconf := chunk.ASCONF{Serial: peer.a.changes.peer + 1, Address: dual()[0][0], Requests: chunk.AppendRequest(nil, chunk.Request{
		Type: chunk.ParamAddIP, Address: addresses("2001:db8:66::1")[0],
	})}
	b := chunk.Begin(nil, chunk.Header{Source: 5000, Destination: 5000, Tag: peer.a.tag})
	for _, forged := range [][]byte{asconf.Append(bytes.Clone(b)), asconf.Append(func() []byte {
		with, _ := chunk.AppendAuth(bytes.Clone(b), 0, chunk.HMACSHA256, chunk.SizeSHA256)
		return with
	}())} {
		chunk.Seal(forged)
		peer.end.Handle(Packet{Pair: Pair{dual()[1][0], dual()[0][0]}, Octets: forged}, w.now, &peer.out)
		peer.flush()
	}
	w.run(time.Second)
	if peer.saw(AddressAdded) || peer.end.Counters.Unauthenticated != 1 || peer.end.Counters.BadAuth != 1 {
		t.Errorf("a stranger changes addresses: %+v", peer.end.Counters)
	}
}
