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

// losslessWays are searched side by side, each at rates of its own.
var losslessWays = []way{wayKernel, wayMiredo, wayUser, wayTC, wayXDP}

// reportLossless adds the second view of the same paths: not what passes of a
// load that none can carry, but the load that each carries.
func (l *loaded) reportLossless(ctx context.Context, e *lab.Env, rep *report.Report) error {
	table := report.Table{
		Title:   fmt.Sprintf("thousand packets per second carried with at most %.0f %% lost", 100*losslessLoss),
		Columns: []string{"IPv6 packet"},
		Notes:   []string{"Found by halving; what the generator sends comes in groups of eight."},
	}
	for _, w := range losslessWays {
		table.Columns = append(table.Columns, w.title())
	}
	table.Columns = append(table.Columns, "XDP / kernel")
	for _, d := range []relayDirection{encapsulating, decapsulating} {
		for _, size := range []int{64, 1280} {
			e.Step("%s, %d bytes: searching the rate that each path carries", d, size)
			found, err := l.lossless(ctx, d, size)
			if err != nil {
				return err
			}
			row := []string{fmt.Sprintf("%s, %d bytes", d, size)}
			for _, w := range losslessWays {
				row = append(row, fmt.Sprintf("%.0f", found[w]/1e3))
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

// lossless searches the highest rate that each path carries; it returns what
// arrived at that rate.
func (l *loaded) lossless(ctx context.Context, d relayDirection, size int) (map[way]float64, error) {
	low, high, best := map[way]float64{}, map[way]float64{}, map[way]float64{}
	for _, w := range losslessWays {
		low[w], high[w] = losslessBottom, losslessTop
	}
	for range losslessSteps {
		kept, passed := map[way][]float64{}, map[way][]float64{}
		for range losslessTries {
			for _, w := range losslessWays {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				r, err := l.slice(l.path(w), d, size, load.Pace{Rate: (low[w] + high[w]) / 2, Time: loadSlice})
				if err != nil {
					return nil, err
				}
				kept[w], passed[w] = append(kept[w], r.passed/r.offered), append(passed[w], r.passed)
			}
		}
		for _, w := range losslessWays {
			middle := (low[w] + high[w]) / 2
			if report.Measured(kept[w]...).Median() < 1-losslessLoss {
				high[w] = middle
				continue
			}
			low[w], best[w] = middle, max(best[w], report.Measured(passed[w]...).Median())
		}
	}
	return best, nil
}
