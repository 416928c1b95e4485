// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import "testing"

// The user plane of GGSNs in short form: each must open a context, carry packets in both
// directions and lose no single one.
func TestGTPUTables(t *testing.T) {
	runShort(t, gtpuThroughput, gtpuLatency)
}
