// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package key

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"sync"
)

// Tables declares a key whose value is a list of tables, [[section.name]], each with keys
// of its own. An entry is called a noun and could be written like the example. The
// default is an empty list. Where one of its keys is an [Identity], a reload goes by the
// entry: reload says whether entries may come and go, and each key what may become of it.
func Tables[T any](name string, field *[]T, noun, example string, keys func(*T) []Key, reload Reload, help string) Key {
	decoder := sync.OnceValue(func() *Decoder[T] { return NewDecoder(keys) })
	return Key{
		Name: name, Reload: reload, Help: help, std: []string{}, entry: func() []Key { return keys(new(T)) }, field: reflect.ValueOf(field).Elem(),
		merge: func(running, next any) (any, []string) {
			return mergeTables(name, keys, reload, running.([]T), next.([]T))
		},
		decode: func(raw any, at *Place) {
			list, ok := raw.([]any)
			if !ok {
				at.wrong(Wrong(fmt.Sprintf("write [[%s]] on a line of its own, once for each %s", withoutIndexes(at.path), noun), "this is %s where a list of %ss is wanted", KindOf(raw), noun))
				return
			}
			entries := make([]T, len(list))
			for i, one := range list {
				table, ok := one.(map[string]any)
				if !ok {
					at.wrong(&Fault{fmt.Sprintf("this is %s where a %s is wanted", KindOf(one), noun), "write " + example, i + 1})
					continue
				}
				at.Entry(i, func() { entries[i] = decoder().Decode(table, at) })
			}
			*field = entries
		},
	}
}

// mergeTables merges lists of named tables, in the order of next; entries that have gone and
// must stay until a restart follow.
func mergeTables[T any](name string, keys func(*T) []Key, reload Reload, running, next []T) (merged []T, needsRestart []string) {
	merged = make([]T, 0, len(next))
	rest := slices.Clone(running)
	for i := range next {
		id := identity(keys(&next[i]))
		at := slices.IndexFunc(rest, func(r T) bool { return identity(keys(&r)) == id })
		switch {
		case at >= 0:
			var both T
			for _, waiting := range Merge(keys(&both), keys(&rest[at]), keys(&next[i])) {
				needsRestart = append(needsRestart, fmt.Sprintf("%s %s %s", name, id, waiting))
			}
			merged, rest = append(merged, both), slices.Delete(rest, at, at+1)
		case reload == Live:
			merged = append(merged, next[i])
		default:
			needsRestart = append(needsRestart, name+" "+id)
		}
	}
	if reload == Live {
		return merged, needsRestart
	}
	for i := range rest {
		needsRestart = append(needsRestart, name+" "+identity(keys(&rest[i])))
	}
	return append(merged, rest...), needsRestart
}

// identity is what tells an entry from others.
func identity(keys []Key) string {
	for _, k := range keys {
		if k.Reload == Identity {
			return fmt.Sprint(k.Value())
		}
	}
	return ""
}

// withoutIndexes is a path without those of tables in their lists.
func withoutIndexes(path []byte) []byte {
	return regexp.MustCompile(`\[\d+\]`).ReplaceAll(path, nil)
}
