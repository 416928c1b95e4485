// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath/attach/attachtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestProgramsAttach(t *testing.T) {
	testutil.NeedRoot(t)
	attachtest.EveryHook(t, attachtest.Path[*Relay]{
		Load: func(pins *pinned.Folder) (*Relay, error) {
			return LoadRelay(RelayConfig{Name: "test", Buckets: 64, Foreign: 16, Pins: pins})
		},
		Kept: true,
	})
}
