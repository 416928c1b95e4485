// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package testutil

import "testing"

// OneThread skips, under the race detector, a test that takes long there and that has one thread.
func OneThread(t *testing.T) {
	t.Helper()
	if UnderRace {
		t.Skip("takes long, and nothing runs beside")
	}
}
