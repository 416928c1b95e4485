// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/lab"
)

// The relay tables in short form: every path must carry packets in both directions
// and lose no single one, packets must take the path that their column is named
// after, and a restart must keep the peers. What the figures are is for the long
// form.
func TestRelayTables(t *testing.T) {
	for _, x := range []lab.Experiment{relayThroughput, relayLatency, relayOverload, relayRestart, clientThroughput} {
		t.Run(x.Name, func(t *testing.T) {
			ctx, e := testEnv(t)
			e.Runs = 2
			if x.Name == restartName {
				e.Runs = 1 // each is several restarts in a row
			}
			var out strings.Builder
			e.Out = &out
			if err := x.Run(ctx, e); err != nil {
				t.Error(err)
			}
			t.Log(out.String())
		})
	}
}
