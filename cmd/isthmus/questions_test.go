// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What has not happened is left out, and what there is none of is not: that may be the reason.
func TestStatsAreWritten(t *testing.T) {
	var text strings.Builder
	stats{{
		Instance: "ggsn",
		Values:   map[string]float64{"created_total": 0, "ended_total": 2, "pool_addresses{free}": 0},
		Dropped:  map[string]uint64{"stranger": 3, "truncated": 0},
	}}.Write(&text)
	want := "ggsn\n  ended\t2\n  pool addresses{free}\t0\n  dropped: stranger\t3\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
