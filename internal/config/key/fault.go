// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package key

import (
	"fmt"
	"strings"
)

// Fault is what a parser has to say of a value; where that stands is not its business.
type Fault struct {
	// Problem says what is wrong, Remedy what to write instead.
	Problem, Remedy string
	// Element is an index in a list, plus one; 0 is the whole value.
	Element int
}

// Wrong returns a fault whose problem is formatted.
func Wrong(remedy, problem string, args ...any) *Fault {
	return &Fault{Problem: fmt.Sprintf(problem, args...), Remedy: remedy}
}

// Err turns a fault into an error for people who gave no file; nil is none.
func (f *Fault) Err() error {
	if f == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", f.Problem, f.Remedy)
}

// Nearest returns the word that differs from the given one by at most two letters, or
// in spelling with hyphens; empty if there is none.
func Nearest(word string, words []string) string {
	word = strings.ReplaceAll(strings.ToLower(word), "-", "_")
	best, distance := "", 3
	for _, w := range words {
		if d := edits(word, w); d < distance && d < len(w) {
			best, distance = w, d
		}
	}
	return best
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
