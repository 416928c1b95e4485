// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsn

import (
	"testing"
	"unsafe"
)

// TestSizes: what a context costs is known. Indexes, timers and leases come on top: see
// BenchmarkMemory.
func TestSizes(t *testing.T) {
	if s, c := unsafe.Sizeof(session{}), unsafe.Sizeof(pdpContext{}); s > 176 || c > 208 {
		t.Errorf("a session takes %d octets, a context %d", s, c)
	}
}
