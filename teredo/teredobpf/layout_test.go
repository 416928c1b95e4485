// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredobpf

import (
	"testing"

	"github.com/isthmus-net/isthmus/fastpath"
	"github.com/isthmus-net/isthmus/fastpath/fastpathtest"
)

// What all programs share is in Go as it is in C.
func TestSharedLayout(t *testing.T) {
	fastpathtest.SameRecord(t, fastpath.DeviceSlot{}, teredoDevice{})
	fastpathtest.SameRecord(t, fastpath.CounterRecord{}, teredoCounter{})
	fastpathtest.SameRecord(t, fastpath.NeighbourRecord{}, teredoNeighbour{})
	for here, there := range map[fastpath.Verdict]teredoVerdict{
		fastpath.Forward: teredoVerdictVERDICT_FORWARD, fastpath.Punt: teredoVerdictVERDICT_PUNT, fastpath.Drop: teredoVerdictVERDICT_DROP,
	} {
		if uint32(here) != uint32(there) {
			t.Errorf("%s is %d here, %d there", here, here, there)
		}
	}
	for here, there := range map[fastpath.Place]teredoHook{
		fastpath.PlaceXDP: teredoHookHOOK_XDP, fastpath.PlaceIngress: teredoHookHOOK_INGRESS,
		fastpath.PlaceEgress: teredoHookHOOK_EGRESS, fastpath.PlaceHostIngress: teredoHookHOOK_HOST_INGRESS,
	} {
		if uint32(here) != uint32(there) {
			t.Errorf("%s is %d here, %d there", here, here, there)
		}
	}
}
