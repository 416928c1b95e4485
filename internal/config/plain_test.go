// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pelletier/go-toml/v2"
)

// plainTexts are texts of sections [[x]], and whether they are read section by section.
var plainTexts = []struct {
	name, text string
	plain      bool
}{
	{"nothing", "", true},
	{"comments alone", "# [[y]]\n\n  # a = 1", true},
	{"every kind of value", "[[x]]\na = \"\\u00e4\\n\"\nb = 'c\\d'\nc = \"\"\"\ntwo\nlines\"\"\"\nd = true\ne = -7\nf = 0x1F\ng = 1_000\nh = 2.5\ni = nan\n" +
		"j = 2030-01-31\nk = 2030-01-31T12:00:00Z\nl = 12:00:00\nm = [1, \"a\", [true, []], # a remark\n 2030-01-31]\nn = +0\no = -0\np = 9223372036854775807\n", true},
	{"tables below, and none", "[[x]]\n\"a\" = 1\n[[x.y]]\na = 2\n[[ x . 'y' ]]\n[[x.z]]\nb = 3\n[[x]]\n[[x]] # the last\r\na = 1", true},
	{"one section like another", "[[x]]\na = 1\n[[x.y]]\nb = 1\n[[x.y]]\nc = 1\n[[x]]\nd = 1\n[[x.y]]\ne = 1\n[[x.z]]\nf = 1\n[[x]]\na = 2", true},
	{"a key that is there twice", "[[x]]\na = 1\n'a' = 2", false},
	{"a key of several parts", "[[x]]\na.b = 1", false},
	{"a key in capitals", "[[x]]\nA = 1", false},
	{"a key outside", "a = 1\n[[x]]", false},
	{"an inline table", "[[x]]\na = { b = 1 }", false},
	{"an inline table in a list", "[[x]]\na = [[{ b = 1 }]]\n", false},
	{"sections as a value", "x = [{ a = 1 }]", false},
	{"another section", "[[y]]", false},
	{"another section of one", "[y]\n[[x]]", false},
	{"a section that there is one of", "[x]", false},
	{"a table that there is one of", "[[x]]\n[x.y]\na = 1", false},
	{"a table of another section", "[[x]]\n[[y.x]]", false},
	{"a table before the section", "[[x.y]]\n[[x]]", false},
	{"a table in a table", "[[x]]\n[[x.y]]\n[[x.y.z]]", false},
	{"tables in place of a list", "[[x]]\ny = []\n[[x.y]]", false},
	{"tables in place of text", "[[x]]\ny = \"a\"\n[[x.y]]", false},
	{"a number that is too large", "[[x]]\na = 9223372036854775808", false},
	{"a number with a zero in front", "[[x]]\na = 007", false},
	{"a date that is none", "[[x]]\na = [2026-02-31]", false},
	{"no value", "[[x]]\na = b", false},
	{"no end", "[[x]]\na = \"b", false},
	{"no UTF-8", "[[x]]\na = \"\xff\"", false},
}

// readPlain reads the sections [[x]] of a text.
func readPlain(text string) (sections []any, plain bool) {
	plain = eachPlain([]byte(text), "x", func(_ int, table map[string]any) { sections = append(sections, copied(table)) })
	return sections, plain
}

// copied is a table with copies of those in its lists.
func copied(table map[string]any) map[string]any {
	table = maps.Clone(table)
	for name, value := range table {
		list, _ := value.([]any)
		list = slices.Clone(list)
		for i := range list {
			if below, ok := list[i].(map[string]any); ok {
				list[i], table[name] = copied(below), list
			}
		}
	}
	return table
}

// sameAsWhole compares what was read section by section with the decoder's picture of the whole.
func sameAsWhole(t *testing.T, text string, sections []any) {
	t.Helper()
	var whole map[string]any
	if err := toml.Unmarshal([]byte(text), &whole); err != nil {
		t.Fatalf("the decoder refuses it: %v", err)
	}
	want := map[string]any{}
	if len(sections) > 0 {
		want["x"] = sections
	}
	if diff := cmp.Diff(whole, want, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-decoder +section by section):\n%s", diff)
	}
}

// TestPlain reads texts section by section as the decoder does at once, and leaves to it what is not plain.
func TestPlain(t *testing.T) {
	for _, tt := range plainTexts {
		t.Run(tt.name, func(t *testing.T) {
			sections, plain := readPlain(tt.text)
			if plain != tt.plain {
				t.Fatalf("plain: %v", plain)
			}
			if plain {
				sameAsWhole(t, tt.text, sections)
			}
		})
	}
}

// FuzzPlain does so with any text.
func FuzzPlain(f *testing.F) {
	for _, tt := range plainTexts {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if sections, plain := readPlain(text); plain {
			sameAsWhole(t, text, sections)
		}
	})
}
