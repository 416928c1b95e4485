// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"testing"
	"time"
)

// TestLongOutage counts what an outage has lost, however long it was, and nothing where numbers leap without one.
func TestLongOutage(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ahead uint16 // of the last number
		after time.Duration
		want  int64
	}{
		{"59 s", 2950, 59 * time.Second, 2949},
		{"70 s", 3500, 70 * time.Second, 3499},
		{"ten minutes", 30000, 10 * time.Minute, 29999},
		{"numbers begin again", 3500, Frame, 0},
		{"numbers begin again after a pause", 30000, time.Minute, 0},
	} {
		w := newWorld(t, nil)
		w.agree(w.a, w.agreed(w.b, 0))
		send := func(number uint16) {
			w.inject(w.a, w.b.address[0].String(), forge(7, number, uint32(number)*Samples))
		}
		for i := range uint16(10) {
			send(i)
			w.run(Frame)
		}
		w.run(tt.after - Frame)
		for i := range uint16(10) {
			send(9 + tt.ahead + i)
			w.run(Frame)
		}
		if got := w.a.Stats().Lost; got != tt.want {
			t.Errorf("%s: %d lost, want %d", tt.name, got, tt.want)
		}
	}
}

// TestUnderWayAtTheMark has packets come behind the mark that are older than the newest at it: they are no loss of the
// move's, nor do they hide one, whether or not the source begins again meanwhile.
func TestUnderWayAtTheMark(t *testing.T) {
	for _, tt := range []struct {
		name    string
		numbers []uint16 // after 0, 1, 5 and the mark
		want    int64
	}{
		{"nothing else", nil, 0},
		{"those that were held back", []uint16{2, 3, 4, 6}, 0},
		{"one of them lost", []uint16{2, 4, 6}, 0},
		{"one of the others lost", []uint16{2, 3, 4, 7}, 1},
		{"a new beginning", []uint16{7, 20000, 20001, 20004, 20003}, 2},
	} {
		w := newWorld(t, nil)
		w.agree(w.a, w.agreed(w.b, 0))
		send := func(number uint16) {
			w.inject(w.a, w.b.address[0].String(), forge(7, number, uint32(number)*Samples))
			w.run(Frame)
		}
		for _, n := range []uint16{0, 1, 5} {
			send(n)
		}
		w.a.Mark(w.now)
		for _, n := range tt.numbers {
			send(n)
		}
		if got := w.a.Handoff(w.now).Lost; got != tt.want {
			t.Errorf("%s: %d lost, want %d", tt.name, got, tt.want)
		}
	}
}
