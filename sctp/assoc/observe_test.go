// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"testing"
	"time"
)

// TestPassages has each chunk of data told that leaves by a cut and a loss, by the path and with the TSN that its packet
// has, and for the reason that is counted; and each that comes.
func TestPassages(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("early probe %t", early), func(t *testing.T) {
			par := Defaults()
			par.EarlyProbe = early
			w := pair(t, par)
			w.run(5 * time.Second)
			h, peer, sent := w.hosts[0], w.hosts[1], 0
			h.talkFor(time.Second, 10*time.Millisecond, &sent)
			if len(h.passages)+len(peer.passages) > 0 {
				t.Fatalf("passages are told of an association that no one observes")
			}
			h.a.Observe(true)
			peer.a.Observe(true)
			before, counted := h.end.Counters, peer.end.Counters
			var packets []string
			w.trace = func(from int, p Packet) {
				for _, tsn := range dataTSNs(p) {
					if from == 0 {
						packets = append(packets, fmt.Sprint(p.Pair, tsn))
					}
				}
			}
			lose := 0
			w.lost = func(from int, p Packet) bool {
				if from == 0 && len(dataTSNs(p)) > 0 {
					lose++
				}
				return from == 0 && lose == 5 // one packet
			}
			h.talkFor(time.Second, time.Millisecond, &sent)
			w.lost = cutFirst
			h.talkFor(3*time.Second, 10*time.Millisecond, &sent)
			w.run(time.Minute)

			by := map[PassageKind]uint64{}
			for i, p := range h.passages {
				by[p.How]++
				if i < len(packets) && fmt.Sprint(p.Pair, p.TSN) != packets[i] || p.Octets == 0 || p.Association != h.a {
					t.Fatalf("passage %d is %+v, the packet %s", i, p, packets[i])
				}
			}
			now, come := h.end.Counters, map[PassageKind]uint64{}
			for _, p := range peer.passages {
				come[p.How]++
			}
			for what, row := range map[string][2]uint64{
				"all": {uint64(len(h.passages)), uint64(len(packets))}, "new": {by[SentNew], now.Sent - before.Sent},
				"late": {by[SentLate], now.Retransmitted - before.Retransmitted}, "fast": {by[SentFast], now.FastRetrans - before.FastRetrans},
				"copies": {by[SentCopy], now.EarlyCopies - before.EarlyCopies}, "moved": {by[SentMoved], now.EarlyMoves - before.EarlyMoves},
				"arrived": {come[Arrived], by[SentNew]}, "duplicated": {come[Duplicated], peer.end.Counters.Duplicate - counted.Duplicate},
			} {
				if row[0] != row[1] {
					t.Errorf("%s: %d, want %d", what, row[0], row[1])
				}
			}
			if by[SentFast] == 0 || early == (by[SentLate] > 0) || early != (by[SentCopy] > 0) {
				t.Errorf("the losses were not met as they should be: %v", by)
			}
		})
	}
}
