// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package key

import (
	"fmt"
	"reflect"
	"regexp"
)

// Tables declares a key whose value is a list of tables, [[section.name]], each with keys
// of its own. An entry is called a noun and could be written like the example. The
// default is an empty list.
func Tables[T any](name string, field *[]T, noun, example string, keys func(*T) []Key, reload Reload, help string) Key {
	return Key{
		Name: name, Reload: reload, Help: help, std: []string{}, field: reflect.ValueOf(field).Elem(),
		decode: func(raw any, path string, to Reporter) {
			list, ok := raw.([]any)
			if !ok {
				to.Wrong(path, Wrong(fmt.Sprintf("write [[%s]] on a line of its own, once for each %s", index.ReplaceAllString(path, ""), noun), "this is %s where a list of %ss is wanted", KindOf(raw), noun))
				return
			}
			entries := make([]T, len(list))
			for i, one := range list {
				table, ok := one.(map[string]any)
				if !ok {
					to.Wrong(path, &Fault{fmt.Sprintf("this is %s where a %s is wanted", KindOf(one), noun), "write " + example, i + 1})
					continue
				}
				Decode(keys(&entries[i]), table, fmt.Sprintf("%s[%d]", path, i), to)
			}
			*field = entries
		},
	}
}

// index is that of a table in its list, in a path.
var index = regexp.MustCompile(`\[\d+\]`)
