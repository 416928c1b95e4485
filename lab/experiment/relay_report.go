// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/lab/report"
)

// ratioFigure is a figure that is itself a ratio, one for each round.
func ratioFigure(experiment, label, figure string, ratios []float64) report.Figure {
	return report.Figure{Name: label + ": " + figure, Decimals: 2, Isthmus: report.Measured(ratios...), Must: must(experiment, figure)}
}

// pairs are the ratios of b to a, round by round; a round in which one is missing
// is left out.
func pairs(a, b []float64) []float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if a[i] > 0 && b[i] > 0 {
			ratios = append(ratios, b[i]/a[i])
		}
	}
	return ratios
}

// thousands prints rates in thousands: median, lowest and highest.
func thousands(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f (%.0f to %.0f)", report.Measured(v...).Median()/1e3, slices.Min(v)/1e3, slices.Max(v)/1e3)
}
