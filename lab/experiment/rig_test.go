// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// No one always follows the same, and the first failure ends it.
func TestWaysTakeTurns(t *testing.T) {
	var order []int
	note := func(_, at int) error { order = append(order, at); return nil }
	if err := inTurn(t.Context(), 3, 3, note); err != nil || len(order) != 9 {
		t.Fatalf("the order is %v, %v", order, err)
	}
	for round := range slices.Chunk(order, 3) {
		if !slices.Equal(slices.Sorted(slices.Values(round)), []int{0, 1, 2}) {
			t.Errorf("a round has the order %v", round)
		}
	}
	failed, calls := errors.New("no"), 0
	err := inTurn(t.Context(), 3, 3, func(round, at int) error {
		if calls++; round == 1 {
			return failed
		}
		return nil
	})
	if !errors.Is(err, failed) || calls != 4 {
		t.Errorf("%d slices, %v", calls, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := inTurn(ended, 1, 1, note); !errors.Is(err, context.Canceled) {
		t.Errorf("an experiment that was ended goes on: %v", err)
	}
}

// Each way has what interfaces, tables and pictures call it, and no two are alike.
func TestWaysDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range []way{wayBare, wayDirect4, wayDirect6, wayPlain, wayKernel, wayMiredo, wayTayga, wayOsmo, wayUser, wayTC, wayXDP} {
		if w.name == "" || w.title == "" || w.role == "" || w.ours() != (w.fast != "") {
			t.Errorf("%+v is not told in full", w)
		}
		if seen[w.name] || seen[w.title] {
			t.Errorf("%+v is called as another way", w)
		}
		seen[w.name], seen[w.title] = true, true
		if w.userSpace() && !w.runs() {
			t.Errorf("%s is in user space without a program", w.title)
		}
	}
}
