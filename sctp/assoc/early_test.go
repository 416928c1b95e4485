// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// cutFirst is a network that loses all of the first of two ways.
func cutFirst(_ int, p Packet) bool { return path1(p.Pair) || path1(Pair{p.Remote, p.Local}) }

// delays has the first way take half of one round trip time, and the second half of another.
func delays(first, second time.Duration) func(Pair) time.Duration {
	return func(p Pair) time.Duration {
		if path1(p) || path1(Pair{p.Remote, p.Local}) {
			return first / 2
		}
		return second / 2
	}
}

// talkFor sends a message every so often for a while.
func (h *host) talkFor(d, every time.Duration, sent *int) {
	for end := h.w.now.Add(d); h.w.now.Before(end); {
		octets := fmt.Appendf(nil, "%d %01000d", *sent, *sent)
		if h.a.Send(Message{Stream: uint16(*sent % 4), User: octets}, h.w.now, &h.out) == nil {
			*sent++
		}
		h.flush()
		h.w.run(every)
	}
}

// TestSilentCut loses the first way without a word: with the early probe data goes on within two round trips of the
// other way, while RTO.Min is a second; strictly after RFC 7829 within RTO.Min.
func TestSilentCut(t *testing.T) {
	for _, first := range []time.Duration{1, 20, 200} {
		for _, second := range []time.Duration{1, 50, 208} {
			for _, early := range []bool{false, true} {
				for _, every := range []time.Duration{10, 40} {
					t.Run(fmt.Sprint(int(first), int(second), early, int(every)), func(t *testing.T) {
						testSilentCut(t, first*time.Millisecond, second*time.Millisecond, early, every*time.Millisecond)
					})
				}
			}
		}
	}
}

func testSilentCut(t *testing.T, first, second time.Duration, early bool, every time.Duration) {
	par := Defaults()
	par.EarlyProbe = early
	w := newWorld(t, dual(), par)
	w.delay = delays(first, second)
	w.connect(w.hosts[1].end.config.Addresses...)
	w.run(5 * time.Second)
	h, peer, sent := w.hosts[0], w.hosts[1], 0
	h.talkFor(2*time.Second, every, &sent)
	peer.gap = 0
	w.lost = cutFirst
	h.talkFor(3*time.Second, every, &sent)
	w.run(10 * time.Second)
	if len(peer.got) != sent {
		t.Fatalf("%d messages of %d have come", len(peer.got), sent)
	}
	most := par.RTOMin + first/2 + second + 100*time.Millisecond
	if early {
		// Two round trips of the way that fails and their variance, then the other way to the peer; or, from what has come
		// by that to what the answer brings, a round trip of it.
		doubt := max(2*first, minSuspicion) + 4*granularity
		most = max(doubt+first/2+second/2, second) + 50*time.Millisecond
		if first/2 > copyPackets*every { // more than is copied had come, and its acknowledgement was lost
			most = doubt + second*3/2 + 50*time.Millisecond
		}
		if every > minSuspicion { // one packet at a time is out: its acknowledgement may wait
			most += par.SACKDelay
		}
	}
	if peer.gap > most {
		t.Errorf("nothing came for %v, at most %v is due", peer.gap, most)
	}
	if early && (h.end.Counters.Timeouts > 0 || h.end.Counters.EarlyCopies == 0) {
		t.Errorf("%d timeouts, %d copies", h.end.Counters.Timeouts, h.end.Counters.EarlyCopies)
	}
	if !early && h.end.Counters.EarlyCopies+h.end.Counters.EarlyMoves > 0 {
		t.Error("strict mode has early probes")
	}
	w.lost = nil
	h.talkFor(5*time.Second, every, &sent)
	if h.a.current != h.a.primary || !h.a.primary.usable() {
		t.Errorf("the first way is not taken again: %+v", h.a.Status())
	}
	w.run(time.Minute)
	if len(peer.got) != sent || h.a.doubted != 0 {
		t.Errorf("%d messages of %d have come, %d doubts are left", len(peer.got), sent, h.a.doubted)
	}
}

// TestDelaySpike has the first way stand still for a while: the copy is answered sooner, and when the first way goes on
// data returns to it. Errors and states are untouched.
func TestDelaySpike(t *testing.T) {
	w := pair(t, Defaults())
	w.run(5 * time.Second)
	h, sent := w.hosts[0], 0
	h.talkFor(time.Second, 10*time.Millisecond, &sent)
	until := w.now.Add(300 * time.Millisecond)
	w.delay = func(p Pair) time.Duration {
		if d := until.Sub(w.now); d > 0 && (path1(p) || path1(Pair{p.Remote, p.Local})) {
			return d + 5*time.Millisecond
		}
		return 5 * time.Millisecond
	}
	h.talkFor(3*time.Second, 10*time.Millisecond, &sent)
	w.run(time.Second)
	if h.saw(PathFailing) || h.a.primary.errors != 0 || h.a.current != h.a.primary || h.a.doubted != 0 {
		t.Errorf("%+v", h.a.Status())
	}
	if len(w.hosts[1].got) != sent {
		t.Errorf("%d messages of %d have come", len(w.hosts[1].got), sent)
	}
}

