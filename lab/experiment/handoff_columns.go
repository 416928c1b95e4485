// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/lab/report"
)

// handoffColumn are the cases with certain programs, by one kind of NAT and without jitter.
type handoffColumn struct {
	who   string
	cases []*handoffCase
}

// handoffColumns are those that stand beside each other, ours the first.
func handoffColumns(cases []*handoffCase) (columns []*handoffColumn) {
	for _, c := range cases {
		if c.world.jitter || c.box != handoffNATs(false)[0] {
			continue
		}
		who := c.world.who()
		if len(columns) == 0 || columns[len(columns)-1].who != who {
			columns = append(columns, &handoffColumn{who: who})
		}
		last := columns[len(columns)-1]
		last.cases = append(last.cases, c)
	}
	return columns
}

// of is the case of a kind, if there is one.
func (c *handoffColumn) of(kind handoffKind) *handoffCase {
	if i := slices.IndexFunc(c.cases, func(one *handoffCase) bool { return one.kind == kind }); i >= 0 {
		return c.cases[i]
	}
	return nil
}

// othersFigures are what columns have.
var othersFigures = []struct {
	name string
	of   func(*handoffCase) string
}{
	{"re-INVITE to 200, ms", func(c *handoffCase) string {
		return spread(c.all(func(m handoffMove) float64 { return milliseconds(m.answer) }), 1)
	}},
	{"D3, ms", func(c *handoffCase) string { return spread(c.all(handoffMove.d3), 1) }},
	{"gap down, ms", func(c *handoffCase) string {
		return spread(c.all(func(m handoffMove) float64 { return m.gapDown() }), 1)
	}},
	{"by theory", func(c *handoffCase) string { return c.theory(handoffMove.theoryDown) }},
	{"gap up, ms", func(c *handoffCase) string { return spread(c.all(func(m handoffMove) float64 { return m.gapUp() }), 1) }},
	{"by theory", func(c *handoffCase) string { return c.theory(handoffMove.theoryUp) }},
	{"lost, both ways", func(c *handoffCase) string {
		return plainNumbers(c.all(func(m handoffMove) float64 { return m.lost() }))
	}},
	{"bindings left", func(c *handoffCase) string {
		return plainNumbers(c.all(func(m handoffMove) float64 { return m.left() }))
	}},
}

// othersTable stands the same handoffs beside each other, with programs of others in the place of one of
// ours each.
func othersTable(columns []*handoffColumn) report.Table {
	t := report.Table{
		Title:   "programs of others in the place of ours, NAT " + handoffNATs(false)[0].String() + ": median (lowest to highest)",
		Columns: []string{"handoff", "figure"},
	}
	for _, c := range columns {
		t.Columns = append(t.Columns, c.who)
	}
	for kind := range handoffBack + 1 {
		for _, figure := range othersFigures {
			row := []string{kind.String(), figure.name}
			for _, column := range columns {
				cell := "-"
				if c := column.of(kind); c != nil {
					cell = figure.of(c)
				}
				row = append(row, cell)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// rowTable has what handoffs in a row have shown.
func rowTable(rows []*handoffRowResult) report.Table {
	t := report.Table{
		Title: "handoffs in a row, each second one behind another kind of NAT",
		Columns: []string{
			"programs", "handoffs", "lost on each radio", "calls needed", "alive behind", "one binding behind", "reached at once behind",
			"until media, at most, s", "until an answer, at most, s",
		},
	}
	for _, r := range rows {
		of := func(n int) string { return fmt.Sprintf("%d of %d", n, r.made) }
		t.Rows = append(t.Rows, []string{
			r.world.who(), fmt.Sprint(r.made), fmt.Sprintf("%.0f %%", 100*r.world.loss), fmt.Sprint(r.calls), of(r.alive), of(r.single), of(r.reached),
			fmt.Sprintf("%.1f", r.longest.Seconds()), fmt.Sprintf("%.1f", r.answer.Seconds()),
		})
	}
	return t
}

// judgeRows tells what went wrong: with our programs alone it is a fault.
func judgeRows(rep *report.Report, rows []*handoffRowResult) {
	for _, r := range rows {
		for _, what := range r.whatHappened {
			if r.world.special() == "" {
				rep.Fault("in a row, %s", what)
			} else {
				rep.Notes = append(rep.Notes, fmt.Sprintf("In a row, with %s, %s.", r.world.who(), what))
			}
		}
	}
}

// percent is a share of the handoffs.
func (r *handoffRowResult) percent(n int) float64 { return 100 * float64(n) / float64(r.made) }
