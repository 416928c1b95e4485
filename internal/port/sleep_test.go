// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSleeps(t *testing.T) {
	start := clocks{boot: time.Hour, steady: 50 * time.Minute}
	after := func(boot, steady time.Duration) clocks { return clocks{start.boot + boot, start.steady + steady} }
	tests := []struct {
		name string
		now  clocks
		want Sleep
		told bool
	}{
		{"nothing but the alarm", after(sleepCheck, sleepCheck), Sleep{}, false},
		{"the real time was set", after(time.Second, time.Second), Sleep{}, false},
		{"a short sleep", after(3*time.Second, time.Second), Sleep{2 * time.Second}, true},
		{"a night", after(8*time.Hour+time.Second, time.Second), Sleep{8 * time.Hour}, true},
		{"less than can be told from noise", after(1900*time.Millisecond, time.Second), Sleep{}, false},
		{"a loaded machine", after(sleepCheck+4*time.Second, sleepCheck+4*time.Second), Sleep{}, false},
		{"the process was stopped", after(time.Minute, time.Minute), Sleep{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, told := tt.now.since(start); got != tt.want || told != tt.told {
				t.Errorf("got %v, %v", got, told)
			}
		})
	}
}

// A reader that is late gets all sleeps as one.
func TestSleepsAddUp(t *testing.T) {
	readings := []clocks{{0, 0}, {time.Minute, time.Second}, {2 * time.Minute, 2 * time.Second}, {2*time.Minute + time.Second, 3 * time.Second}}
	next := 0
	sleeps := make(chan Sleep, 1)
	reportSleeps(
		func() error { return nil },
		func() (clocks, error) {
			if next == len(readings) {
				return clocks{}, errors.New("no more")
			}
			next++
			return readings[next-1], nil
		}, sleeps)
	want := Sleep{2 * 59 * time.Second}
	if diff := cmp.Diff(want, <-sleeps); diff != "" {
		t.Error(diff)
	}
}

func TestWatchSleepEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sleeps, err := WatchSleep(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for s := range sleeps {
		t.Errorf("slept %v", s)
	}
}
