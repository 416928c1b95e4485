// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/load"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of the search for the rate that is carried without loss.
const (
	losslessLoss   = 0.01 // of the packets: a busy machine loses some at any rate
	losslessTries  = 5    // slices at each rate, of which the median counts
	losslessSteps  = 7    // halvings of the range
	losslessBottom = 20e3 // packets per second
	losslessTop    = 3e6
)

// losslessWays are searched one after the other: each has a peak of its own, so
// that slices cannot take turns.
var losslessWays = []way{wayKernel, wayMiredo, wayUser, wayTC, wayXDP}

// reportLossless adds the second view of the same paths: not what passes of a
// load that none can carry, but the load that each carries.
func (l *loaded) reportLossless(ctx context.Context, e *lab.Env, rep *report.Report) error {
	table := report.Table{
		Title:   fmt.Sprintf("thousand packets per second carried with at most %.0f %% lost", 100*losslessLoss),
		Columns: []string{"IPv6 packet"},
		Notes:   []string{"Found by halving, each way for itself; what the generator sends comes in groups of eight."},
	}
	for _, w := range losslessWays {
		table.Columns = append(table.Columns, w.title())
	}
	table.Columns = append(table.Columns, "XDP / kernel")
	for _, d := range []relayDirection{encapsulating, decapsulating} {
		for _, size := range []int{64, 1280} {
			e.Step("%s, %d bytes: searching the rate that each path carries", d, size)
			row, found := []string{fmt.Sprintf("%s, %d bytes", d, size)}, map[way]float64{}
			for _, w := range losslessWays {
				rate, err := l.lossless(ctx, l.path(w), d, size)
				if err != nil {
					return err
				}
				found[w] = rate
				row = append(row, fmt.Sprintf("%.0f", rate/1e3))
			}
			ratio := "-"
			if found[wayKernel] > 0 {
				ratio = fmt.Sprintf("%.2f", found[wayXDP]/found[wayKernel])
			}
			table.Rows = append(table.Rows, append(row, ratio))
		}
	}
	rep.Tables = append(rep.Tables, table)
	return nil
}

// lossless searches the highest rate that one path carries; it returns what
// arrived at that rate.
func (l *loaded) lossless(ctx context.Context, p *relayPath, d relayDirection, size int) (best float64, err error) {
	low, high := losslessBottom, losslessTop
	for range losslessSteps {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		middle := (low + high) / 2
		var kept, passed []float64
		for range losslessTries {
			r, err := l.slice(p, d, size, load.Pace{Rate: middle, Time: loadSlice})
			if err != nil {
				return 0, err
			}
			kept, passed = append(kept, r.passed/r.offered), append(passed, r.passed)
		}
		if report.Measured(kept...).Median() >= 1-losslessLoss {
			low, best = middle, max(best, report.Measured(passed...).Median())
		} else {
			high = middle
		}
	}
	return best, nil
}
