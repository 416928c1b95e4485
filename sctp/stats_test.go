// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"reflect"
	"testing"
)

// TestEveryCounterIsListed counts one in each field, and finds it once in the list, by names that are each there once.
func TestEveryCounterIsListed(t *testing.T) {
	var s Stats
	total := func() (n uint64) {
		names := map[string]bool{}
		for _, one := range s.List() {
			if n += one.Value; one.Name == "" || one.Help == "" || names[one.Name] {
				t.Errorf("%+v has no name, or another's, or no help", one)
			}
			names[one.Name] = true
		}
		return n
	}
	var fields func(v reflect.Value)
	fields = func(v reflect.Value) {
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch f := v.Field(i); {
			case f.Kind() == reflect.Struct:
				fields(f)
			case f.Kind() == reflect.Uint64:
				f.SetUint(1)
				if n := total(); n != 1 {
					t.Errorf("%s: the list has %d", name, n)
				}
				f.SetUint(0)
			case name != "Associations": // which are there now
				t.Errorf("%s is no counter", name)
			}
		}
	}
	fields(reflect.ValueOf(&s).Elem())
}
