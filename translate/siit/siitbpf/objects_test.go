// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package siitbpf

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
)

func TestObjectsOfAllArchitecturesLoad(t *testing.T) { fastpathtest.ObjectsLoad(t) }

// What all programs share is in Go as it is in C.
func TestSharedLayout(t *testing.T) {
	fastpathtest.SameRecord(t, fastpath.DeviceSlot{}, siitDevice{})
	fastpathtest.SameRecord(t, fastpath.CounterRecord{}, siitCounter{})
	fastpathtest.SameRecord(t, fastpath.NeighbourRecord{}, siitNeighbour{})
}
