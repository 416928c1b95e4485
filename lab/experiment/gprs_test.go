// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import "testing"

// TestInteropOfGSNs attaches a UE for each GGSN, each emulator of an SGSN, both versions of GTP
// and both families. It pings and is served, and serves, without a loss and byte for byte.
func TestInteropOfGSNs(t *testing.T) {
	t.Parallel()
	runCells(t, coreCells(), gprsPings)
}

// TestGSNsOverIPv6 has our GGSN and our emulator talk to each other over IPv6, by both planes.
func TestGSNsOverIPv6(t *testing.T) {
	t.Parallel()
	runCells(t, []coreCell{
		{isthmus, isthmus, attachment{1, false}, core6},
		{isthmus, isthmus, attachment{1, true}, core6},
	}, 20)
}

// runCells runs cells beside each other.
func runCells(t *testing.T, cells []coreCell, pings int) {
	t.Helper()
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ctx, e := testEnv(t)
			r, err := c.run(ctx, e, pings)
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

// A UE without IPv4 reaches it, each step checks itself.
func TestXLATTour(t *testing.T) {
	t.Parallel()
	runShort(t, gprsXLAT)
}

// A router behind a UE has a prefix for the hosts behind it, and a UE has two prefixes; each step checks itself.
func TestDelegatedPrefix(t *testing.T) {
	t.Parallel()
	runShort(t, ggsnPD, sctpPrefixes)
}

// A UE with private IPv4 reaches IPv6, and is reached, whatever NAT is at its GGSN.
func TestTeredoBehindGGSN(t *testing.T) {
	t.Parallel()
	runShort(t, gprsTeredo)
}

// What is above the rate of a context is dropped, and what is below it is not.
func TestRatesOfContexts(t *testing.T) {
	t.Parallel()
	runShort(t, gprsQoS)
}

// What sessions have carried is the same to the octet by all accounts, whoever is killed; each step checks itself.
func TestAccounts(t *testing.T) {
	t.Parallel()
	runShort(t, gprsAccounting)
}
