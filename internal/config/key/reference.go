// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package key

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// referenceWidth is that of the comments of the reference, in characters.
const referenceWidth = 86

// Reference writes keys as a commented section of the reference, each with its default,
// or with an example if it must be set.
func Reference(section string, keys []Key) string {
	return text(section, keys, func(Key) bool { return true })
}

// Smallest writes the keys of a section that have no default, with examples.
func Smallest(section string, keys []Key) string { return text(section, keys, Key.Required) }

// text writes the keys that are chosen; tables that there must be one of stand below all
// others.
func text(section string, keys []Key, chosen func(Key) bool) string {
	var b, below strings.Builder
	for _, k := range keys {
		switch {
		case !chosen(k):
		case k.filled:
			entry := k.entry()
			SetDefaults(entry)
			header := section + "." + k.Name
			below.WriteString(Comment(k.help(" There must be one.")) + "[[" + header + "]]\n" + text(header, entry, chosen))
		default:
			k.write(&b, k.std)
		}
	}
	return b.String() + below.String()
}

func (k Key) write(b *strings.Builder, value any) {
	must := ""
	if one, required := value.(example); required {
		value = one.value
		if one.must {
			must = " Must be set."
		}
	}
	if same := reflect.ValueOf(value); same.Kind() == reflect.Pointer {
		value = same.Elem().Interface()
	}
	b.WriteString(Comment(k.help(must)))
	fmt.Fprintf(b, "%s = %s\n", k.Name, literal(written(value)))
}

// help is the key's, with whether it must be there, and what a reload does.
func (k Key) help(must string) string {
	help := k.Help + must
	switch last := len(k.unless) - 1; {
	case k.Reload != Live:
	case last < 0:
		help += " Live."
	case last == 0:
		help += fmt.Sprintf(" Live, unless %s changes too.", k.unless[0])
	default:
		help += fmt.Sprintf(" Live, unless %s or %s change too.", strings.Join(k.unless[:last], ", "), k.unless[last])
	}
	return help
}

// Comment writes a text as lines of comment.
func Comment(text string) string {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := "#"
		for word := range strings.FieldsSeq(paragraph) {
			if line != "#" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > referenceWidth {
				b.WriteString(line + "\n")
				line = "#"
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// literal is a value in TOML.
func literal(value any) string {
	switch v := value.(type) {
	case string:
		return strconv.Quote(v)
	case []any:
		list := make([]string, len(v))
		for i, one := range v {
			list[i] = literal(one)
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	return fmt.Sprint(value)
}
