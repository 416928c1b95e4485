// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestTwoLosses loses any two packets of a window, the first time that they are sent: fast retransmission repairs both,
// and no timeout is needed (RFC 9260 section 7.2.4).
func TestTwoLosses(t *testing.T) {
	const packets = 120
	for first := range 20 {
		for second := first + 1; second < first+20; second++ {
			par := Defaults()
			par.EarlyProbe, par.MaxMTU = false, baseIPv6
			w := newWorld(t, [2][]netip.Addr{dual()[0][:1], dual()[1][:1]}, par)
			w.delay = func(Pair) time.Duration { return 20 * time.Millisecond }
			w.connect(w.hosts[1].end.config.Addresses...)
			h := w.hosts[0]
			for i := range 60 { // the window grows
				h.say(0, fmt.Appendf(nil, "%01200d", i), false)
			}
			w.run(time.Second)
			base, lost := h.a.nextTSN, map[uint32]bool{}
			w.lost = func(from int, p Packet) bool {
				tsn, data := firstTSN(p)
				if from != 0 || !data || lost[tsn] || tsn != base+uint32(10+first) && tsn != base+uint32(10+second) {
					return false
				}
				lost[tsn] = true
				return true
			}
			for i := range packets {
				h.say(0, fmt.Appendf(nil, "%01200d", i), false)
			}
			w.run(10 * time.Second)
			if len(lost) != 2 || h.end.Counters.Timeouts != 0 || len(w.hosts[1].got) != 60+packets {
				t.Fatalf("packets %d and %d: %d lost, %d timeouts, %d messages have come", first, second, len(lost), h.end.Counters.Timeouts, len(w.hosts[1].got))
			}
		}
	}
}
