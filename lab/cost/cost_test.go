// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"fmt"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// Programs must forward what they are measured with, whatever the number of entries, and
// nothing costs less than nothing.
func TestMeasure(t *testing.T) {
	testutil.NeedRoot(t)
	for _, c := range []struct {
		role, entries string
		measure       func(context.Context, Options) ([]Row, error)
		numbers       []int
	}{
		{"relay", "peers", Measure, []int{1 << 8}},
		{"stateful translator", "sessions", MeasureNAT64, []int{1 << 8, 1 << 12}},
		{"stateless translator", "mappings", MeasureSIIT, []int{1 << 8, 1 << 12}},
	} {
		t.Run(c.role, func(t *testing.T) {
			rows, err := c.measure(t.Context(), Options{Peers: c.numbers, Sizes: []int{64, 1280}, Repeat: 1 << 13, Rounds: 3})
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != 4*len(c.numbers) {
				t.Fatalf("%d rows", len(rows))
			}
			for _, r := range rows {
				median, least, greatest := r.Net()
				if least > median || median > greatest || len(r.Gross) != 3 {
					t.Errorf("%+v: %v %v %v", r, least, median, greatest)
				}
				t.Logf("%s, %d %s, %d bytes: %.0f ns a packet", r.Direction, r.Peers, c.entries, r.Size, median)
			}
		})
	}
}

// BenchmarkProgram prints the table of costs, in nanoseconds a packet.
func BenchmarkProgram(b *testing.B) {
	testutil.NeedRoot(b)
	for b.Loop() {
		rows, err := Measure(b.Context(), Defaults())
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range rows {
			median, least, greatest := r.Net()
			fmt.Printf("%s, %d peers, %d bytes: %.0f ns a packet (%.0f to %.0f)\n", r.Direction, r.Peers, r.Size, median, least, greatest)
		}
	}
}

// All sessions must be made, and all connections carried to their end.
func TestMeasureNAT64New(t *testing.T) {
	testutil.NeedRoot(t)
	rows, err := MeasureNAT64New(t.Context(), Options{Peers: []int{1 << 12}, Rounds: 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		if len(r.Each) != 2 {
			t.Errorf("%+v", r)
		}
		t.Logf("%s: %.0f a second", r.Transport, r.PerSecond())
	}
}
