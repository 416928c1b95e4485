// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package teredo

import (
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

func TestFaultsAreNamed(t *testing.T) {
	seen := map[string]Fault{}
	for f := range numFaults {
		name := f.Error()
		if name == "" {
			t.Errorf("fault %d has no name", f)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("faults %d and %d are both %q", f, other, name)
		}
		seen[name] = f
	}
	if got := numFaults.Error(); got != "unknown" {
		t.Errorf("fault out of range is %q", got)
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	good := testutil.Unhex(t, "0001 00 00 0102030405060708 00 0000 feae fefdfcfb"+bubbleAB+"0104 11223344")
	bad := good[:20]
	if n := testing.AllocsPerRun(100, func() {
		p, _ := Parse(good)
		_, _ = ParseTrailers(p.Trailers)
		_, _ = Parse(bad)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
