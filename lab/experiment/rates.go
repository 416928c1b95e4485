// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// direction is where packets go through a relay, a translator or a GGSN.
type direction string

// The directions.
const (
	toIPv4   direction = "IPv6 to IPv4"
	toIPv6   direction = "IPv4 to IPv6"
	downlink direction = "downlink" // to a terminal
	uplink   direction = "uplink"
	bothWays direction = "both at once"
)

// toRight reports whether packets go from left to right through a rig, and not back.
func (d direction) toRight() bool { return d == toIPv4 || d == downlink }

// rateCase is one direction and size, measured on all ways, one sample a round.
type rateCase struct {
	direction            direction
	size                 int
	offered, passed, cpu map[way][]float64 // packets per second, and nanoseconds a packet
	works                map[way]bool      // something came, be it late
}

func newRateCase(d direction, size int) *rateCase {
	return &rateCase{d, size, map[way][]float64{}, map[way][]float64{}, map[way][]float64{}, map[way]bool{}}
}

// label names the case in tables.
func (c *rateCase) label() string { return fmt.Sprintf("%s, %d bytes", c.direction, c.size) }

// add adds a slice.
func (c *rateCase) add(w way, r rate) {
	c.offered[w] = append(c.offered[w], r.offered)
	c.passed[w] = append(c.passed[w], r.passed)
	c.works[w] = c.works[w] || r.delivered > 0
	if r.cpu > 0 {
		c.cpu[w] = append(c.cpu[w], r.cpu)
	}
}

// passedRow is a row of a table of rates.
func (c *rateCase) passedRow(ways []way, first ...string) []string {
	return cells(ways, func(w way) string { return thousands(c.passed[w]) }, first...)
}

// cpuTable begins the table that stands beside one of rates.
func cpuTable(first string, ways []way) report.Table {
	t := wayTable("nanoseconds of CPU for each packet that arrives, in the same slices: median (lowest to highest slice)", ways, first)
	t.Notes = []string{"Of receiving in the kernel, the sink's share in it, and of the program that forwards, on all CPUs; not of the generator. Under more load than a way carries what is lost costs, too."}
	return t
}

// cpuRow is a row of it.
func (c *rateCase) cpuRow(label string, ways []way) []string {
	return cells(ways, func(w way) string { return spread(c.cpu[w], 0) }, label)
}

// rateReport says how the rates of a rig's ways are shown. The first way is a cable.
type rateReport struct {
	title, chart string
	notes        []string
	offered      []way // whose slices tell what was offered
	spared       way   // a peer that need not carry all sizes
	figures      func(*rateCase) []report.Figure
}

// rates measures packets per second of one flow on all ways, at full load, and adds table,
// figures and picture.
func (r *rig) rates(ctx context.Context, e *lab.Env, rep *report.Report, directions []direction, sizes []int, rounds int, x rateReport) error {
	ways := r.plan.Ways
	table, costs := wayTable(x.title, ways, "IPv6 packet", "offered"), cpuTable("IPv6 packet", ways)
	table.Notes = x.notes
	bars := &report.Bars{Unit: "thousand packets per second"}
	for _, d := range directions {
		for _, size := range sizes {
			c := newRateCase(d, size)
			e.Step("%s: %d rounds of %v on each way", c.label(), rounds, loadSlice)
			err := r.rounds(ctx, c, rounds, func(p *rigPath) (rate, error) { return r.slice(p, d, size, p.way.fullLoad()) })
			if err != nil {
				return err
			}
			var offered []float64
			for _, w := range x.offered {
				offered = append(offered, c.offered[w]...)
			}
			for _, w := range ways {
				if w != x.spared && !c.works[w] {
					rep.Fault("%s passed nothing, %s", w.title, c.label())
				}
			}
			table.Rows = append(table.Rows, c.passedRow(ways, c.label(), thousands(offered)))
			table.Notes = append(table.Notes, c.rigNotes(ways[0])...)
			costs.Rows = append(costs.Rows, c.cpuRow(c.label(), ways))
			bars.Groups = append(bars.Groups, wayBars(c.label(), routed(ways), func(w way) []float64 { return inThousands(c.passed[w]) }))
			rep.Figures = append(rep.Figures, x.figures(c)...)
		}
	}
	rep.Tables = append(rep.Tables, table, costs)
	rep.AddChart(report.Chart{Name: "rates", Title: x.chart, Bars: bars})
	return nil
}

// bareNote says what the bare hop of a table is.
func bareNote(hop string) string {
	return hop + " is one cable into a sink: what the rig carries where no router works. A way near it, within the spread, or above it is limited by the rig and not by its router. The sink of all ways is the same, XDP at the far end of their cables."
}

// rigLimit is how much of what a bare hop carries a way may carry before the rig is what
// is measured.
const rigLimit = 0.9

// rigNotes name the ways that carry as much as the rig. Few slices do not tell.
func (c *rateCase) rigNotes(bare way) (notes []string) {
	most := report.Measured(c.passed[bare]...)
	if len(most.Samples) < longRun {
		return nil
	}
	for _, w := range slices.SortedFunc(maps.Keys(c.passed), func(a, b way) int { return strings.Compare(a.name, b.name) }) {
		share := report.Measured(c.passed[w]...).Median() / most.Median()
		if w != bare && share >= rigLimit {
			notes = append(notes, fmt.Sprintf("%s: %s carries %.2f of the bare hop. The rig is the limit, and not the router.", c.label(), w.title, share))
		}
	}
	return notes
}
