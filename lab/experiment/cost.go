// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"

	"github.com/isthmus-net/isthmus/lab/cost"
	"github.com/isthmus-net/isthmus/lab/report"
)

// costRound heads tables of what a program alone costs.
const costRound = "nanoseconds a packet: median (lowest to highest round)"

// costTable says what the rows of a table of costs are of, and how they are judged.
type costTable struct {
	title   string
	entries string // what there are many of
	notes   []string
	named   func(cost.Row) string // direction
	must    func(cost.Row) *report.Must
}

// add adds table and figures of what a program alone costs.
func (t costTable) add(rep *report.Report, rows []cost.Row) {
	table := report.Table{Title: t.title, Columns: []string{"direction", t.entries, "IPv6 packet", "program", "harness alone"}, Notes: t.notes}
	for _, r := range rows {
		net := make([]float64, len(r.Gross))
		for i := range net {
			net[i] = r.Gross[i] - r.Harness[i]
		}
		d := t.named(r)
		table.Rows = append(table.Rows, []string{d, fmt.Sprint(r.Peers), fmt.Sprintf("%d bytes", r.Size), plainNumbers(net), plainNumbers(r.Harness)})
		rep.Figures = append(rep.Figures, report.Figure{
			Name: fmt.Sprintf("%s, %d %s, %d bytes: %s", d, r.Peers, t.entries, r.Size, figureCostNAT64), Unit: "ns",
			Isthmus: report.Measured(net...), Must: t.must(r),
		})
	}
	rep.Tables = append(rep.Tables, table)
}

// shortCost has few packets of few entries where there are few rounds.
func shortCost(o cost.Options) cost.Options {
	if o.Rounds < longRun {
		o.Peers, o.Sizes = o.Peers[:1], o.Sizes[:1]
	}
	return o
}
