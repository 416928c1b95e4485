// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	labreport "github.com/isthmus-net/isthmus/lab/report"
)

func TestLabCompare(t *testing.T) {
	write := func(dir string, r *labreport.Report) string {
		r.Title = "Demo"
		if err := r.WriteFiles(filepath.Join(dir, "monday")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	ratio := func(name string, value float64) labreport.Figure {
		return labreport.Figure{Name: name, Decimals: 2, Isthmus: labreport.Measured(value)}
	}
	folder := func(experiment string, value float64) string {
		return write(t.TempDir(), &labreport.Report{Experiment: experiment, Figures: []labreport.Figure{ratio("tc / forwarding", value)}})
	}
	two := write(t.TempDir(), &labreport.Report{Experiment: "demo", Figures: []labreport.Figure{ratio("tc / forwarding", 1), ratio("XDP / forwarding", 1)}})
	wrong := write(t.TempDir(), &labreport.Report{Experiment: "demo", Figures: []labreport.Figure{ratio("tc / forwarding", 1)}, Faults: []string{"XDP passed nothing"}})
	more := write(folder("demo", 1), &labreport.Report{Experiment: "tour"})
	one, near, far, other, missing := folder("demo", 1), folder("demo", 1.1), folder("demo", 1.3), folder("else", 1), t.TempDir()
	for _, c := range []struct {
		situation string
		args      []string
		status    int
		said      string
	}{
		{"alike", []string{one, near}, 0, "0 of 1 median ratios are more than 15 % apart"},
		{"apart", []string{one, far}, exitFailed, "demo: tc / forwarding"},
		{"a bound of one's own", []string{one, near, "--within", "5"}, exitFailed, "10 %"},
		{"a ratio that has vanished", []string{two, one}, exitFailed, "In one of the two alone: demo: XDP / forwarding."},
		{"an experiment that has vanished", []string{more, one}, exitFailed, "In one of the two alone: tour."},
		{"one that the first did not have", []string{one, more}, exitFailed, "In one of the two alone: tour."},
		{"wrong behaviour", []string{one, wrong}, exitFailed, "demo, second run: wrong: XDP passed nothing"},
		{"no experiment in common", []string{one, other}, exitFailed, "no ratio in common"},
		{"no results", []string{one, missing}, exitFailed, "there are no results below"},
		{"no folder", []string{one, filepath.Join(missing, "x")}, exitUsage, "there is no folder"},
		{"a bound that is none", []string{one, near, "--within=-1"}, exitUsage, "write a percentage"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			status, out, errs := call(append([]string{"lab", "compare"}, c.args...)...)
			if status != c.status || !strings.Contains(out+errs, c.said) {
				t.Errorf("status %d, said %q; want %d and %q", status, out+errs, c.status, c.said)
			}
		})
	}
}
