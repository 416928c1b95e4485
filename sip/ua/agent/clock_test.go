// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// TestClock has the call that is due first in front, whatever its time was before, and without those
// that have ended.
func TestClock(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var k clock
	a, b, c := new(call), new(call), new(call)
	for _, step := range []struct {
		of   *call
		at   time.Time
		next time.Time
	}{
		{a, at(30), at(30)}, {b, at(20), at(20)}, {c, at(10), at(10)}, {c, at(40), at(20)}, {b, time.Time{}, at(30)},
		{b, time.Time{}, at(30)}, {a, at(50), at(40)}, {c, time.Time{}, at(50)}, {a, time.Time{}, time.Time{}},
	} {
		k.set(step.of, step.at)
		if !k.next().Equal(step.next) {
			t.Fatalf("due at %v, want %v", k.next().Sub(start), step.next.Sub(start))
		}
	}
}

// TestClockTicks has each call that is due ticked once, which sets its next time, and no other; the one
// that has ended is not set again.
func TestClockTicks(t *testing.T) {
	now := time.Now()
	a := &Agent{calls: map[ua.CallID]*call{}}
	var all []*call
	for id := range ua.CallID(3) {
		s, err := media.New(media.Settings{Name: "x"}, rand.Reader, now)
		if err != nil {
			t.Fatal(err)
		}
		c := &call{a: a, id: id, stream: s}
		a.calls[id] = c
		all = append(all, c)
	}
	late := now.Add(time.Hour)
	a.clock.set(all[0], now)
	a.clock.set(all[1], late)
	a.clock.set(all[2], now)
	delete(a.calls, 2)
	a.clock.tick(now)
	if len(a.clock) != 1 || a.clock[0] != all[1] || !a.clock.next().Equal(late) {
		t.Errorf("%d calls are to be ticked, the next at %v", len(a.clock), a.clock.next())
	}
}
