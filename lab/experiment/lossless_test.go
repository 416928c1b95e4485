// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// fakePath carries so many packets a second and loses what is more, but for what its queue
// holds: that is delivered when the load is over. Of one slice in unlucky ones it loses a
// tenth, whatever the rate.
type fakePath struct {
	most, queue float64
	unlucky     int
	slices      int
}

func (p *fakePath) slice(_ int, pace load.Pace) (rate, error) {
	p.slices++
	r := rate{offered: min(pace.Rate, 3.5e6), cpu: 100}
	r.passed = min(r.offered, p.most)
	if p.unlucky > 0 && p.slices%p.unlucky == 0 {
		r.passed *= 0.9
	}
	r.delivered = min(r.offered, r.passed+p.queue/pace.Time.Seconds())
	return r, nil
}

// The search ends at what a path carries, wherever that is, also where the machine now
// and then loses something of its own; at the generator's most if it carries more.
func TestLosslessFindsWhatIsCarried(t *testing.T) {
	for _, c := range []struct {
		situation  string
		most, want float64
		unlucky    int
		queue      float64
	}{
		{"far below the first try", 40e3, 40e3, 0, 0},
		{"near the first try", 500e3, 500e3, 0, 0},
		{"above it", 2.2e6, 2.2e6, 0, 0},
		{"more than the generator", 9e6, 3.5e6, 0, 0},
		{"one slice of three loses by bad luck", 1e6, 1e6, 3, 0},
		{"a queue that holds more than a slice", 200e3, 200e3, 0, 1e6},
	} {
		t.Run(c.situation, func(t *testing.T) {
			p := &fakePath{most: c.most, unlucky: c.unlucky, queue: c.queue}
			found, w := newRateCase(toIPv4, 64), wayXDP
			if c.queue > 0 {
				w = wayUser // whose queues are long, and slices, too
			}
			if err := lossless(context.Background(), found, []way{w}, p.slice); err != nil {
				t.Fatal(err)
			}
			got := report.Measured(found.passed[w]...).Median()
			if len(found.passed[w]) != losslessRounds || math.Abs(got/c.want-1) > 0.1 {
				t.Errorf("found %.0f in %d slices, want %.0f", got, len(found.passed[w]), c.want)
			}
		})
	}
}

// A round in which a way passed nothing counts against it; of times it is a missing one.
func TestPairs(t *testing.T) {
	a, b := []float64{1, 0, 2, 4}, []float64{0, 1, 4, 2}
	if got := pairs(a, b); !slices.Equal(got, []float64{0, 2, 0.5}) {
		t.Errorf("ratios of rates are %v", got)
	}
	if got := timePairs(a, b); !slices.Equal(got, []float64{2, 0.5}) {
		t.Errorf("ratios of times are %v", got)
	}
}

// A way that carries what a bare hop does was not measured: the table says so.
func TestRigLimitIsSaid(t *testing.T) {
	c := newRateCase(toIPv4, 1280)
	for w, passed := range map[way]float64{wayBare: 2e6, wayKernel: 1e6, wayXDP: 1.96e6} {
		for range longRun {
			c.add(w, rate{offered: 2e6, passed: passed})
		}
	}
	notes := c.rigNotes(wayBare)
	if len(notes) != 1 || !strings.Contains(notes[0], "IPv6 to IPv4, 1280 bytes: Isthmus XDP carries 0.98 of the bare hop") {
		t.Errorf("notes are %q", notes)
	}
}

func TestStreamForm(t *testing.T) {
	for _, c := range []struct {
		runs, rounds int
		long         bool
	}{{0, streamRounds, true}, {2, 2, false}, {7, 7, true}} {
		rounds, length := streamForm(c.runs)
		if rounds != c.rounds || length >= streamTime != c.long {
			t.Errorf("--runs %d: %d rounds of %v", c.runs, rounds, length)
		}
	}
}
