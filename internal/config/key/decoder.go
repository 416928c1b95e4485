// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package key

import "reflect"

// Decoder makes values of one type, of a table of the file each. Keys are bound once, to a value of its own,
// and defaults are parsed once, so that a table costs little more than what stands in it.
type Decoder[T any] struct {
	value *T // what the keys are bound to
	std   T  // it, with every default
	keys  []Key
}

// NewDecoder returns one for values to which these keys are bound.
func NewDecoder[T any](bind func(*T) []Key) *Decoder[T] {
	d := &Decoder[T]{value: new(T)}
	d.keys = bind(d.value)
	SetDefaults(d.keys)
	d.std = *d.value
	for i := range d.keys {
		d.keys[i].copied = d.keys[i].copies()
	}
	return d
}

// Decode returns what [Decode] makes of a table.
func (d *Decoder[T]) Decode(table map[string]any, at *Place) T {
	*d.value = d.std
	Decode(d.keys, table, at)
	return *d.value
}

// copies reports whether a copy of the default is as good as another parsed anew. It is not where it hangs on
// another key, or where values would share what it points to.
func (k *Key) copies() bool {
	if reflect.ValueOf(k.std).Kind() == reflect.Pointer {
		return false
	}
	switch k.field.Kind() {
	case reflect.Slice, reflect.Map:
		return k.field.Len() == 0
	case reflect.Pointer, reflect.Interface:
		return k.field.IsNil()
	}
	return true
}
