// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"testing"
	"time"
)

// TestPace tells hundreds of packets a second from few, and from a flood, which ends rests before its window is over.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		packets int // in a rest
		brisk   bool
	}{"few": {briskPackets - 1, false}, "many": {briskPackets + 1, true}, "thousands": {floodPackets - 10, true}, "a flood": {floodPackets + 10, false}} {
		t.Run(name, func(t *testing.T) {
			var p pace
			now := time.Now()
			for range 100 {
				now = now.Add(rest)
				p.note(c.packets, now)
			}
			if p.brisk != c.brisk {
				t.Errorf("brisk is %v", p.brisk)
			}
		})
	}
	t.Run("the first packet", func(t *testing.T) {
		var p pace
		if p.note(1, time.Now()); p.brisk {
			t.Error("it is brisk")
		}
	})
	t.Run("a flood begins", func(t *testing.T) {
		p := pace{since: time.Now(), brisk: true}
		if p.note(paceRests*floodPackets+1, p.since.Add(rest)); p.brisk {
			t.Error("it does not end the rests")
		}
	})
}
