// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"

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
	o.Rounds = cmp.Or(e.Runs, o.Rounds)
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
	directions := map[string]direction{"encap": toIPv4, "decap": toIPv6}
	musts := map[string]string{"encap": figureCostEncap, "decap": figureCostDecap}
	costTable{
		title: costRound, entries: "peers", named: func(r cost.Row) string { return string(directions[r.Direction]) },
		must: func(r cost.Row) *report.Must {
			if r.Peers != costPeers {
				return nil
			}
			return must(costName, musts[r.Direction])
		},
	}.add(rep, rows)
	return finish(e, rep)
}
