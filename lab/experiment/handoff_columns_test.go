// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/lab/report"
)

// TestHandoffColumns stands the same handoff beside itself, with a program of others.
func TestHandoffColumns(t *testing.T) {
	m, err := newMadeUp().cold("").read(handoffWorld{}.radio())
	if err != nil {
		t.Fatal(err)
	}
	home := handoffNATs(false)[0]
	var cases []*handoffCase
	for _, w := range []handoffWorld{{}, {jitter: true}, {kamailio: true}, {baresip: true}} {
		cases = append(cases, &handoffCase{world: w, box: home, kind: handoffCold, moves: []handoffMove{m}})
	}
	cases = append(cases, &handoffCase{box: handoffNAT{rewriting: true}, moves: []handoffMove{m}})
	table := othersTable(handoffColumns(cases[:4]))
	if want := []string{"handoff", "figure", "Isthmus", "Kamailio as SIP server", "baresip at the host"}; !slices.Equal(table.Columns, want) {
		t.Errorf("columns %q", table.Columns)
	}
	for _, want := range [][]string{
		{"cold", "re-INVITE to 200, ms", "233.0 (233.0 to 233.0)", "233.0 (233.0 to 233.0)", "233.0 (233.0 to 233.0)"},
		{"cold", "bindings left", "1 (1 to 1)", "1 (1 to 1)", "1 (1 to 1)"},
		{"soft", "bindings left", "-", "-", "-"},
	} {
		if !slices.ContainsFunc(table.Rows, func(row []string) bool { return slices.Equal(row, want) }) {
			t.Errorf("%q is not among %q", want, table.Rows)
		}
	}
	if n := len(handoffColumns(slices.Concat(cases[:2], cases[4:]))); n != 1 {
		t.Errorf("%d columns without others", n)
	}
}

// TestHandoffRows judges our own programs alone, and counts by the handoffs that were made.
func TestHandoffRows(t *testing.T) {
	row := func(w handoffWorld) *handoffRowResult {
		return &handoffRowResult{world: w, made: 4, alive: 4, single: 4, reached: 3, whatHappened: []string{"a call does not come"}}
	}
	for _, tt := range []struct {
		world         handoffWorld
		faults, notes int
		figures       []float64
	}{
		{handoffWorld{loss: handoffLoss}, 1, 0, []float64{100, 100, 1}},
		{handoffWorld{loss: handoffLoss, kamailio: true}, 0, 1, nil},
		{handoffWorld{}, 1, 0, nil},
	} {
		rows, rep := []*handoffRowResult{row(tt.world)}, &report.Report{}
		judgeRows(rep, rows)
		if len(rep.Faults) != tt.faults || len(rep.Notes) != tt.notes {
			t.Errorf("%s: faults %q, notes %q", tt.world.who(), rep.Faults, rep.Notes)
		}
		var figures []float64
		for _, f := range handoffFigures(nil, &handoffResult{rows: rows})[1:] { // the bindings of single handoffs come first
			figures = append(figures, f.Isthmus.Median())
		}
		if !slices.Equal(figures, tt.figures) {
			t.Errorf("%s: figures %v", tt.world.who(), figures)
		}
	}
}
