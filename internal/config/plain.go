// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// eachPlain calls a function with each of a text's [[name]] sections, in their order, without ever having all of
// them: the decoder's picture of a file of a hundred thousand costs more than all else that is done with it. The
// table is what the decoder would make of the section; it is the function's until that returns, and is filled anew then.
//
// False says that the text is not as plain as it takes, and that calls may be void: only the whole tells what is
// wrong with it, if anything. Plain are headers [[name]] and [[name.list]], and below them keys of one part in small
// letters, once each, with values that have no tables in them.
func eachPlain(text []byte, name string, call func(n int, table map[string]any)) bool {
	s := plainSections{name: name, call: call, names: map[string]string{}, texts: map[string]any{}}
	s.parser.Reset(text)
	for s.parser.NextExpression() {
		if !s.take(s.parser.Expression()) {
			return false
		}
	}
	s.end()
	return s.parser.Error() == nil
}

// plainSections are what is known amid a text.
type plainSections struct {
	parser unstable.Parser
	name   string
	call   func(n int, table map[string]any)

	n       int               // sections that have ended
	section map[string]any    // the one that has begun; nil: none
	table   map[string]any    // it or what is below it: where keys go
	names   map[string]string // of keys, so that each is there once
	texts   map[string]any    // values, so that what stands in all sections is there once
	tables  []map[string]any  // that sections were made of
	used    int               // of these, by the section that has begun
}

// take takes an expression; false: it is not plain.
func (s *plainSections) take(node *unstable.Node) bool {
	switch node.Kind {
	case unstable.ArrayTable:
		return s.header(node)
	case unstable.KeyValue:
		return s.pair(node)
	}
	return false
}

// header begins a section, or a table of a list in the one that has begun.
func (s *plainSections) header(node *unstable.Node) bool {
	first := node.Child()
	list := first.Next()
	switch {
	case string(first.Data) != s.name:
		return false
	case list == nil:
		s.end()
		s.section = s.empty()
		s.table = s.section
		return true
	case s.section == nil || list.Next() != nil:
		return false
	}
	name, ok := s.word(list.Data)
	before, there := s.section[name]
	tables, _ := before.([]any)
	if !ok || there && (len(tables) == 0 || !isTable(tables[0])) { // a value of that name
		return false
	}
	s.table = s.empty()
	s.section[name] = append(tables, s.table)
	return true
}

// end ends the section that has begun.
func (s *plainSections) end() {
	if s.section != nil {
		s.call(s.n, s.section)
		s.n++
		s.used = 0
	}
}

// empty returns a table for the section that has begun.
func (s *plainSections) empty() map[string]any {
	if s.used == len(s.tables) {
		s.tables = append(s.tables, map[string]any{})
	}
	table := s.tables[s.used]
	s.used++
	clear(table)
	return table
}

// pair takes a key and its value.
func (s *plainSections) pair(node *unstable.Node) bool {
	first := node.Value().Next()
	name, ok := s.word(first.Data)
	if _, again := s.table[name]; !ok || again || s.table == nil || first.Next() != nil {
		return false
	}
	value, ok := s.value(node.Value())
	s.table[name] = value
	return ok
}

// word returns the name of a key; false: it has capitals.
func (s *plainSections) word(text []byte) (string, bool) {
	name, known := s.names[string(text)]
	if !known {
		name = string(text)
		if strings.ToLower(name) != name {
			return "", false
		}
		s.names[name] = name
	}
	return name, true
}

// maxTexts bounds the texts that are remembered.
const maxTexts = 256

// text returns a text.
func (s *plainSections) text(data []byte) any {
	one, known := s.texts[string(data)]
	if !known {
		one = string(data)
		if len(s.texts) < maxTexts {
			s.texts[string(data)] = one
		}
	}
	return one
}

// value returns a value as the decoder has it; false: it has a table in it, or is wrong.
func (s *plainSections) value(node *unstable.Node) (any, bool) {
	switch node.Kind {
	case unstable.String:
		return s.text(node.Data), true
	case unstable.Array:
		list := []any{}
		for each := node.Children(); each.Next(); {
			value, ok := s.value(each.Node())
			if !ok {
				return nil, false
			}
			list = append(list, value)
		}
		return list, true
	case unstable.InlineTable:
		return nil, false
	}
	if n, err := strconv.ParseInt(string(node.Data), 10, 64); err == nil && strconv.FormatInt(n, 10) == string(node.Data) {
		return n, true
	}
	// Of other numbers, dates and times the decoder knows more.
	var one map[string]any
	err := toml.Unmarshal(append([]byte("v = "), node.Data...), &one)
	return one["v"], err == nil
}

func isTable(value any) bool {
	_, table := value.(map[string]any)
	return table
}
