// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestResumeClock: whichever way the clock of the day was set, before a restart or during it, contexts keep
// the time of their beginning, by which accounts name them, and last as long as they did; time does not go
// back, so that policed ones carry at once, and none is over that was not.
func TestResumeClock(t *testing.T) {
	for _, row := range []struct {
		name       string
		run, pause time.Duration // by how much it is set while the node runs, and while it does not
		age        time.Duration
	}{
		{"right", 0, 0, 11 * time.Minute},
		{"set back at the restart", 0, -time.Hour, 10 * time.Minute},
		{"set back by years at the restart", 0, -9 * 365 * 24 * time.Hour, 10 * time.Minute},
		{"set back before", -time.Hour, 0, 11 * time.Minute},
		{"set forward before", time.Hour, 0, 11 * time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			limited := func(s *Settings) {
				s.APNs[0].SessionLimit, s.APNs[0].MaxUp = 30*time.Minute, 100
			}
			w := newWorld(t, limited)
			c := w.open(1, "internet", gtp.PDPTypeIPv4)
			w.tick(10 * time.Minute)
			if w.up(c, udp4(c.four(), server, 64, 1000)); len(w.out.IP) != 1 {
				t.Fatalf("nothing passes: %v", w.dropped())
			}
			state := w.e.AppendState(nil)
			var h storedHeader
			if _, err := binary.Decode(state, binary.BigEndian, &h); err != nil {
				t.Fatal(err)
			}
			h.Now += int64(row.run) // the clock that the engine counts by stands in no time of the day
			copy(state, appendRecord(nil, &h))
			w.now = w.now.Add(time.Minute + row.run + row.pause)
			s := testSettings()
			limited(&s)
			if lost := w.succeed(s, state); lost != 0 {
				t.Fatalf("%d are lost", lost)
			}
			list := w.list()
			if len(list) != 1 || !list[0].Created.Equal(start) || w.e.at-w.e.contexts.at(handle(list[0].Record)).createdAt != row.age {
				t.Errorf("%+v, want one that began at %v", list, start)
			}
			if w.up(c, udp4(c.four(), server, 64, 1000)); len(w.out.IP) != 1 {
				t.Errorf("nothing passes: %v", w.dropped())
			}
			w.tick(30*time.Minute - row.age - time.Second)
			if w.e.requests.used() != 0 {
				t.Error("it ends too early")
			}
			if w.tick(2 * time.Second); w.e.requests.used() == 0 {
				t.Error("it lasts too long")
			}
		})
	}
}
