// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// naptLine is a row of table 2 of 1998: Ethernet of a rate on outside's side.
type naptLine struct {
	cables    cables
	rate      int64   // bit/s
	published float64 // translator / forwarder
	rounds    int
	// together has all ways transfer at once, each over its own line: the rate of one is
	// nothing to the machine.
	together bool
	short    int // bytes in short form; else as many as in 1998
}

var naptLines = []naptLine{
	{cables: "10 Mbit/s", rate: 10e6, published: 0.996, rounds: 1, together: true, short: 1 << 20},
	{cables: "100 Mbit/s", rate: 100e6, published: 0.90, rounds: 2, short: 2 << 20},
}

// join puts a cable between a node and outside, or a line of the plan's rate. Before it
// lies a switch then: what XDP redirects arrives where somebody takes frames, and a wire
// takes packets.
func (n *naptPaths) join(l *lab.Lab, node *lab.Node, iface, name string) {
	if n.plan.Rate == 0 {
		l.Link(node, iface, n.outside, name)
		return
	}
	n.takers[way(name)] = l.Bridge("switch-" + name)
	l.Link(node, iface, n.takers[way(name)], switchPort)
	// An error is the lab's to tell.
	_, _ = l.Wire(n.takers[way(name)], "line", n.outside, name, lab.Ethernet(n.plan.Rate))
}

// switchPort is a switch's interface to the router.
const switchPort = "router"

// measureLines measures table 2's rows over lines of their rates.
func measureLines(ctx context.Context, e *lab.Env, rep *report.Report, size int) error {
	var rows []*naptStreams
	for _, line := range naptLines {
		found, err := line.measure(ctx, e, rep, size)
		if err != nil {
			return fmt.Errorf("%s: %w", line.cables, err)
		}
		rows = append(rows, found...)
	}
	describeLines(rep, rows)
	return nil
}

// measure measures one line in both directions.
func (line *naptLine) measure(ctx context.Context, e *lab.Env, rep *report.Report, size int) (rows []*naptStreams, err error) {
	if size < naptBandwidthBytes {
		size = line.short
	}
	n, done, err := startNAPT(ctx, e, fmt.Sprintf("%s-%d", naptBandwidthName, line.rate/1e6), naptPlan{Ways: naptBandwidthWays, Rate: line.rate})
	if err != nil {
		return nil, err
	}
	defer done()
	n.unmeter()
	for _, d := range []streamDirection{sending, receiving} {
		row := &naptStreams{cables: line.cables, direction: d, rates: map[way][]float64{}, published: line.published}
		e.Step("%s: %d Mbytes on each way", row.label(), size>>20)
		if line.together {
			err = n.atOnce(ctx, row, size)
		} else {
			err = n.streams(ctx, row, line.rounds, size)
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	if err := n.healthy(); err != nil {
		return nil, err
	}
	return rows, n.checkPaths(ctx, rep)
}

// atOnce measures one row by one transfer on each way, all at once.
func (n *naptPaths) atOnce(ctx context.Context, row *naptStreams, size int) error {
	rates, err := together(len(n.paths), func(i int) (float64, error) {
		took, err := n.paths[i].transfer(ctx, n, row.direction, size)
		if err != nil {
			return 0, fmt.Errorf("%s, %s: %w", n.paths[i].way.title(), row.label(), err)
		}
		return float64(size) * 8 / took.Seconds() / 1e6, nil
	})
	for i, rate := range rates {
		row.rates[n.paths[i].way] = append(row.rates[n.paths[i].way], rate)
	}
	return err
}

// describeLines adds the table of the lines, in the unit of 1998, and its figures.
func describeLines(rep *report.Report, rows []*naptStreams) {
	table := report.Table{Title: "TCP over Ethernet of 1998's rates on the IPv4 side, kbyte/s", Columns: []string{"transfer"}}
	for _, w := range naptBandwidthWays {
		table.Columns = append(table.Columns, w.title())
	}
	for _, r := range rows {
		row := []string{r.label()}
		for _, w := range naptBandwidthWays {
			var kilobytes []float64
			for _, rate := range r.rates[w] {
				kilobytes = append(kilobytes, rate*1e3/8)
			}
			row = append(row, spread(kilobytes, 0))
		}
		table.Rows = append(table.Rows, row)
		rep.Figures = append(rep.Figures, r.figures()...)
	}
	rep.Tables = append(rep.Tables, table)
	rep.Notes = append(rep.Notes,
		"A line is an emulated wire with Ethernet's gaps and headers in its rate, between the box and outside; the other cables are bare, and nothing is offloaded. A sender by IPv6 puts 20 bytes less into a packet, so that the box sends smaller ones.",
		"At 10 Mbit/s all ways transfer at once, each over its own line.")
}
