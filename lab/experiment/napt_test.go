// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"strings"
	"testing"
)

// The tables of translators in short form: every way must carry packets and streams in
// both directions and lose no single one, packets must take the way that their column
// is named after, and sessions must end. What the figures are is for the long form.
func TestTranslatorTables(t *testing.T) {
	runShort(t, naptLatency, naptBandwidth, nat64Scale, nat64Cost, nat64InPlace, siitCost, siitInPlace)
}

// Applications must work, and errors come back right. Tayga's failures are known:
// others mean that the topology changed, or the trials.
func TestTranslatedApplications(t *testing.T) {
	t.Parallel()
	ctx, e := testEnvOf(t, naptApplications)
	programs, errs, err := tryAll(ctx, e, naptApplicationWays)
	if err != nil {
		t.Fatal(err)
	}
	rep := naptApplicationsReport(programs, errs, naptApplicationWays)
	if err := rep.Verdict(true); err != nil {
		t.Error(err)
	}
	if err := rep.WriteText(t.Output()); err != nil {
		t.Error(err)
	}
	known := map[string]bool{
		"ftp, active, fetches and stores":                           true, // no gateway
		"parameter problem: an invalid field":                       true,
		"parameter problem: segments left, found by the translator": true,
	}
	for _, p := range append(programs, errs...) {
		failed := p.faults[wayTayga] != nil
		switch {
		case strings.HasPrefix(p.name, "traceroute"), strings.HasPrefix(p.name, "time exceeded: hops"):
			// Three hops for one box: which line fails depends on the direction.
		case failed != known[p.name]:
			t.Errorf("%s, %s: %v", p.name, p.direction, p.faults[wayTayga])
		}
	}
}
