// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath/attach/attachtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

// TestProgramsAttach attaches the programs, and the one that steers behind them.
func TestProgramsAttach(t *testing.T) {
	testutil.NeedRoot(t)
	attachtest.EveryHook(t, attachtest.Path[*Path]{
		Load: func(pins *pinned.Folder) (*Path, error) {
			return Load(Config{Name: "test", Sizes: someSizes, Pins: pins})
		},
		Kept: true, Steer: (*Path).SteerPrograms,
	})
}
