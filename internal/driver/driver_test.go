// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Rates are of the time between two looks at the counters.
func TestRates(t *testing.T) {
	f := New(Role{Name: "test"}, Config{}, slog.New(slog.DiscardHandler))
	start := time.Unix(1_700_000_000, 0)
	f.measure(start, map[string]uint64{"fast": 1_000_000, "engine": 7})
	if diff := cmp.Diff(map[string]float64{"fast": 0, "engine": 0}, f.Status().Rates); diff != "" {
		t.Errorf("rates after one look (-want +got):\n%s", diff)
	}
	f.measure(start.Add(2*time.Second), map[string]uint64{"fast": 1_050_000, "engine": 8})
	if diff := cmp.Diff(map[string]float64{"fast": 25_000, "engine": 1}, f.Status().Rates); diff != "" {
		t.Errorf("rates (-want +got):\n%s", diff)
	}

	// Of counts that cannot be read there is nothing, once, and then all again.
	f.measure(start.Add(3*time.Second), map[string]uint64{"fast": 0, "engine": 9})
	if diff := cmp.Diff(map[string]float64{"fast": 25_000, "engine": 1}, f.Status().Rates); diff != "" {
		t.Errorf("rates with less than there was (-want +got):\n%s", diff)
	}
	f.measure(start.Add(4*time.Second), map[string]uint64{"fast": 1_070_000, "engine": 10})
	if diff := cmp.Diff(map[string]float64{"fast": 10_000, "engine": 1}, f.Status().Rates); diff != "" {
		t.Errorf("rates behind that (-want +got):\n%s", diff)
	}

	// What has begun again stays low.
	for i, n := range []uint64{100, 200, 300} {
		f.measure(start.Add(time.Duration(5+i)*time.Second), map[string]uint64{"fast": n, "engine": 10 + n})
	}
	if diff := cmp.Diff(map[string]float64{"fast": 100, "engine": 100}, f.Status().Rates); diff != "" {
		t.Errorf("rates of counts that have begun again (-want +got):\n%s", diff)
	}
}

// A look at the host may take longer than programs go on without a sign of life.
func TestBeatsGoOnDuringALook(t *testing.T) {
	programs := &table{beats: make(chan struct{}, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	f := New(Role{
		Name:    "test",
		Measure: func() map[string]uint64 { return nil },
		AttachBlocked: func() string {
			defer cancel()
			for len(programs.beats) > 0 {
				<-programs.beats
			}
			select {
			case <-programs.beats:
			case <-time.After(testutil.Patience):
				t.Error("there was no beat during a look")
			}
			return ""
		},
	}, Config{Mode: fastpath.ModeOff}, slog.New(slog.DiscardHandler))
	f.table, f.forward = programs, programs
	f.Wake()
	f.Run(ctx)
}

// Whoever hangs, or no longer follows routes, does not have programs go on.
func TestBeatsEnd(t *testing.T) {
	f := New(Role{Name: "test"}, Config{}, slog.New(slog.DiscardHandler))
	f.stir()
	now := time.Now()
	for after, want := range map[time.Duration]bool{0: true, hangs / 2: true, hangs + time.Second: false} {
		if got := f.alive(now.Add(after)); got != want {
			t.Errorf("%v after a sign of life it is alive: %t", after, got)
		}
	}
	f.Fail(errors.New("lost"))
	if f.alive(now) {
		t.Error("it is alive without routes")
	}
}
