// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"slices"
	"testing"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		situation string
		args      []string
		want      string
	}{
		{"a plain one", []string{"bin/isthmus", "lab", "run", "wire", "--out", "results/a"}, "isthmus lab run wire --out results/a"},
		{"a folder with a space", []string{"isthmus", "--out", "my results"}, "isthmus --out 'my results'"},
		{"a quote", []string{"isthmus", "it's"}, `isthmus 'it'\''s'`},
		{"an empty word", []string{"isthmus", ""}, "isthmus ''"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			if got := commandLine(c.args); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestFactsOfAProgramThatIsMissing(t *testing.T) {
	list := facts(&lab.Env{Binary: "/nonexistent"})
	for _, name := range []string{"isthmus", "kernel", "CPU", "cores", "clock governor", "load at the end"} {
		if !slices.ContainsFunc(list, func(f report.Fact) bool { return f.Name == name && f.Value != "" }) {
			t.Errorf("nothing is said of %q in %+v", name, list)
		}
	}
}
