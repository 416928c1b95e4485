// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// What experiments have found stands on one page.
func TestOnOnePage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	e := &lab.Env{Out: &out, Dir: t.TempDir(), Runs: 1}
	var two []lab.Experiment
	for _, name := range []string{"first", "second"} {
		two = append(two, lab.Experiment{Name: name, Run: func(_ context.Context, e *lab.Env) error {
			return finish(e, &report.Report{Experiment: name, Title: name})
		}})
	}
	if err := onOnePage(t.Context(), e, "Two", two); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	page, err := os.ReadFile(filepath.Join(e.Dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Two", "first.html", "second.html"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not name %s", want)
		}
	}
}
