// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package nat64bpf

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
)

func TestObjectsOfAllArchitecturesLoad(t *testing.T) { fastpathtest.ObjectsLoad(t) }

// What all programs share is in Go as it is in C.
func TestSharedLayout(t *testing.T) {
	fastpathtest.SameRecord(t, fastpath.DeviceSlot{}, nat64Device{})
	fastpathtest.SameRecord(t, fastpath.CounterRecord{}, nat64Counter{})
	fastpathtest.SameRecord(t, fastpath.NeighbourRecord{}, nat64Neighbour{})
}
