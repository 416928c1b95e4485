// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	labreport "github.com/isthmus-net/isthmus/lab/report"
)

func TestLabCompare(t *testing.T) {
	folder := func(experiment string, ratio float64) string {
		dir := t.TempDir()
		r := &labreport.Report{Experiment: experiment, Title: "Demo", Figures: []labreport.Figure{
			{Name: "tc / forwarding", Decimals: 2, Isthmus: labreport.Measured(ratio)},
		}}
		if err := r.WriteFiles(filepath.Join(dir, "monday")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
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
