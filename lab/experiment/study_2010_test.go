// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/lab"
)

// What experiments have found stands on one page.
func TestOnOnePage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	e := &lab.Env{Out: &out, Dir: t.TempDir(), Runs: 1}
	if err := onOnePage(t.Context(), e, "Two", []lab.Experiment{sctpTSN, sctpRestore}); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	page, err := os.ReadFile(filepath.Join(e.Dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Two", "sctp-tsn.html", "sctp-restore.html"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not name %s", want)
		}
	}
}
