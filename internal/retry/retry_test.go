// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/retry"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// tries fails whenever it may until end, and returns the times of the tries.
func tries(t *retry.Trouble, from, end time.Time) (list []time.Duration) {
	for now := from; now.Before(end); now = now.Add(t.Wait(now)) {
		list = append(list, now.Sub(from))
		t.Failed("broken", now)
	}
	return list
}

func TestWaitsLonger(t *testing.T) {
	trouble := retry.Trouble{First: time.Second, Last: 10 * time.Second}
	if wait := trouble.Wait(start); wait != 0 {
		t.Errorf("the first try waits %v", wait)
	}
	s := time.Second
	want := []time.Duration{0, s, 3 * s, 7 * s, 15 * s, 25 * s, 35 * s}
	if got := tries(&trouble, start, start.Add(40*s)); !slices.Equal(got, want) {
		t.Errorf("tries at %v, want %v", got, want)
	}
}

func TestChanged(t *testing.T) {
	trouble := retry.Trouble{First: time.Second, Last: time.Minute}
	tries(&trouble, start, start.Add(20*time.Second))
	now := start.Add(15 * time.Second) // of the last failure
	if wait := trouble.Wait(now); wait != 16*time.Second {
		t.Fatalf("waits %v before the change", wait)
	}
	trouble.Changed()
	if wait := trouble.Wait(now); wait != time.Second {
		t.Errorf("waits %v after the change", wait)
	}
	if wait := trouble.Wait(now.Add(5 * time.Second)); wait != 0 {
		t.Errorf("waits %v where the first wait is over", wait)
	}
	trouble.Failed("broken", now.Add(5*time.Second))
	if wait := trouble.Wait(now.Add(5 * time.Second)); wait != 2*time.Second {
		t.Errorf("waits %v after the next failure", wait)
	}
}

func TestWorks(t *testing.T) {
	for _, tt := range []struct {
		name string
		long time.Duration
		wait time.Duration
		news bool
	}{
		{"for a moment", time.Second, 8 * time.Second, false},
		{"almost long enough", time.Minute - 1, 8 * time.Second, false},
		{"long enough", time.Minute, time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			trouble := retry.Trouble{First: time.Second, Last: time.Minute}
			tries(&trouble, start, start.Add(4*time.Second)) // three
			now := start.Add(10 * time.Second)
			trouble.Works(now)
			if wait := trouble.Wait(now); wait != 0 {
				t.Errorf("what works waits %v", wait)
			}
			trouble.Works(now.Add(tt.long / 2)) // still
			now = now.Add(tt.long)
			if news := trouble.Failed("broken", now); news != tt.news {
				t.Errorf("news %t, want %t", news, tt.news)
			}
			if wait := trouble.Wait(now); wait != tt.wait {
				t.Errorf("waits %v, want %v", wait, tt.wait)
			}
		})
	}
}

func TestToldOnce(t *testing.T) {
	trouble := retry.Trouble{First: time.Second, Last: time.Minute}
	now, told := start, 0
	for range 100 {
		for _, kind := range []string{"no socket", "no route", "no device"} {
			now = now.Add(trouble.Wait(now))
			if trouble.Failed(kind, now) {
				told++
			}
		}
	}
	if told != 3 {
		t.Errorf("told %d times of three kinds", told)
	}
	for i := range 1000 { // each another, as from an error that holds a number
		trouble.Failed(fmt.Sprint(i), now)
	}
	if !trouble.Failed("no socket", now) {
		t.Error("what is remembered has no bound")
	}
}
