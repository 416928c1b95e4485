// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import "testing"

// The testbed comes up, and its radios carry packets.
func TestUMTSWLAN(t *testing.T) {
	t.Parallel()
	runShort(t, umtsWLAN)
}

// One bill has what a subscriber has had of both networks.
func TestUMTSWLANBill(t *testing.T) {
	t.Parallel()
	runShort(t, umtsWLANBill)
}

// Associations go from WLAN to UMTS and back.
func TestSCTPSeamless(t *testing.T) {
	t.Parallel()
	runShort(t, sctpSeamless)
}

// An association returns to a WLAN that comes back without a word.
func TestSCTPHandover(t *testing.T) {
	t.Parallel()
	runShort(t, sctpHandover)
}
