// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

func TestWaker(t *testing.T) {
	const micro, milli = 1_000, 1_000_000
	for _, tt := range []struct {
		name string
		late []int64 // of the wakes before
		spun int64
		idle int64 // since then
		want int64
	}{
		{"before the first wake", nil, 0, 0, wakeEarly},
		{"it wakes on time", []int64{5 * micro, 8 * micro}, 0, 0, wakeEarly},
		{"it wakes late", []int64{5 * micro, 300 * micro}, 0, 0, 300 * micro},
		{"once in two times", []int64{320 * micro, 0}, 0, 0, 300 * micro},
		{"not any more", append([]int64{320 * micro}, make([]int64, 100)...), 0, 0, wakeEarly},
		{"it was kept waiting", []int64{50 * milli}, 0, 0, maxEarly},
		{"it has spun long enough", []int64{300 * micro}, maxCredit, 0, wakeEarly},
		{"a little later", []int64{300 * micro}, maxCredit, milli, milli / spinShare},
		{"later", []int64{300 * micro}, maxCredit, 100 * milli, 300 * micro},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := int64(1000 * milli)
			var w waker
			w.early(now)
			for _, late := range tt.late {
				w.woke(late)
			}
			w.spun(tt.spun)
			if got := w.early(now + tt.idle); got != tt.want {
				t.Errorf("wakes %d ns early, want %d", got, tt.want)
			}
		})
	}
}
