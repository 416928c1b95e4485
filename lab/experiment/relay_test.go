// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/lab"
)

// Both relay tables in short form: every path must carry packets in both
// directions and lose no single one. What the figures are is for the long form.
func TestRelayTables(t *testing.T) {
	ctx, e := testEnv(t)
	e.Runs = 2
	for _, x := range []lab.Experiment{relayThroughput, relayLatency} {
		t.Run(x.Name, func(t *testing.T) {
			var out strings.Builder
			e.Out = &out
			if err := x.Run(ctx, e); err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(out.String()) {
				if strings.HasPrefix(line, "IPv") && strings.Contains(line, " 0 (0 to 0)") {
					t.Errorf("a path carries nothing: %s", line)
				}
			}
			t.Log(out.String())
		})
	}
}
