// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// wireName is the experiment that proves the wires of all others.
const wireName = "wire"

// wire measures the anchors of the lab's wires.
func wire(ctx context.Context, e *lab.Env) error {
	anchors, err := lab.MeasureWires(ctx, e)
	if err != nil {
		return err
	}
	return finish(e, wireReport(anchors))
}

func wireReport(anchors []lab.Anchor) *report.Report {
	r := &report.Report{Experiment: wireName, Title: "What the emulated links keep of their rate, delay and loss"}
	for _, a := range anchors {
		f := report.Figure{
			Name: a.What, Unit: a.Unit, Decimals: 3, Isthmus: report.Measured(a.Achieved),
			Must: &report.Must{AtLeast: true, Bound: a.Least, Most: a.Most},
		}
		if a.Published != 0 {
			f.Published = report.Measured(a.Published)
		}
		r.Figures = append(r.Figures, f)
		r.Notes = append(r.Notes, a.What+": "+a.Detail+".")
	}
	if len(r.Missed()) > 0 {
		r.Notes = append(r.Notes, "A wire keeps time only while the machine has a processor to spare; figures made with wires now would be off as shown.")
	}
	return r
}
