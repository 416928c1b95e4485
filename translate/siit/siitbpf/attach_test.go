// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath/attach/attachtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestProgramsAttach(t *testing.T) {
	testutil.NeedRoot(t)
	attachtest.EveryHook(t, attachtest.Path[*Path]{
		Load: func(*pinned.Folder) (*Path, error) { return Load(Config{Name: "test"}) },
	})
}
