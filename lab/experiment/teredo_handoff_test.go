// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"testing"
	"time"
)

// The figures of a flow whose change came at 100 ms and took 2 ms.
func TestFlowFigures(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	ms := func(n int) time.Time {
		if n < 0 {
			return time.Time{}
		}
		return start.Add(time.Duration(n) * time.Millisecond)
	}
	packet := func(sent, there, back int) flowPacket { return flowPacket{ms(sent), ms(there), ms(back)} }
	change := moment{began: ms(100), ended: ms(102)}
	tests := []struct {
		name      string
		packets   []flowPacket
		recovered time.Duration
		ok        bool
		lost      int
		gap       time.Duration
	}{
		{"nothing is lost", []flowPacket{packet(90, 95, 100), packet(110, 115, 120)}, 20 * time.Millisecond, true, 0, 20 * time.Millisecond},
		{"one waits", []flowPacket{packet(90, 95, 100), packet(110, 150, 155), packet(130, 150, 155)}, 55 * time.Millisecond, true, 0, 55 * time.Millisecond},
		{"two are lost", []flowPacket{packet(90, 95, 100), packet(110, -1, -1), packet(130, -1, -1), packet(150, 155, 160)},
			60 * time.Millisecond, true, 2, 60 * time.Millisecond},
		{"the answer is lost", []flowPacket{packet(90, 95, 100), packet(110, 115, -1), packet(130, 135, 140)}, 40 * time.Millisecond, true, 1, 20 * time.Millisecond},
		{"sent while it changed", []flowPacket{packet(90, 95, 100), packet(101, 106, 111), packet(121, 126, 131)}, 31 * time.Millisecond, true, 0, 11 * time.Millisecond},
		{"no recovery", []flowPacket{packet(90, 95, 100), packet(110, -1, -1)}, 0, false, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if took, ok := recovery(tt.packets, change, 1); took != tt.recovered || ok != tt.ok {
				t.Errorf("recovery %v, %v; want %v, %v", took, ok, tt.recovered, tt.ok)
			}
			if n := unanswered(tt.packets, ms(89)); n != tt.lost {
				t.Errorf("%d lost, want %d", n, tt.lost)
			}
			if gap := gapAcross(tt.packets, change); gap != tt.gap {
				t.Errorf("gap %v, want %v", gap, tt.gap)
			}
		})
	}
	// By the mapping that is about to go a packet passes still.
	passes := []flowPacket{packet(110, 115, 120), packet(130, -1, -1), packet(150, 155, 160), packet(170, 175, 180)}
	if took, ok := recovery(passes, change, 2); took != 60*time.Millisecond || !ok {
		t.Errorf("recovery %v, %v behind one packet that passed", took, ok)
	}
	if _, ok := recovery(passes, change, 3); ok {
		t.Error("a recovery before the flow was steady")
	}
}
