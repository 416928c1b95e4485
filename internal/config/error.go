// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"sort"
	"strings"
)

// Error is one fault of a configuration file, told so that its reader can mend
// it without looking anything up.
type Error struct {
	// File is the name that was given to Parse.
	File string
	// Line and Column are where Text starts, counted from 1 in bytes.
	Line, Column int
	// Key is the section and key, as in "server.address"; empty for text that
	// is not TOML.
	Key string
	// Problem says what is wrong, Remedy what to write instead.
	Problem, Remedy string
	// Source is the whole line; Width is how many bytes of it offend.
	Source string
	Width  int
}

// Error prints place, key, problem and remedy, and below them the line with the
// offending text underlined:
//
//	isthmus.toml:2:11: server.address: "192.0.2" is not an IPv4 address: write it like 192.0.2.1
//	  2 | address = "192.0.2"
//	    |           ^^^^^^^^^
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", e.File, e.Line, e.Column)
	if e.Key != "" {
		fmt.Fprintf(&b, "%s: ", e.Key)
	}
	fmt.Fprintf(&b, "%s: %s\n", e.Problem, e.Remedy)
	number := fmt.Sprintf("%3d", e.Line)
	fmt.Fprintf(&b, "%s | %s\n", number, e.Source)
	fmt.Fprintf(&b, "%s | %s%s", strings.Repeat(" ", len(number)), indent(e.Source, e.Column-1), strings.Repeat("^", max(e.Width, 1)))
	return b.String()
}

// indent returns white space as wide as the first n bytes of the line: tabs stay
// tabs, so that the caret stands right at any tab width.
func indent(line string, n int) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, line[:min(max(n, 0), len(line))])
}

// Errors are all faults of one file, in the order of the file.
type Errors []*Error

// Error prints one fault after the other.
func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap lets errors.As find a single fault.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, one := range e {
		list[i] = one
	}
	return list
}

// inOrder sorts the faults by place and returns nil as an error if there is
// none.
func (e Errors) inOrder() error {
	if len(e) == 0 {
		return nil
	}
	sort.SliceStable(e, func(i, j int) bool {
		if e[i].Line != e[j].Line {
			return e[i].Line < e[j].Line
		}
		return e[i].Column < e[j].Column
	})
	return e
}
