// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"testing"

	"github.com/isthmus-net/isthmus/lab/report"
)

// What translators are measured beside must itself carry every packet: plain
// forwarding, the cables and tayga.
func TestNAPTReferences(t *testing.T) {
	ctx, e := testEnv(t)
	n, done, err := startNAPT(ctx, e, "napt-references", naptPlan{Ways: []way{wayDirect4, wayDirect6, wayKernel, wayTayga}})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for _, size := range naptSizes {
		c, err := n.latency(ctx, size, 2)
		if err != nil {
			t.Fatal(err)
		}
		for w, lost := range c.lost {
			if lost > 0 {
				t.Errorf("%s lost %d of %d echo requests of %d bytes", w.title(), lost, 2*naptLatencySlice, size)
			}
			t.Logf("%d bytes, %s: %s", size, w.title(), spread(medians(c.rounds[w]), 2))
		}
	}
	if err := n.healthy(); err != nil {
		t.Error(err)
	}
}

// They must carry streams too.
func TestNAPTReferenceStreams(t *testing.T) {
	ctx, e := testEnv(t)
	n, done, err := startNAPT(ctx, e, "napt-streams", naptPlan{Ways: []way{wayDirect4, wayDirect6, wayKernel, wayTayga}, Offloads: true})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	rep := &report.Report{}
	if err := n.checkTransfers(ctx, rep); err != nil || len(rep.Faults) > 0 {
		t.Error(err, rep.Faults)
	}
	rows, err := n.allStreams(ctx, e, rep, 1, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		for w, rates := range r.rates {
			t.Logf("%s, %s: %.0f Mbit/s", r.label(), w.title(), rates)
		}
	}
	if err := n.healthy(); err != nil {
		t.Error(err)
	}
}

// Tayga must carry what it is known to carry.
func TestNAPTReferenceApplications(t *testing.T) {
	ctx, e := testEnv(t)
	programs, errs, err := tryAll(ctx, e, []way{wayTayga})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(programs, errs...) {
		t.Logf("%s, %s: %v", p.name, p.direction, p.faults[wayTayga])
	}
}
