// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import "testing"

// TestInteropOfGSNs attaches a UE for each GGSN, each emulator of an SGSN, both versions of GTP
// and both families. It pings and is served, and serves, without a loss and byte for byte.
func TestInteropOfGSNs(t *testing.T) {
	t.Parallel()
	for _, c := range coreCells() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ctx, e := testEnv(t)
			r, err := c.run(ctx, e, gprsPings)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range r.faults() {
				t.Error(fault)
			}
		})
	}
}

// Each terminal gets its address, time after time, of each GGSN.
func TestAttachTable(t *testing.T) { runShort(t, gprsAttach) }
