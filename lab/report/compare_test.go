// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// runOf is a run of an experiment that ended so many hours after the first.
func runOf(experiment string, hours int, beside string, figures ...Figure) Run {
	return Run{Report: &Report{
		Experiment: experiment, Peer: "tayga", Figures: figures, Beside: beside, Time: time.Unix(int64(3600*hours), 0),
	}}
}

func ratioOf(name string, samples ...float64) Figure {
	return Figure{Name: name, Decimals: 2, Isthmus: Measured(samples...)}
}

func TestCompare(t *testing.T) {
	to := func(peer, isthmus float64) Figure {
		return Figure{Name: "TCP", Unit: "Mbit/s", Peer: Measured(peer), Isthmus: Measured(isthmus)}
	}
	for _, c := range []struct {
		situation     string
		first, second []Run
		rows          [][]string
		notes         string
	}{
		{"alike", []Run{runOf("x", 0, "", ratioOf("tc / kernel", 1))}, []Run{runOf("x", 0, "", ratioOf("tc / kernel", 1.15))}, nil, ""},
		{"apart, with the spread within each run",
			[]Run{runOf("x", 0, "", ratioOf("tc / kernel", 0.5, 1, 2))}, []Run{runOf("x", 0, "", ratioOf("tc / kernel", 1.2))},
			[][]string{{"x: tc / kernel", "1.00 (0.50 to 2.00)", "1.20", "20 %"}}, ""},
		{"the lower one second", []Run{runOf("x", 0, "", ratioOf("a / b", 1.5))}, []Run{runOf("x", 0, "", ratioOf("a / b", 1))},
			[][]string{{"x: a / b", "1.50", "1.00", "50 %"}}, ""},
		{"to nothing", []Run{runOf("x", 0, "", ratioOf("a / b", 1))}, []Run{runOf("x", 0, "", ratioOf("a / b", 0))},
			[][]string{{"x: a / b", "1.00", "0.00", "-"}}, ""},
		{"a figure is compared by its ratio to the peer", []Run{runOf("x", 0, "", to(10, 20))}, []Run{runOf("x", 0, "", to(100, 300))},
			[][]string{{"x: TCP, Isthmus / tayga", "2.00", "3.00", "50 %"}}, ""},
		{"twice the speed on both sides is alike", []Run{runOf("x", 0, "", to(10, 20))}, []Run{runOf("x", 0, "", to(20, 40))}, nil, ""},
		{"a time by itself is no ratio", []Run{runOf("x", 0, "", Figure{Name: "a / b", Unit: "ms", Isthmus: Measured(1)}, ratioOf("a / b", 1))},
			[]Run{runOf("x", 0, "", Figure{Name: "a / b", Unit: "ms", Isthmus: Measured(9)}, ratioOf("a / b", 1))}, nil, ""},
		{"of several runs the newest", []Run{runOf("x", 1, "", ratioOf("a / b", 1)), runOf("x", 0, "", ratioOf("a / b", 9))},
			[]Run{runOf("x", 2, "", ratioOf("a / b", 1))}, nil, ""},
		{"experiments and ratios of one side are named", []Run{runOf("x", 0, "", ratioOf("a / b", 1), ratioOf("gone / b", 1))},
			[]Run{runOf("x", 0, "", ratioOf("a / b", 1)), runOf("y", 0, "")}, nil, "In one of the two alone: x: gone / b; y."},
		{"other load is told", []Run{runOf("x", 0, "", ratioOf("a / b", 1))}, []Run{runOf("x", 0, "Beside a compiler.", ratioOf("a / b", 2))},
			[][]string{{"x: a / b", "1.00", "2.00", "100 %"}}, "x, second run: Beside a compiler."},
	} {
		t.Run(c.situation, func(t *testing.T) {
			got := Compare(c.first, c.second).Table(0.15)
			if diff := cmp.Diff(c.rows, got.Rows); diff != "" {
				t.Errorf("rows differ (-want +got):\n%s", diff)
			}
			if notes := strings.Join(got.Notes, "\n"); notes != c.notes {
				t.Errorf("notes are %q, want %q", notes, c.notes)
			}
		})
	}
}

// What a run was measured beside stands under every table, on paper and on the page.
func TestBesideStandsUnderEveryTable(t *testing.T) {
	r := sample()
	r.Beside = "Beside other load."
	var text, page strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]string{"text": text.String(), "page": page.String()} {
		if n := strings.Count(s, r.Beside); n != 2 {
			t.Errorf("the %s says so %d times, want once under each of two tables:\n%s", name, n, s)
		}
	}
}
