// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import "reflect"

// Diff lists the keys in which two sections of the same kind differ, in the
// order of the file. A Reloader uses it to tell what it applied from what needs
// a restart.
func Diff[T Server | Relay | Client | NAT64 | SIIT](old, new T) []string {
	return diff(reflect.ValueOf(old), reflect.ValueOf(new))
}

func diff(a, b reflect.Value) []string {
	var keys []string
	for i := range a.NumField() {
		if a.Type().Field(i).Anonymous {
			keys = append(keys, diff(a.Field(i), b.Field(i))...)
		} else if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			keys = append(keys, a.Type().Field(i).Tag.Get("key"))
		}
	}
	return keys
}
