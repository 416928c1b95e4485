// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package media

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestSequenceAgreesWithModel numbers packets over several turns, loses, doubles and delays
// some, and compares with a table of all.
func TestSequenceAgreesWithModel(t *testing.T) {
	if testutil.UnderRace {
		t.Skip("one thread alone has nothing to tell the race detector")
	}
	random := rand.New(rand.NewPCG(1, 2))
	var q sequence
	came := map[int]bool{}
	var queue []int
	reordered, doubled := 0, 0
	highest := -1
	take := func(n int) {
		a := q.take(uint16(n+65000), maxDropout)
		switch {
		case n <= highest-window:
			if a != arrivalJump {
				t.Fatalf("%d is too far behind: %d", n, a)
			}
			return
		case came[n]:
			doubled++
			if a != arrivalDuplicate {
				t.Fatalf("%d came again: %d", n, a)
			}
		case n > highest:
			if a != arrivalNext {
				t.Fatalf("%d is new: %d", n, a)
			}
		default:
			reordered++
			if a != arrivalLate {
				t.Fatalf("%d is late: %d", n, a)
			}
		}
		came[n], highest = true, max(highest, n)
	}
	take(0)
	for n := 1; n < 140000; n++ {
		queue = append(queue, n)
		if random.IntN(10) == 0 {
			queue = append(queue, n) // twice
		}
		for len(queue) > random.IntN(300) {
			i := random.IntN(len(queue))
			if random.IntN(20) > 0 { // else it is lost
				take(queue[i])
			}
			queue = append(queue[:i], queue[i+1:]...)
		}
	}
	lost := highest + 1 - len(came)
	if q.expected() != uint64(highest+1) || q.lost() != int64(lost) || q.unique != uint64(len(came)) || q.reordered != uint64(reordered) || q.received != uint64(len(came)+doubled) {
		t.Errorf("%+v, want %d lost, %d reordered, %d doubled", q, lost, reordered, doubled)
	}
}

func TestSequenceLimits(t *testing.T) {
	tests := []struct {
		name    string
		numbers []uint16
		want    []arrival
		lost    int64
	}{
		{"one before the first", []uint16{5, 4}, []arrival{arrivalNext, arrivalLate}, 0},
		{"round", []uint16{65535, 0, 65535}, []arrival{arrivalNext, arrivalNext, arrivalDuplicate}, 0},
		{"the longest dropout", []uint16{0, 3000}, []arrival{arrivalNext, arrivalNext}, 2999},
		{"a longer one: two in sequence prove it", []uint16{0, 3001, 3002}, []arrival{arrivalNext, arrivalJump, arrivalNext}, 0},
		{"a stray one far away", []uint16{0, 30000, 1, 2}, []arrival{arrivalNext, arrivalJump, arrivalNext, arrivalNext}, 0},
		{"far behind", []uint16{10000, 20, 21}, []arrival{arrivalNext, arrivalJump, arrivalNext}, 0},
		{"too far behind to know", []uint16{2000, 2000 - window, 2001}, []arrival{arrivalNext, arrivalJump, arrivalNext}, 0},
		{"as far: two in sequence prove it", []uint16{5000, 3000, 3001}, []arrival{arrivalNext, arrivalJump, arrivalNext}, 0},
		{"just near enough", []uint16{2000, 2001 - window}, []arrival{arrivalNext, arrivalLate}, window - 2},
	}
	for _, tt := range tests {
		var q sequence
		for i, n := range tt.numbers {
			if got := q.take(n, maxDropout); got != tt.want[i] {
				t.Errorf("%s: number %d is %d, want %d", tt.name, n, got, tt.want[i])
			}
		}
		if q.lost() != tt.lost {
			t.Errorf("%s: %d lost, want %d", tt.name, q.lost(), tt.lost)
		}
	}
}

// TestSequenceBeginsAgain a little behind, where all numbers have come before.
func TestSequenceBeginsAgain(t *testing.T) {
	for _, tt := range []struct {
		behind, refused int
	}{{maxMisorder + misordered, misordered - 1}, {500, misordered - 1}, {window - 1, misordered - 1}, {maxMisorder, maxMisorder + 1}} {
		var q sequence
		for n := range 2000 {
			q.take(uint16(n), maxDropout)
		}
		refused := 0
		for n := 1999 - tt.behind; q.take(uint16(n), maxDropout) == arrivalDuplicate; n++ {
			refused++
		}
		if refused != tt.refused {
			t.Errorf("%d behind: %d refused, want %d", tt.behind, refused, tt.refused)
		}
	}
}

// TestJitter is the sum of RFC 3550 section 6.4.1 for packets that come alternately 0 and 10
// ms late: it tends to 10 ms.
func TestJitter(t *testing.T) {
	var tm timing
	want := 0.0
	for i := range 500 {
		late := time.Duration(i%2) * 10 * time.Millisecond
		tm.take(uint32(i*Samples), true, start.Add(time.Duration(i)*Frame+late))
		if i > 0 {
			want += (80 - want) / 16
		}
	}
	if diff := tm.jitter - want; diff > 1e-6 || diff < -1e-6 || tm.jitter < 79.9 || tm.late != 0 {
		t.Errorf("the jitter is %f samples, want %f", tm.jitter, want)
	}
}

func TestPlaces(t *testing.T) {
	type packet struct {
		stamp uint32
		ms    int
		want  int64
	}
	tests := []struct {
		name    string
		packets []packet
		leaps   uint64
		late    uint64
	}{
		{"in order", []packet{{1000, 0, 0}, {1160, 20, 160}, {1320, 40, 320}}, 0, 0},
		{"the clock comes round", []packet{{0xffffff60, 0, 0}, {0, 20, 160}}, 0, 0},
		{"one lost, and one late", []packet{{0, 0, 0}, {480, 60, 480}, {160, 61, 160}}, 0, 0},
		{"before the first", []packet{{160, 0, 0}, {0, 1, -160}}, 0, 0},
		{"after a pause of ten minutes", []packet{{0, 0, 0}, {4800000, 600000, 4800000}}, 0, 0},
		{"after a pause in which the clock stood", []packet{{0, 0, 0}, {160, 600000, 4800000}, {320, 600020, 4800160}}, 1, 0},
		{"a clock that was set", []packet{{0, 0, 0}, {1 << 31, 20, 160}, {1<<31 + 160, 40, 320}}, 1, 0},
		{"after a fortnight", []packet{{0, 0, 0}, {1086865408, 14 * 86400000, 14 * 86400 * 8000}}, 1, 0},
		{"much too late", []packet{{0, 0, 0}, {160, 220, 160}}, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var tm timing
			newest := uint32(0)
			for i, p := range tt.packets {
				next := i == 0 || int32(p.stamp-newest) > 0 || tt.leaps > 0
				if got := tm.take(p.stamp, next, start.Add(time.Duration(p.ms)*time.Millisecond)); got != p.want {
					t.Errorf("packet %d has place %d, want %d", i, got, p.want)
				}
				if next {
					newest = p.stamp
				}
			}
			if tm.leaps != tt.leaps || tm.late != tt.late {
				t.Errorf("%d leaps, %d late", tm.leaps, tm.late)
			}
		})
	}
}
