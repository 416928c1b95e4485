// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"

	"github.com/isthmus-net/isthmus/lab/report"
)

// latencyReport is the papers' table and figures, and what they leave out.
func latencyReport(cases []*latencyCase, rounds int) *report.Report {
	rep := &report.Report{
		Experiment: latencyName, Title: "Latency of single packets through one relay, bare veth", Peer: "Miredo",
		Tables: []report.Table{averages(cases), percentilesTable(cases)},
		Notes: []string{
			"Ratios are medians of the ratios of the medians of slices that followed each other (lowest to highest).",
			fmt.Sprintf("%d packets a case and way, one per %v; the papers send 10,000, one per second.", rounds*latencySlice, latencyGap),
			"A program of eBPF stamps each packet and hands it to the first cable as the driver of a network card would: one that a host sends would be copied for XDP first, and for nobody else. Another stamps it at the far end, the same on all ways. Two cables lie between, and one in the column of the bare hop.",
			"The sender waits for the next packet on its CPU, where the kernel receives and forwards, too: caches are warm on all ways, and nobody has to be woken but programs in user space.",
			"The published figures are those of other machines: what they tell is the ratio of the kernel module to Miredo, 3.3 to 3.9.",
			"Table 1 of AINA 2005 names no size. It stands at 512 bytes, since its averages are the means of the sheet embedded in that document, of 10,000 packets of 512 bytes each, which the pictures of that size show. The sheet ends at 50 µs: 0.5 and 1.4 % of Miredo's packets took longer.",
		},
	}
	rep.Fact("sender", "live XDP frames, one at a time, from CPU %d", senderCPU)
	rep.Fact("offloads", "off at all ends, but for GRO at the routers' ports, which gives them NAPI; no receiving threads: what forwards in the kernel runs in the sender's call")
	for _, c := range cases {
		rep.Figures = append(rep.Figures, c.figures()...)
		rep.AddChart(c.chart())
		for _, w := range latencyWays {
			if w.ours() && c.lost[w] > 0 {
				rep.Fault("%s lost %d of %d single packets, %s", w.title, c.lost[w], rounds*latencySlice, c.label())
			}
		}
	}
	return rep
}

// figures are the ratios that have a must.
func (c *latencyCase) figures() []report.Figure {
	median := func(w way) []float64 { return medians(c.rounds[w]) }
	miredo := median(wayMiredo)
	var figures []report.Figure
	for _, w := range []way{wayTC, wayXDP} {
		name := figureLatencyTC
		if w == wayXDP {
			name = figureLatencyXDP
		}
		figures = append(figures,
			ratioFigure(latencyName, c.label(), name, pairs(median(wayKernel), median(w))),
			ratioFigure(latencyName, c.label()+", "+w.title, figureLatencyMiredo, pairs(median(w), miredo)),
		)
	}
	return append(figures, ratioFigure(latencyName, c.label(), figureLatencyUser, pairs(miredo, median(wayUser))))
}

// chart is one of the papers' figures 14 to 16, and those of the other direction.
func (c *latencyCase) chart() report.Chart {
	h := &report.Histogram{Unit: "µs", Bin: 1}
	for _, p := range publishedLatencies {
		p.draw(h, c.direction, c.size)
	}
	for _, w := range latencyWays {
		if w.by != byCable {
			h.Add(w.title, w.role, slices.Concat(c.rounds[w]...))
		}
	}
	name := fmt.Sprintf("to-ipv4-%d", c.size)
	if c.direction == toIPv6 {
		name = fmt.Sprintf("to-ipv6-%d", c.size)
	}
	return report.Chart{Name: name, Title: "Latency, " + c.label(), Histogram: h}
}

// averages is the papers' table.
func averages(cases []*latencyCase) report.Table {
	t := report.Table{Title: "average latency, µs", Columns: []string{"IPv6 packet"}}
	for _, p := range publishedLatencies {
		t.Columns = append(t.Columns, p.name)
	}
	for _, w := range latencyWays {
		t.Columns = append(t.Columns, w.title)
	}
	for _, c := range cases {
		row := []string{c.label()}
		for _, p := range publishedLatencies {
			text := "-"
			if average := p.average(c.direction, c.size); average > 0 {
				text = fmt.Sprintf("%.2f", average)
			}
			row = append(row, text)
		}
		for _, w := range latencyWays {
			row = append(row, average(slices.Concat(c.rounds[w]...)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func average(samples []float64) string {
	if len(samples) == 0 {
		return "-"
	}
	sum := 0.0
	for _, s := range samples {
		sum += s
	}
	return fmt.Sprintf("%.2f", sum/float64(len(samples)))
}

// percentilesTable holds median, 99 % and 99.9 %.
func percentilesTable(cases []*latencyCase) report.Table {
	t := report.Table{Title: "latency, µs: median / 99 % / 99.9 %", Columns: []string{"IPv6 packet"}}
	for _, w := range latencyWays {
		t.Columns = append(t.Columns, w.title)
	}
	for _, c := range cases {
		row := []string{c.label()}
		for _, w := range latencyWays {
			all := slices.Concat(c.rounds[w]...)
			if len(all) == 0 {
				row = append(row, "-")
				continue
			}
			row = append(row, fmt.Sprintf("%.2f / %.1f / %.1f", percentile(all, 50), percentile(all, 99), percentile(all, 99.9)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// medians are the medians of the rounds that have samples.
func medians(rounds [][]float64) []float64 {
	m := make([]float64, len(rounds))
	for i, r := range rounds {
		if len(r) > 0 {
			m[i] = report.Measured(r...).Median()
		}
	}
	return m
}
