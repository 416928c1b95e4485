// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"

	"github.com/isthmus-net/isthmus/lab/report"
)

// describe adds tables, figures and the picture of all rows.
func (b *placedBench) describe(timing float64) {
	rates := wayTable(fmt.Sprintf("thousand packets per second at full load, %d bytes: median (lowest to highest slice)", placedSize), placedWays, b.entries)
	rates.Notes = []string{
		"Forwarding is the kernel's own, of the same destinations by the same routes and neighbours, by the same generator and into the same sink. To IPv4 it gets IPv4 packets, else IPv6 packets.",
		fmt.Sprintf("Hosts are behind %d gateways in each family, each half of an IPv4 /16 behind another one; each %s has a host of its own unless the row says otherwise.", placedGateways, b.entries[:len(b.entries)-1]),
		fmt.Sprintf("Where %d routes are to change a second, these did on each router: %s.", churnRate, spread(b.changesMade(), 0)),
	}
	times := report.Table{
		Title: "nanoseconds a packet: median (lowest to highest slice)",
		Notes: []string{
			"Receiving is the time of the CPU that all threads take that receive: at the router's cable, what forwards, and the sink. The program is what bpf_stats finds, in slices of its own.",
			fmt.Sprintf("Of each figure of a program %.0f ns are the timing itself: so much is found for one that does nothing.", timing),
		},
	}
	rates.Columns = cells(placedWays[1:], func(w way) string { return w.title + " / forwarding" }, rates.Columns...)
	times.Columns = cells(placedWays, func(w way) string { return "receiving, " + w.title }, b.entries)
	times.Columns = cells(placedWays[1:], func(w way) string { return "program, " + w.title }, times.Columns...)
	crowds, apart := &report.Bars{Unit: "ns"}, &report.Bars{Unit: "ns"}
	for _, r := range b.done {
		label := fmt.Sprintf("%s, %s", r.direction, r.label)
		passed := cells(placedWays, func(w way) string { return thousands(r.passed[w]) }, label)
		spent := cells(placedWays, func(w way) string { return plainNumbers(r.receiving[w]) }, label)
		for _, w := range placedWays[1:] {
			ratio := pairs(r.passed[wayKernel], r.passed[w])
			passed, spent = append(passed, spread(ratio, 2)), append(spent, plainNumbers(r.program[w]))
			b.rep.Figures = append(b.rep.Figures,
				report.Figure{Name: fmt.Sprintf("%s: %s / forwarding, packets per second", label, w.title), Decimals: 2, Isthmus: report.Measured(ratio...)},
				report.Figure{Name: fmt.Sprintf("%s: program of %s", label, w.title), Unit: "ns", Isthmus: report.Measured(r.program[w]...)},
			)
		}
		group := wayBars(label, placedWays[1:], func(w way) []float64 { return r.program[w] })
		if r.crowd > 0 {
			group.Label += " " + b.entries
			crowds.Groups = append(crowds.Groups, group)
		}
		if r.crowd == 0 || r.crowd == b.form.few || r.crowd == b.form.apart {
			apart.Groups = append(apart.Groups, group)
		}
		b.underChanges(r)
		rates.Rows, times.Rows = append(rates.Rows, passed), append(times.Rows, spent)
	}
	b.rep.Tables = append(b.rep.Tables, rates, times)
	b.rep.AddChart(report.Chart{Name: "program", Title: fmt.Sprintf("What the programs take for a packet in place, by the number of %s", b.entries), Bars: crowds})
	b.rep.AddChart(report.Chart{Name: "apart", Title: fmt.Sprintf("What the programs take for a packet in place, with %d %s and otherwise", b.form.apart, b.entries), Bars: apart})
}

// changesMade are the changes of routes of a second, of each router.
func (b *placedBench) changesMade() (made []float64) {
	for _, p := range b.places {
		made = append(made, float64(p.changed.Load())/b.changes.Seconds())
	}
	return made
}

// underChanges adds what changes of other routes leave of the rates of a row, each way's own,
// of the same round. Slices of the short form see none of them, or one.
func (b *placedBench) underChanges(r *placedRow) {
	if r.rest == nil || b.form.warm == 0 {
		return
	}
	for _, w := range placedWays {
		b.rep.Figures = append(b.rep.Figures, report.Figure{
			Name:     fmt.Sprintf("%s, %d, %s: %d route changes a second / at rest, packets per second", r.direction, r.rest.crowd, w.title, churnRate),
			Decimals: 2, Isthmus: report.Measured(pairs(r.rest.passed[w], r.passed[w])...),
		})
	}
}
