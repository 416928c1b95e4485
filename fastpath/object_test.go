// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"reflect"
	"testing"
)

// Words of C and Go are one.
func TestSharedWords(t *testing.T) {
	for here, there := range map[Verdict]teredoVerdict{
		Forward: teredoVerdictVERDICT_FORWARD, Punt: teredoVerdictVERDICT_PUNT, Drop: teredoVerdictVERDICT_DROP,
	} {
		if uint32(here) != uint32(there) {
			t.Errorf("%s is %d here, %d there", here, here, there)
		}
	}
	for here, there := range map[Place]teredoHook{
		PlaceXDP: teredoHookHOOK_XDP, PlaceIngress: teredoHookHOOK_INGRESS,
		PlaceEgress: teredoHookHOOK_EGRESS, PlaceHostIngress: teredoHookHOOK_HOST_INGRESS,
	} {
		if uint32(here) != uint32(there) {
			t.Errorf("%s is %d here, %d there", here, here, there)
		}
	}
}

// Records of C and Go have the same fields at the same places.
func TestSharedRecords(t *testing.T) {
	for _, pair := range [][2]any{
		{DeviceSlot{}, teredoDevice{}}, {counterRecord{}, teredoCounter{}}, {neighbourRecord{}, teredoNeighbour{}},
	} {
		here, there := fields(pair[0]), fields(pair[1])
		if !reflect.DeepEqual(here, there) {
			t.Errorf("%T is %v, %T is %v", pair[0], here, pair[1], there)
		}
	}
}

// field is one of a record: its name, where it is, and how long.
type field struct {
	name         string
	offset, size uintptr
}

func fields(record any) (list []field) {
	t := reflect.TypeOf(record)
	for i := range t.NumField() {
		if f := t.Field(i); f.Name != "_" {
			list = append(list, field{f.Name, f.Offset, f.Type.Size()})
		}
	}
	return list
}
