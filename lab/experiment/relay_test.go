// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"testing"
)

// The relay tables in short form: every path must carry packets in both directions
// and lose no single one, packets must take the path that their column is named
// after, and a restart must keep the peers. What the figures are is for the long
// form.
func TestRelayTables(t *testing.T) {
	runShort(t, relayThroughput, relayLatency, relayOverload, relayRestart, relayInPlace, clientThroughput)
}

// Table 1 of AINA 2005 is of the sheet that the pictures show: the means agree.
func TestPublishedHistogram(t *testing.T) {
	for _, p := range publishedLatencies {
		for _, d := range []direction{toIPv4, toIPv6} {
			if p.column == "" {
				continue
			}
			sum, packets := 0.0, 0.0
			for us, share := range publishedShares()[p.column+publishedColumn[d]] {
				sum, packets = sum+share*float64(us), packets+share
			}
			mean, want := sum/packets, p.average(d, 512)
			// Of Miredo's packets up to 1.4 % lie beyond the sheet's end, at 50 µs.
			if beyond := (100 - packets) / 100; mean > want+0.02 || mean < want-0.02-100*beyond {
				t.Errorf("%s, %s: mean %.2f, published %.2f", p.name, d, mean, want)
			}
		}
	}
}
