// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import "testing"

// SCTP in short form: every association and connection must be set up and carry data.
func TestSCTPTables(t *testing.T) {
	runShort(t, sctpThroughput, sctpFairness)
}
