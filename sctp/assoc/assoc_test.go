// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestSetUpAndTalk(t *testing.T) {
	w := pair(t, Defaults())
	w.run(10 * time.Second)
	for _, h := range w.hosts {
		if len(h.a.paths) != 4 {
			t.Errorf("%d paths of two addresses to two", len(h.a.paths))
		}
		for _, p := range h.a.paths {
			if !p.usable() {
				t.Errorf("host %d: %v is %v, confirmed %t", h.index, p.Pair, p.state, p.confirmed)
			}
		}
	}
	var want []string
	for i := range 1000 {
		octets := fmt.Appendf(nil, "%d %0*d", i, 1+i*7%5000, i)
		want = append(want, fmt.Sprintf("%d:%s", i%4, octets))
		w.hosts[0].say(uint16(i%4), octets, false)
	}
	w.run(10 * time.Second)
	w.expect(1, want)
	w.hosts[0].a.Shutdown(w.now, &w.hosts[0].out)
	w.hosts[0].flush()
	w.run(time.Second)
	if !w.hosts[0].saw(Closed) || !w.hosts[1].saw(PeerShutdown) || !w.hosts[1].saw(Closed) {
		t.Errorf("not shut down: %v, %v", w.hosts[0].events, w.hosts[1].events)
	}
	for i, h := range w.hosts {
		if len(h.end.byTag)+len(h.end.byPeer) != 0 || !h.end.Next().IsZero() {
			t.Errorf("host %d keeps something of an association that has ended", i)
		}
	}
}

// expect compares what has come with what was sent, stream by stream.
func (w *world) expect(host int, want []string) {
	w.t.Helper()
	got := w.hosts[host].got
	if len(got) != len(want) {
		w.t.Fatalf("%d messages of %d have come", len(got), len(want))
	}
	for stream := range 10 {
		of := func(list []string) (some []string) {
			for _, one := range list {
				if one[0] == byte('0'+stream) {
					some = append(some, one)
				}
			}
			return some
		}
		if !slices.Equal(of(got), of(want)) {
			w.t.Fatalf("stream %d: the messages are not those that were sent, in their order", stream)
		}
	}
}

func TestLoss(t *testing.T) {
	for _, percent := range []int{1, 5, 20} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			par := Defaults()
			par.AssociationMaxRetrans, par.PathMaxRetrans = 30, 10
			w := pair(t, par)
			w.lost = func(int, Packet) bool { return w.dice.IntN(100) < percent }
			var want []string
			for i := range 500 {
				octets := fmt.Appendf(nil, "%d %0*d", i, 1+i*11%6000, i)
				want = append(want, fmt.Sprintf("%d:%s", i%3, octets))
				w.hosts[0].say(uint16(i%3), octets, false)
			}
			w.run(10 * time.Minute)
			w.expect(1, want)
		})
	}
}

// TestClocks holds the three clocks of a silent cut against the law of the RFCs: the first data on the other path
// after one timeout, new data after one with RFC 7829 and when the path is down without, the path down after one
// timeout more than Path.Max.Retrans.
func TestClocks(t *testing.T) {
	for _, rto := range []time.Duration{200, 500, 1000, 2000, 4000} {
		for _, most := range []int{0, 1, 2, 5} {
			for _, failing := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d ms, %d, %t", rto, most, failing), func(t *testing.T) {
					testClocks(t, rto*time.Millisecond, most, failing)
				})
			}
		}
	}
}

func testClocks(t *testing.T, rto time.Duration, most int, failing bool) {
	par := Defaults()
	par.RTOInitial, par.RTOMin, par.RTOMax, par.PathMaxRetrans, par.AssociationMaxRetrans = rto, rto, rto, most, 100
	par.HeartbeatInterval, par.PotentiallyFailedMaxRetrans, par.EarlyProbe = time.Hour, most, false
	if failing {
		par.PotentiallyFailedMaxRetrans = 0
	}
	w := pair(t, par)
	w.run(4*rto + time.Second)
	h, sent := w.hosts[0], 0
	// The peer acknowledges each packet at once, so that all data but the last is acknowledged before the cut.
	w.hosts[1].a.par.SACKDelay = 0
	talk := func() {
		octets := fmt.Appendf(nil, "%d %0500d", sent, sent)
		if h.a.Send(Message{Stream: uint16(sent % 4), User: octets}, w.now, &h.out) == nil {
			sent++
		}
		h.flush()
		w.run(10 * time.Millisecond)
	}
	for range 100 {
		talk()
	}
	cut := w.now
	w.lost = func(_ int, p Packet) bool { return path1(p.Pair) || path1(Pair{p.Remote, p.Local}) }
	var first, fresh, down time.Duration
	highest := h.a.nextTSN
	w.trace = func(from int, p Packet) {
		tsn, data := firstTSN(p)
		if from != 0 || path1(p.Pair) || !data {
			return
		}
		if first == 0 {
			first = w.now.Sub(cut)
		}
		if fresh == 0 && !before(tsn, highest) && tsn == h.a.nextTSN-1 {
			fresh = w.now.Sub(cut)
		}
	}
	for w.now.Sub(cut) < time.Duration(most+3)*rto+time.Second {
		talk()
		if down == 0 && h.saw(PathInactive) {
			down = w.now.Sub(cut)
		}
	}
	near := func(what string, got, want time.Duration) {
		if got < want || got > want+want/50+30*time.Millisecond {
			t.Errorf("%s after %v, the law says %v", what, got, want)
		}
	}
	near("first data", first, rto)
	near("path down", down, time.Duration(most+1)*rto)
	if failing {
		near("new data", fresh, rto)
	}
	w.run(20 * rto)
	if len(w.hosts[1].got) != sent {
		t.Errorf("%d messages of %d have come", len(w.hosts[1].got), sent)
	}
}
