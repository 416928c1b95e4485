// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package role

import (
	"encoding/json"
	"reflect"
)

// secretTag marks a string among arguments, such as a password, that no log may show:
//
//	Password string `json:"password" secret:""`
const secretTag = "secret"

// hidden is what a log has in place of a secret.
const hidden = "(hidden)"

// forLog returns arguments of type A as a log may show them.
func forLog[A any](text json.RawMessage) string {
	arguments, err := decode[A](text)
	if err != nil {
		return ""
	}
	hide(reflect.ValueOf(&arguments).Elem())
	shown, err := json.Marshal(arguments)
	if err != nil {
		return ""
	}
	return string(shown)
}

// hide replaces the secrets of a struct, and of those that it is made of.
func hide(v reflect.Value) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem() // of nil nothing
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		field := v.Field(i)
		if _, secret := v.Type().Field(i).Tag.Lookup(secretTag); !secret {
			hide(field)
		} else if field.Len() > 0 {
			field.SetString(hidden)
		}
	}
}
