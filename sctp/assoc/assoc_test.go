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
