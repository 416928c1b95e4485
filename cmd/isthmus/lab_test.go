// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/lab"
)

func TestLabListPrint(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	list := labList{
		Experiments: []labEntry{{Name: "tour", Summary: "shows it"}, {Name: "speed", Summary: "measures it", NeedsRoot: true}},
		Running:     []lab.Run{{Name: "tour-2", Started: now.Add(-90 * time.Second), Nodes: []string{"client", "nat"}}},
	}
	var out strings.Builder
	if err := list.print(&out, now); err != nil {
		t.Fatal(err)
	}
	want := `EXPERIMENT  NEEDS  WHAT IT SHOWS
tour        -      shows it
speed       root   measures it

LAB UP  FOR    NODES
tour-2  1m30s  client nat
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("list differs (-want +got):\n%s", diff)
	}
}

func TestLabCommandsNameWhatThereIs(t *testing.T) {
	for _, args := range [][]string{{"lab", "run", "nonsense"}, {"lab", "run", "teredo", "nonsense"}, {"lab", "up", "nonsense"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var out, errors strings.Builder
			status := execute(args, streams{&out, &errors})
			if status != exitUsage || !strings.Contains(errors.String(), `"nonsense"`) || !strings.Contains(errors.String(), "nat-matrix") {
				t.Errorf("status %d, %q; want %d and a message with the names", status, errors.String(), exitUsage)
			}
		})
	}
}
