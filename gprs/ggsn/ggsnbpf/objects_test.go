// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnbpf

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/attach/attachtest"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
	"github.com/isthmus-net/isthmus/fastpath/pinned"
	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestObjectsOfAllArchitecturesLoad(t *testing.T) { fastpathtest.ObjectsLoad(t) }

// What all programs share is in Go as it is in C, and so is what the engine writes.
func TestSharedLayout(t *testing.T) {
	fastpathtest.SameRecord(t, fastpath.DeviceSlot{}, ggsnDevice{})
	fastpathtest.SameRecord(t, fastpath.CounterRecord{}, ggsnCounter{})
	fastpathtest.SameRecord(t, fastpath.NeighbourRecord{}, ggsnNeighbour{})
	fastpathtest.SameRecord(t, ggsn.SharedContext{}, ggsnContext{})
	fastpathtest.SameRecord(t, ggsn.SharedWay{}, ggsnWay{})
	fastpathtest.SameRecord(t, ggsn.SharedRate{}, ggsnRate{})
	fastpathtest.SameRecord(t, ggsn.SharedAggregate{}, ggsnAggregate{})
}

// Programs are attached by every hook, and those of a successor in their place.
func TestProgramsAttach(t *testing.T) {
	testutil.NeedRoot(t)
	attachtest.EveryHook(t, attachtest.Path[*Path]{
		Load: func(*pinned.Folder) (*Path, error) { return Load(Config{Name: "test", Contexts: 100}) },
	})
}
