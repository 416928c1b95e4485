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

// pairs are the ratios of rates b to a, round by round; a round in which nothing is
// compared with is left out, and not one in which b came to nothing.
func pairs(a, b []float64) []float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if a[i] > 0 {
			ratios = append(ratios, b[i]/a[i])
		}
	}
	return ratios
}

// timePairs are the ratios of times; a round in which one is missing is left out.
func timePairs(a, b []float64) []float64 {
	return slices.DeleteFunc(pairs(a, b), func(ratio float64) bool { return ratio == 0 })
}

// thousands prints rates in thousands: median, lowest and highest.
func thousands(v []float64) string { return spread(inThousands(v), 0) }

// inThousands are rates in thousands.
func inThousands(v []float64) []float64 {
	t := make([]float64, len(v))
	for i := range v {
		t[i] = v[i] / 1e3
	}
	return t
}

// spread prints median, lowest and highest.
func spread(v []float64, decimals int) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f (%.*f to %.*f)", decimals, report.Measured(v...).Median(), decimals, slices.Min(v), decimals, slices.Max(v))
}

// plainNumbers prints whole numbers: median, lowest and highest.
func plainNumbers(v []float64) string { return spread(v, 0) }

// differences are b less a, round by round; a round in which one is missing is left out.
func differences(a, b []float64) []float64 {
	var d []float64
	for i := range min(len(a), len(b)) {
		if a[i] > 0 && b[i] > 0 {
			d = append(d, b[i]-a[i])
		}
	}
	return d
}

// wayTable begins a table with a column for each way behind the first ones.
func wayTable(title string, ways []way, first ...string) report.Table {
	return report.Table{Title: title, Columns: cells(ways, func(w way) string { return w.title }, first...)}
}

// cells are a row of it.
func cells(ways []way, cell func(way) string, first ...string) []string {
	row := slices.Clone(first)
	for _, w := range ways {
		row = append(row, cell(w))
	}
	return row
}

// wayBars are a group of bars, one for each way.
func wayBars(label string, ways []way, values func(way) []float64) report.Group {
	group := report.Group{Label: label}
	for _, w := range ways {
		group.Bars = append(group.Bars, report.Bar{Name: w.title, Role: w.role, Value: report.Measured(values(w)...)})
	}
	return group
}

// routed are the ways that are more than a cable.
func routed(ways []way) []way {
	return slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.by == byCable })
}
