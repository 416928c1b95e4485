// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package key declares the keys of a section of the configuration. Each is one
// line that binds a name to a field, with its default, the parser that knows type
// and range, what a reload may do with it, and help. The decoder, defaults,
// differences, what waits for a restart, and the reference are made of these
// lines.
package key

import (
	"fmt"
	"reflect"
	"slices"
)

// Reload says what becomes of a changed key in a running instance.
type Reload uint8

// What a reload may do.
const (
	// Restart keeps the old value until the program starts again.
	Restart Reload = iota
	// Live takes effect at once.
	Live
	// Identity distinguishes instances: with another value it is another instance.
	Identity
)

// Key is one key, bound to the field of one value.
type Key struct {
	Name   string
	Reload Reload
	// Help says what the key is for, in whole sentences.
	Help string

	std    any      // the default, as the file would have it
	unless []string // keys that, when they change too, have this one wait for a restart
	decode func(raw any, at *Place)
	field  reflect.Value // what the key is bound to
	// entry are the keys of an entry of a list of named tables, and filled tells that there
	// must be one.
	entry  func() []Key
	filled bool
	hidden bool
	copied bool // the field has its default, by a [Decoder]
	// merge is [Merge] of the entries of two lists of tables.
	merge func(running, next any) (merged any, needsRestart []string)
}

// example is in place of the default of a key that has none.
type example struct {
	value any
	must  bool
}

// MustSet is the default of a key that has none; value is an example.
func MustSet(value any) any { return example{value, true} }

// Example is the default of a key that has none and may stay out where others are set.
func Example(value any) any { return example{value, false} }

// Of declares a key. The default std is as the file would have it: text, a whole
// number, true or false, a list of these, or [MustSet]. It may also be a pointer to
// the field of an earlier key: then the value is the same as that one's.
func Of[T any](name string, field *T, std any, parse Parser[T], reload Reload, help string) Key {
	return Key{
		Name: name, Reload: reload, Help: help, std: std, field: reflect.ValueOf(field).Elem(),
		decode: func(raw any, at *Place) {
			value, f := parse(raw)
			if f != nil {
				at.wrong(f)
				return
			}
			*field = value
		},
	}
}

// Unless has a live key wait for a restart where other keys, which do, have changed too.
func (k Key) Unless(others ...string) Key {
	k.unless = others
	return k
}

// Hidden marks a secret, which no error shows with the line that it stands in.
func (k Key) Hidden() Key {
	k.hidden = true
	return k
}

// Shown lists the names of keys that errors may show, those of tables below them among them.
func Shown(keys []Key) (names []string) {
	for _, k := range keys {
		if !k.hidden {
			names = append(names, k.Name)
		}
		if k.entry != nil {
			names = append(names, Shown(k.entry())...)
		}
	}
	return names
}

// Entry names the keys of an entry, where the value is a list of tables.
func (k Key) Entry() []string {
	if k.entry == nil {
		return nil
	}
	return Names(k.entry())
}

// Value is what the field holds.
func (k Key) Value() any { return k.field.Interface() }

// Required reports whether the key has no default, and stands in the least of a section.
func (k Key) Required() bool {
	_, required := k.std.(example)
	return required || k.filled
}

// MustFill has a list of tables need an entry: references show one in full.
func (k Key) MustFill() Key {
	k.filled = true
	return k
}

// setDefault gives the field its default. One that the key's own parser refuses is a
// fault of the program.
func (k *Key) setDefault() {
	if _, none := k.std.(example); none {
		return
	}
	if same := reflect.ValueOf(k.std); same.Kind() == reflect.Pointer {
		k.field.Set(same.Elem())
		return
	}
	k.decode(written(k.std), At(k.Name, refused{}))
}

// refused is a [Reporter] of defaults, which nothing is wrong with.
type refused struct{}

func (refused) Wrong(path string, f *Fault) {
	panic(fmt.Sprintf("the default of the key %s: %v", path, f.Err()))
}

func (refused) Unknown(path string, _ []string) { panic("a default has the unknown key " + path) }

// written turns a value of Go into what the decoder of TOML makes of its text.
func written(value any) any {
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Int:
		return v.Int()
	case reflect.String:
		return v.String()
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = written(v.Index(i).Interface())
		}
		return list
	}
	return value
}

// SetDefaults gives every field its default. Those of keys that must be set stay as
// they are.
func SetDefaults(keys []Key) {
	for _, k := range keys {
		k.setDefault()
	}
}

// Decode sets fields by a table of the file that stands at a place, and all others to
// their defaults. A field whose value is wrong keeps its default.
func Decode(keys []Key, table map[string]any, at *Place) {
	known := 0
	for i := range keys {
		k := &keys[i]
		if !k.copied {
			k.setDefault()
		}
		if raw, there := table[k.Name]; there {
			known++
			at.below(k, raw)
		}
	}
	if known < len(table) {
		at.unknown(table, Names(keys))
	}
}

// Names lists the keys.
func Names(keys []Key) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	return names
}

// Merge sets the fields of into to what a reload from running to next makes of them:
// live keys get the new value, others keep the old one; entries of named tables are merged
// one by one. All three are the keys of one section, for three values. It returns the names
// of those that wait for a restart.
func Merge(into, running, next []Key) (needsRestart []string) {
	changed := Changed(running, next)
	for i, k := range into {
		held := slices.ContainsFunc(k.unless, func(other string) bool { return slices.Contains(changed, other) })
		value := running[i]
		switch {
		case !slices.Contains(changed, k.Name):
		case k.merge != nil && slices.ContainsFunc(k.entry(), func(k Key) bool { return k.Reload == Identity }): // they are named
			merged, waiting := k.merge(value.Value(), next[i].Value())
			k.field.Set(reflect.ValueOf(merged))
			needsRestart = append(needsRestart, waiting...)
			continue
		case k.Reload == Live && !held:
			value = next[i]
		default:
			needsRestart = append(needsRestart, k.Name)
		}
		k.field.Set(value.field)
	}
	return needsRestart
}

// Changed returns the names of the keys whose values differ. Both are those of one section.
func Changed(running, next []Key) (names []string) {
	for i, k := range running {
		if !reflect.DeepEqual(k.Value(), next[i].Value()) {
			names = append(names, k.Name)
		}
	}
	return names
}
