// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// naptLine is a row of table 2 of 1998: Ethernet of a rate on outside's side.
type naptLine struct {
	cables    cables
	rate      int64   // bit/s
	published float64 // translator / forwarder
	// together has all ways send at once, each over its own line: the rate of one is
	// nothing to the machine.
	together bool
}

var naptLines = []naptLine{
	{cables: "10 Mbit/s", rate: 10e6, published: 0.996, together: true},
	{cables: "100 Mbit/s", rate: 100e6, published: 0.90},
}

// measureLines measures table 2's rows over lines of their rates.
func measureLines(ctx context.Context, e *lab.Env, rep *report.Report, rounds int, length time.Duration) error {
	var rows []*naptStreams
	for _, line := range naptLines {
		found, err := line.measure(ctx, e, rep, rounds, length)
		if err != nil {
			return fmt.Errorf("%s: %w", line.cables, err)
		}
		rows = append(rows, found...)
	}
	describeLines(rep, rows)
	return nil
}

// measure measures one line in both directions.
func (line *naptLine) measure(ctx context.Context, e *lab.Env, rep *report.Report, rounds int, length time.Duration) (rows []*naptStreams, err error) {
	r, done, err := startRig(ctx, e, fmt.Sprintf("%s-%d", naptBandwidthName, line.rate/1e6), &translating{}, rigPlan{Ways: naptBandwidthWays, Rate: line.rate})
	if err != nil {
		return nil, err
	}
	defer done()
	usage, err := countCPU(append(r.processes(), os.Getpid())...)
	if err != nil {
		return nil, err
	}
	defer usage.close()
	streams := r.streamWays()
	for _, d := range []streamDirection{sending, receiving} {
		row := newNAPTStreams(line.cables, d, line.published)
		e.Step("%s: %d rounds of %v on each way", row.label, rounds, length)
		if line.together {
			err = row.atOnce(ctx, streams, rounds, length)
		} else {
			err = row.measure(ctx, streams, rounds, length, usage)
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, r.checkPaths(ctx, rep)
}

// atOnce measures the row in rounds of streams on all ways at once.
func (r *streamRow) atOnce(ctx context.Context, ways []streamWay, rounds int, length time.Duration) error {
	for range rounds {
		results, err := together(len(ways), func(i int) (streamed, error) { return r.stream(ctx, ways[i], length, nil) })
		if err != nil {
			return err
		}
		for i, s := range results {
			r.add(ways[i].way, s)
		}
	}
	return nil
}

// describeLines adds the table of the lines, in the unit of 1998, and its figures.
func describeLines(rep *report.Report, rows []*naptStreams) {
	table := wayTable("TCP over Ethernet of 1998's rates on the IPv4 side, kbyte/s", naptBandwidthWays, "transfer")
	for _, r := range rows {
		table.Rows = append(table.Rows, cells(naptBandwidthWays, func(w way) string {
			var kilobytes []float64
			for _, rate := range r.rates[w] {
				kilobytes = append(kilobytes, rate*1e3/8)
			}
			return spread(kilobytes, 0)
		}, r.label))
		rep.Figures = append(rep.Figures, r.figures()...)
	}
	rep.Tables = append(rep.Tables, table)
	streams := make([]*streamRow, len(rows))
	for i, r := range rows {
		streams[i] = r.streamRow
	}
	streamCPU(rep, naptBandwidthWays, streams)
	rep.Notes = append(rep.Notes,
		"A line is an emulated wire with Ethernet's gaps and headers in its rate, between the box and outside; the other cables are bare, and nothing is offloaded. A sender by IPv6 puts 20 bytes less into a packet, so that the box sends smaller ones.",
		"At 10 Mbit/s all ways send at once, each over its own line, so that no CPU is told.")
}
