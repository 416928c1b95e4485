// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"testing"

	"github.com/isthmus-net/isthmus/lab"
)

// TestAnnounceFailover runs the experiment once. It fails by itself when packets
// are lost in a drain or a stop.
func TestAnnounceFailover(t *testing.T) {
	t.Parallel()
	ctx, e := testEnv(t)
	e.Runs = 1
	if err := lab.RunAll(ctx, []lab.Experiment{announceExperiment}, e); err != nil {
		t.Fatal(err)
	}
}
