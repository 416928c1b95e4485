// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/cost"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Choices of relay-cost.
const (
	costName  = "relay-cost"
	costPeers = 1 << 16 // of the figures that have a must
)

// relayCost is the experiment relay-cost.
var relayCost = lab.Experiment{
	Name:      costName,
	Summary:   "what the relay's XDP program itself costs a packet, with few and many peers",
	NeedsRoot: true,
	Run:       runRelayCost,
}

func runRelayCost(ctx context.Context, e *lab.Env) error {
	o := cost.Defaults()
	if e.Runs > 0 {
		o.Rounds = e.Runs
	}
	e.Step("the program alone, %d peers at most: %d rounds of %d packets a row", o.Peers[len(o.Peers)-1], o.Rounds, o.Repeat)
	rows, err := cost.Measure(ctx, o)
	if err != nil {
		return err
	}
	rep := &report.Report{
		Experiment: costName, Title: "Cost of the relay's program", Peer: "Miredo",
		Notes: []string{
			"Measured by the kernel's test run of the program, without cable, driver and scheduler; what makes each packet anew is measured apart and taken off.",
			"Each packet is of another peer, in random order; outer checksum, look-up and cached next hop are included.",
			"A whole relay takes some ten times as long a packet over virtual cables: see relay-throughput.",
		},
	}
	table := report.Table{
		Title:   "nanoseconds a packet: median (lowest to highest round)",
		Columns: []string{"direction", "peers", "IPv6 packet", "program", "harness alone"},
	}
	for _, r := range rows {
		d, figure := toIPv4, figureCostEncap
		if r.Direction == "decap" {
			d, figure = toIPv6, figureCostDecap
		}
		net := make([]float64, len(r.Gross))
		for i := range net {
			net[i] = r.Gross[i] - r.Harness[i]
		}
		table.Rows = append(table.Rows, []string{
			string(d), fmt.Sprint(r.Peers), fmt.Sprintf("%d bytes", r.Size), plainNumbers(net), plainNumbers(r.Harness),
		})
		f := report.Figure{Name: fmt.Sprintf("%s, %d peers, %d bytes: cost of the program", d, r.Peers, r.Size), Unit: "ns", Isthmus: report.Measured(net...)}
		if r.Peers == costPeers {
			f.Must = must(costName, figure)
		}
		rep.Figures = append(rep.Figures, f)
	}
	rep.Tables = append(rep.Tables, table)
	return finish(e, rep)
}