// TestAcknowledgementsLost breaks the first way in one direction: what comes back is lost.
func TestAcknowledgementsLost(t *testing.T) {
	w := pair(t, Defaults())
	w.run(5 * time.Second)
	h, sent := w.hosts[0], 0
	h.talkFor(time.Second, 10*time.Millisecond, &sent)
	w.hosts[1].gap = 0
	w.lost = func(from int, p Packet) bool { return from == 1 && cutFirst(from, p) }
	h.talkFor(10*time.Second, 10*time.Millisecond, &sent)
	w.run(10 * time.Second)
	if len(w.hosts[1].got) != sent {
		t.Errorf("%d messages of %d have come", len(w.hosts[1].got), sent)
	}
	if w.hosts[1].gap > 500*time.Millisecond {
		t.Errorf("nothing came for %v", w.hosts[1].gap)
	}
}

// TestCutsInARow cuts the two ways of a host to a host with one address in turn, both of which send: the association
// survives a hundred cuts, and no message waits longer than it takes to doubt a way and to ask the other.
func TestCutsInARow(t *testing.T) {
	at := dual()
	at[1] = addresses("2001:db8:3::b")
	w := newWorld(t, at, Defaults())
	ways := [2]func(p Packet) bool{
		func(p Packet) bool { return p.Local == at[0][0] || p.Remote == at[0][0] },
		func(p Packet) bool { return p.Local == at[0][1] || p.Remote == at[0][1] },
	}
	w.delay = func(p Pair) time.Duration {
		if p.Local == at[0][0] || p.Remote == at[0][0] {
			return 500 * time.Microsecond
		}
		return 104 * time.Millisecond
	}
	w.connect(at[1]...)
	sent := 0
	talk := func(d time.Duration) {
		for end := w.now.Add(d); w.now.Before(end); w.run(5 * time.Millisecond) {
			for _, h := range w.hosts {
				if err := h.a.Send(Message{User: fmt.Appendf(nil, "%0100d", sent)}, w.now, &h.out); err != nil {
					t.Fatal(err)
				}
				h.flush()
			}
			sent++
		}
	}
	talk(3 * time.Second)
	for i := range 100 {
		for _, h := range w.hosts {
			h.gap = 0
		}
		w.lost = func(_ int, p Packet) bool { return ways[i%2](p) }
		talk(time.Second)
		w.lost = nil
		talk(2 * time.Second)
		for _, h := range w.hosts {
			if h.gap > 2*208*time.Millisecond+50*time.Millisecond {
				t.Errorf("cut %d: nothing comes to host %d for %v", i, h.index, h.gap)
			}
		}
	}
	w.run(10 * time.Second)
	for _, h := range w.hosts {
		if len(h.got) != sent || h.a.state != established {
			t.Errorf("%d messages of %d have come to host %d", len(h.got), sent, h.index)
		}
	}
}

// TestLeftBehind cuts a way right after data has returned from it to the primary one: what was on its way there is
// missing at once, and comes by the primary one.
func TestLeftBehind(t *testing.T) {
	w := newWorld(t, dual(), Defaults())
	w.delay = delays(time.Millisecond, 200*time.Millisecond)
	w.connect(w.hosts[1].end.config.Addresses...)
	w.run(5 * time.Second)
	h, peer, sent := w.hosts[0], w.hosts[1], 0
	h.talkFor(time.Second, 10*time.Millisecond, &sent)
	w.lost = cutFirst
	h.talkFor(time.Second, 10*time.Millisecond, &sent)
	w.lost = nil
	for h.a.current != h.a.primary {
		h.talkFor(time.Millisecond, time.Millisecond, &sent)
	}
	peer.gap = 0
	w.lost = func(from int, p Packet) bool { return !cutFirst(from, p) }
	h.talkFor(2*time.Second, 10*time.Millisecond, &sent)
	if peer.gap > 150*time.Millisecond {
		t.Errorf("nothing came for %v", peer.gap)
	}
	w.lost = nil
	w.run(10 * time.Second)
	if len(peer.got) != sent {
		t.Errorf("%d messages of %d have come", len(peer.got), sent)
	}
}

// TestLeaveAfterReturn has a host leave a way that works, as soon as it has returned from the other: what was out there went by
// the first, and the wait for its answer must not make the next data there late.
func TestLeaveAfterReturn(t *testing.T) {
	for pause := 50 * time.Millisecond; pause < time.Second; pause += 50 * time.Millisecond {
		w := newWorld(t, [2][]netip.Addr{addresses("2001:db8:1::a", "2001:db8:2::a"), addresses("2001:db8:3::b")}, Defaults())
		w.delay = delays(2*time.Millisecond, 208*time.Millisecond)
		w.connect(w.hosts[1].end.config.Addresses...)
		h := w.hosts[0]
		wlan := h.end.config.Addresses[:1]
		leave := func() {
			h.a.LinkDown(wlan, w.now, &h.out)
			h.flush()
		}
		w.talk(3*time.Second, 0, 1)
		w.lost = cutFirst
		leave()
		w.talk(2*time.Second, 0, 1)
		w.lost = nil
		h.a.LinkUp(wlan[0], w.now, &h.out)
		h.flush()
		w.talk(pause, 0, 1)
		h.gap = 0
		leave()
		w.talk(time.Second, 0, 1)
		if want := 120 * time.Millisecond; h.gap > want { // a trip, and the time between two messages
			t.Errorf("left %v after the return: nothing came for %v", pause, h.gap)
		}
	}
}
