// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import "testing"

// Associations go over silent cuts, and their clocks are read.
func TestSCTPFailover(t *testing.T) {
	t.Parallel()
	runShort(t, sctpFailover)
}
