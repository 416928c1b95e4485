// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/cost"
	"github.com/isthmus-net/isthmus/lab/report"
)

// scaleCostSessions are those of the figures that have a must.
const scaleCostSessions = 1 << 16

// scaleCost measures the program alone.
func scaleCost(e *lab.Env, rep *report.Report, form scaleForm) error {
	o := cost.Defaults()
	o.Rounds = min(o.Rounds, form.rounds)
	if form.rounds < longRun {
		o.Peers, o.Sizes, o.Repeat = []int{1 << 10}, []int{64}, 1<<14
	}
	e.Step("the program alone, %d sessions at most: %d rounds of %d packets a row", o.Peers[len(o.Peers)-1], o.Rounds, o.Repeat)
	rows, err := cost.MeasureNAT64(o)
	if err != nil {
		return err
	}
	table := report.Table{
		Title:   "the program alone, nanoseconds a packet: median (lowest to highest round)",
		Columns: []string{"direction", "sessions", "IPv6 packet", "program", "harness alone"},
		Notes:   []string{"Measured by the kernel's test run; what makes each packet anew is measured apart and taken off. Each packet is of another session, in random order."},
	}
	for _, r := range rows {
		net := make([]float64, len(r.Gross))
		for i := range net {
			net[i] = r.Gross[i] - r.Harness[i]
		}
		d := "IPv6 " + r.Direction
		if r.Direction == "to IPv6" {
			d = "IPv4 " + r.Direction
		}
		table.Rows = append(table.Rows, []string{d, fmt.Sprint(r.Peers), fmt.Sprintf("%d bytes", r.Size), plainNumbers(net), plainNumbers(r.Harness)})
		f := report.Figure{Name: fmt.Sprintf("%s, %d sessions, %d bytes: %s", d, r.Peers, r.Size, figureCostNAT64), Unit: "ns", Isthmus: report.Measured(net...)}
		if r.Peers == scaleCostSessions {
			f.Must = must(scaleName, figureCostNAT64)
		}
		rep.Figures = append(rep.Figures, f)
	}
	rep.Tables = append(rep.Tables, table)
	return nil
}
