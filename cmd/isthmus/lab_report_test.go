// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	labreport "github.com/isthmus-net/isthmus/lab/report"
)

func TestLabReport(t *testing.T) {
	full, empty, elsewhere := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "page.html")
	r := &labreport.Report{Experiment: "demo", Title: "Demo", Figures: []labreport.Figure{{Name: "x", Isthmus: labreport.Measured(1)}}}
	if err := r.WriteFiles(filepath.Join(full, "monday")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, "cut.json"), []byte(`{"experiment": "demo"`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		situation string
		args      []string
		status    int
		said      string
		page      string
	}{
		{"a folder with results", []string{full}, 0, "index.html: 1 run\n", filepath.Join(full, "index.html")},
		{"a file that was cut off is named", []string{full}, 0, "cut.json", filepath.Join(full, "index.html")},
		{"the page elsewhere", []string{full, "--out", elsewhere}, 0, "page.html: 1 run\n", elsewhere},
		{"no results", []string{empty}, exitFailed, "there are no results below", ""},
		{"no folder", []string{filepath.Join(empty, "missing")}, exitUsage, "there is no folder", ""},
	} {
		t.Run(c.situation, func(t *testing.T) {
			var out, errs strings.Builder
			status := execute(append([]string{"lab", "report"}, c.args...), streams{&out, &errs})
			if said := out.String() + errs.String(); status != c.status || !strings.Contains(said, c.said) {
				t.Fatalf("status %d, said %q; want %d and %q", status, said, c.status, c.said)
			}
			if c.page == "" {
				return
			}
			text, err := os.ReadFile(c.page)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), `monday/demo.csv"`) {
				t.Errorf("the page has no way to the files of the run:\n%s", text)
			}
		})
	}
}
